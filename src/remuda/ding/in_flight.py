"""What is in flight between a manager and its pool."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from remuda import Batch, EnvError, Fault, Pool, WorkerDiedError
from remuda.ding.arguments import quick
from remuda.ding.reset_orders import ResetOrder
from remuda.ding.timesteps import from_info, spoilt, unreadable


class InFlight:
    """Knows which envs step and which reset, and sorts what the pool delivers.

    Args:
        pool: its envs are adapters.
        copy: hand out observations as arrays of their own, instead of views of shared memory.
        keys: of a dict observation, in the env's order.
        on_reset: called with the id and first observation of an env whose reset is over.
        restarts: whether an env that fails is restarted.
    """

    def __init__(
        self,
        pool: Pool,
        *,
        copy: bool,
        keys: Sequence[str] | None,
        on_reset: Callable[[int, Any], None],
        restarts: bool,
    ) -> None:
        self.pool = pool
        self._copy, self._keys, self._on_reset, self._restarts = copy, keys, on_reset, restarts
        self._arrived: dict[int, Any] = {}  # timesteps that nobody has taken yet
        self.stepping: dict[int, None] = {}  # an ordered set: also those that have arrived
        self.resetting: set[int] = set()

    # -- sending -----------------------------------------------------------------------------------------

    def send_steps(self, actions: Mapping[int, Any]) -> None:
        ids = list(actions)
        self.pool.send([quick(actions[i]) for i in ids], None if ids == list(range(self.pool.num_envs)) else ids)
        self.stepping.update(dict.fromkeys(ids))

    def send_resets(self, orders: Mapping[int, ResetOrder]) -> None:
        ids = list(orders)
        seeds = [_for_pool(order) for order in orders.values()]
        options = [{"order": order} for order in orders.values()]
        self.pool.send_reset(seed=seeds, options=options, env_ids=ids)
        self.resetting.update(ids)

    # -- calls -------------------------------------------------------------------------------------------

    def ask(self, function: Callable[..., Any], *args: Any, env_ids: list[int] | None) -> list[Any]:
        """Return what ``function`` makes of the adapter of each env, or of some.

        Where envs are restarted, all are asked once more when a worker has died. That ends, since a worker that dies
        too often is given up.
        """
        while True:
            try:
                return self.pool.apply(function, *args, env_ids=env_ids)
            except WorkerDiedError:
                if not self._restarts:
                    raise

    # -- receiving ---------------------------------------------------------------------------------------

    def take(self, least: int, timeout: float | None) -> dict[int, Any]:
        """Return the timesteps of all envs that step, or after ``timeout`` seconds of ``least`` of them."""
        deadline = time.monotonic() + timeout if timeout else None
        wanted = len(self.stepping) if deadline is None else least
        while len(self._arrived) < len(self.stepping):
            missing = wanted - len(self._arrived)
            left = None if deadline is None or missing > 0 else deadline - time.monotonic()
            if left is not None and left <= 0:
                break
            self._receive(max(missing, 1), left)
        taken, self._arrived = self._arrived, {}
        for env_id in taken:
            del self.stepping[env_id]
        return taken

    def look(self) -> None:
        """Take in the resets that are over, of those that are under way, without waiting."""
        self._receive(1, 0.0)

    def await_a_reset(self) -> None:
        self._receive(1, None)

    def await_resets(self, env_ids: Collection[int]) -> None:
        while not self.resetting.isdisjoint(env_ids):
            self._receive(1, None)

    def drop(self, env_ids: Collection[int]) -> None:
        """Wait until nothing of these envs is in flight, and forget their timesteps and exceptions."""
        while any(i in self.resetting or (i in self.stepping and i not in self._arrived) for i in env_ids):
            try:
                self._receive(1, None)
            except EnvError as error:
                if not set(error.env_ids) <= set(env_ids):
                    raise
        for env_id in env_ids:
            self._arrived.pop(env_id, None)
            self.stepping.pop(env_id, None)

    def _receive(self, least: int, timeout: float | None) -> None:
        try:
            batch = self.pool.recv(min(least, self.pool.pending), timeout)
        except EnvError as error:
            for env_id in error.env_ids:
                self.stepping.pop(env_id, None)
                self.resetting.discard(env_id)
            raise
        rows = zip(
            batch.env_ids.tolist(), self._observations(batch), _infos(batch), batch.terminated.tolist(), strict=True
        )
        for env_id, obs, info, over in rows:
            if env_id in self.resetting:
                self.resetting.discard(env_id)
                self._on_reset(env_id, obs)
            else:
                self._arrived[env_id] = _timestep(obs, info, over)

    def _observations(self, batch: Batch) -> Iterable[Any]:
        """What each env observed; ``None`` where it travels in the info instead."""
        if isinstance(batch.obs, tuple):  # no rows in shared memory
            return batch.obs
        if self._keys is None:
            return self._own(batch.obs)
        parts = zip(*(self._own(batch.obs[key]) for key in self._keys), strict=True)
        return [dict(zip(self._keys, each, strict=True)) for each in parts]

    def _own(self, rows: Any) -> list[Any]:
        each = [rows[i, ...] for i in range(len(rows))]  # arrays, also where the space has no axes
        return [row.copy() for row in each] if self._copy else each


def _timestep(obs: Any, info: dict[str, Any] | None, over: bool) -> Any:
    if info is None:
        return unreadable()
    if isinstance(fault := info.get("fault"), Fault):
        return spoilt(fault.error)
    return from_info(info, obs, over)


def _infos(batch: Batch) -> Sequence[dict[str, Any] | None]:
    """The infos of all rows; ``None`` for what cannot be unpickled."""
    try:
        return list(batch.infos)
    except pickle.UnpicklingError:
        return [_info(batch, row) for row in range(len(batch))]


def _info(batch: Batch, row: int) -> dict[str, Any] | None:
    try:
        return batch.infos[row]
    except pickle.UnpicklingError:
        return None


def _for_pool(order: ResetOrder) -> int | None:
    """What the pool is to take for the seed of this reset: for its reports, and to derive others from."""
    if order.seed is None or not (order.resets == 0 or order.repeats_episodes):
        return None
    seed = order.seed[0]
    return int(seed) if isinstance(seed, (int, np.integer)) and seed >= 0 else None
