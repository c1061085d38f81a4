"""Sends actions to some of a pool's envs and receives their results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, NoReturn

import numpy as np

from remuda import _core
from remuda._copying import not_copied
from remuda._engine.commands.arguments import check_limit, check_order, check_whole, dump_objects
from remuda._engine.commands.batch import Batch
from remuda._engine.commands.engine import Engine
from remuda._engine.commands.resets import Options
from remuda._engine.options.checks import check_timeout
from remuda._engine.pool.env_calls import EnvCalls
from remuda._engine.pool.in_turn import in_turn
from remuda._engine.running.running import SPLIT_SINCE
from remuda._engine.running.seeds import Seed
from remuda._error_frames import holds_nothing
from remuda._wire.pickling import Parts, bundle
from remuda.errors import StateError

_STEP = _core.Op.STEP


class Stepping(EnvCalls):
    """The envs of a pool or of a part, which receive commands and return results together."""

    def __init__(self, engine: Engine, part: int, pool: Stepping | None = None) -> None:
        """`part`: the part's number. `pool`: the part's pool, held so that it stays open; None if this is a pool."""
        self._engine, self._exchange, self._pool = engine, engine.exchange, pool
        self._part, self._is_whole = part, pool is None
        self.env_ids: np.ndarray[Any, np.dtype[np.int64]] = engine.running.hub.env_ids(part)
        self.num_envs, self._ids = len(self.env_ids), self.env_ids.tolist()
        self._has_objects = engine.layout.action.num_objects > 0  # whether some values of actions have no column.
        self._failed_after: int | None = None  # the number of batches so far when an error was last raised

    def send(self, actions: Any, env_ids: Iterable[int] | None = None) -> None:
        """Sends each env its next action, and returns at once.

        Args:
            actions: An element of `action_space`, or for n envs of `batch_space(single_action_space, n)`: arrays of n
                rows, dicts or tuples of such, and for spaces without a fixed size a sequence of n. They are copied.
                Within a row, axes of length 1 may be missing or added.
            env_ids: The n envs, in the order of the actions; None for all. All envs of a vector env, in their order.

        Raises:
            ValueError, TypeError: `env_ids` is invalid, or names only some envs of a vector env. Nothing was sent.
            InvalidActionError: The number, shape or dtype is wrong, or a discrete choice is out of range. (The pool
                does not check the bounds of a Box.) Nothing was sent.
            StateError: An env has not been reset, or is in flight. Nothing was sent.
            BrokenPoolError, ClosedError: An env is lost, or the pool is closed.
        """
        if self._engine.hub is None:  # no local variable for the hub: a kept traceback would keep the hub
            return self._check_open()
        blobs = None
        if self._has_objects:
            actions, blobs, env_ids = self._without_objects(actions, env_ids)
        refusal = self._engine.hub.send(_STEP, env_ids, actions, blobs, self._part)
        return None if refusal is None else self.send(actions, self._targets_after(refusal, env_ids))

    @in_turn
    def send_reset(self, *, seed: Seed = None, options: Options = None, env_ids: Iterable[int] | None = None) -> None:
        """Sends envs a reset and returns at once.

        Args:
            seed, options, env_ids: See `reset`.

        Raises:
            ValueError, TypeError: An argument is invalid. Nothing was sent.
            StateError: An env is in flight. Nothing was sent.
            BrokenPoolError, ClosedError: An env is lost, or the pool is closed.
        """
        self._engine.resets.send(self._targets(env_ids), seed, options, self._part, to_all=env_ids is None)

    @in_turn
    def send_observe(self, env_ids: Iterable[int] | None = None) -> None:
        """Requests the current observations of envs once more, without a step. Rewards are 0, and infos empty.

        Args:
            env_ids: The envs; None for all.

        Raises: See `send`.
        """
        targets = self._targets(env_ids)
        self._exchange.send(_core.Op.OBSERVE, targets, None, self._part, to_all=env_ids is None)

    def recv(
        self,
        min_envs: int | None = None,
        timeout: float | None = None,
        max_envs: int | None = None,
        order: Literal["arrival", "slot"] = "arrival",
    ) -> Batch:
        """Waits for results of envs, and returns those that have arrived as a batch.

        Args:
            min_envs: The number of envs to wait for, if as many are in flight; None for all that are in flight.
            timeout: The seconds to wait at most. Then the batch has the results so far, perhaps none. The other envs
                stay in flight, for a later `recv`; nothing is lost.
            max_envs: The largest number of results to take, the first to arrive. With `vector_size`, a multiple of it.
            order: The order of the rows: "arrival", or "slot" for ascending `env_ids`. In both cases the envs that
                arrived first are taken, so that no env starves.

        Returns:
            A batch: of all envs by ascending `env_ids` if all were sent together, otherwise of some envs in `order`.

        Raises:
            ValueError, TypeError: An argument is invalid; `min_envs` is larger than `num_envs`.
            StateError: No env is in flight.
            EnvError: Envs raised. The next `recv` returns the results of the others.
            WorkerDiedError: A worker died while it had work.
            EnvTimeoutError, CorruptReplyError, ShardDiedError: Subclasses of WorkerDiedError: the worker missed a
                deadline and was killed, wrote invalid data, or was a shard of a cluster.
            RestartLimitError: An env failed more often than `faults` allows.
        """
        waits = min_envs is None or (type(min_envs) is int and 0 < min_envs <= self.num_envs)
        is_plain = waits and timeout is None and max_envs is None and order == "arrival"
        if is_plain and self._engine.hub is not None:
            batch = self._engine.hub.receive(min_envs or 0, self._part)
            if batch is not None:
                return batch  # type: ignore[return-value]  # the type that the hub makes
        return self._receive(min_envs, timeout, max_envs, order)

    @in_turn
    def _receive(
        self,
        min_envs: int | None = None,
        timeout: float | None = None,
        max_envs: int | None = None,
        order: str = "arrival",
        env_ids: Sequence[int] | None = None,
    ) -> Batch:
        """Receives like `recv`, and handles faults. `env_ids`: the envs to wait for, in the order of the rows."""
        self._check_open()
        check_limit("min_envs", min_envs)
        check_limit("max_envs", max_envs, self._engine.layout.vector_size)
        if min_envs is not None and min_envs > self.num_envs:
            raise ValueError(f"expected min_envs to be at most {self.num_envs} (the number of envs), got {min_envs}")
        check_timeout(timeout)
        check_order(order)
        exchange = self._exchange
        if exchange.attend():
            self._raise_any()
        there = exchange.pending(self._part)
        if there == 0:
            self._raise_any()
            self._some(env_ids)
            raise StateError("expected envs in flight, got none: recv follows send, send_reset or send_observe")
        wanted = there if min_envs is None else min(min_envs, there)
        exchange.wait(wanted, timeout, self._part)
        self._raise_any()
        if not exchange.pending(self._part):
            raise StateError("expected envs in flight, got none: a handler of signals or logs has received the results")
        limit = exchange.ready(self._part) if max_envs is None else max_envs
        return self._engine.running.hub.take(limit, order == "slot", env_ids, self._part)  # type: ignore[return-value]

    @in_turn
    def reset(self, *, seed: Seed = None, options: Options = None, env_ids: Iterable[int] | None = None) -> Batch:
        """Resets envs and waits for their first observations.

        Args:
            seed: An int seeds env i with `seed + i`; a sequence has a seed (or None) for each env. With
                seeding="per_episode" a seed is for all later episodes of env i, autoresets included: episode n,
                counted from 0, gets the lower 31 bits of
                `numpy.random.SeedSequence(seed, spawn_key=(i, n)).generate_state(1)[0]`, and an int is the same for
                all envs. An env without a seed continues the count of its last seed, or of one that the pool has
                drawn. A seed for env i also seeds `action_spaces[i]`, and one for env 0 `single_action_space`.
            options: A mapping for all envs, or a sequence with one mapping (or None) for each env, for this reset
                only. An env without options gets those of `set_reset_options`.
            env_ids: The envs; None for all.

        Returns: A batch of these envs, in the order of `recv`: first observations, reward 0, no flag set.

        Raises:
            ValueError, TypeError: An argument is invalid; with "per_episode" also a seed below 0. Nothing was sent.
            StateError: An env is in flight. Nothing was sent. (A reset of all envs instead drops what an error has
                left in flight. If the pool is divided, it drops what the parts have in flight, and makes the pool
                whole.)
            EnvError, WorkerDiedError, BrokenPoolError, ClosedError: See `send` and `recv`.
        """
        if env_ids is None and (self._is_left_over or self._is_divided):
            self.discard()
        self._check_quiet()
        self.send_reset(seed=seed, options=options, env_ids=self._some(env_ids))
        return self.recv()

    def step(self, actions: Any, env_ids: Iterable[int] | None = None) -> Batch:
        """Steps envs once: `send`, then `recv` for all of them.

        Args:
            actions, env_ids: See `send`.

        Returns: A batch of these envs, in the order of `env_ids`.

        Raises:
            StateError: With `env_ids`, also if any other env is in flight. Nothing was sent.
            Exception: Any error of `send` or `recv`.
        """
        if self._engine.hub is None or self._has_objects:
            return self._send_and_receive(actions, env_ids)
        batch = self._engine.hub.step(actions, env_ids, self._part)
        if type(batch) is Batch:
            return batch
        if batch is None:  # the actions were sent, but an event must be handled before results are received.
            return self._receive(env_ids=env_ids)  # type: ignore[arg-type]  # the hub accepts sequences only.
        return self.step(actions, self._targets_after(batch, env_ids))  # type: ignore[arg-type]  # `batch` is a refusal

    @in_turn
    def _send_and_receive(self, actions: Any, env_ids: Iterable[int] | None) -> Batch:
        """Steps envs by `send` and `_receive`, for arguments that `hub.step` does not support."""
        targets = None
        if env_ids is not None:
            self._check_quiet()
            targets = self._targets(env_ids)
        self.send(actions, targets)
        return self._receive(env_ids=targets)

    @property
    def pending(self) -> int:
        """The number of envs in flight. An env is in flight until a call returns its result or raises its error."""
        return 0 if self._engine.closed else self._exchange.pending(self._part)

    def discard(self) -> None:
        """Waits for all envs in flight, and drops their results and faults. Envs that failed must be reset. A divided
        pool is made whole.

        Raises:
            StateError: This is a part, and the pool has been split since, or made whole.
            ClosedError: The pool is closed.
        """
        self._check_open()
        if self.pending:
            self._discard_pending()
        self._engine.faults.drop(self._part)
        self._failed_after = None

    @in_turn
    def _discard_pending(self) -> None:
        self._exchange.drop_pending(self._part)

    @property
    def last_sent(self) -> int:
        """An int that grows with each command and call for these envs. Raises ClosedError after `close`."""
        self._engine.check_open()
        return self._engine.running.slots.last_sent(self._ids)

    @holds_nothing
    def __reduce__(self) -> NoReturn:
        """Raises TypeError, because the workers cannot be copied."""
        raise not_copied(self)

    # -- inside ------------------------------------------------------------------------------------------

    def _without_objects(
        self, actions: Any, env_ids: Iterable[int] | None
    ) -> tuple[tuple[Any, ...], list[Any], Sequence[int]]:
        """Splits actions. Returns (arrays for the columns, pickled objects for each env, env ids)."""
        targets = self._targets(env_ids)
        arrays, objects = self._engine.layout.action.split_batch(actions, len(targets))
        self._engine.faults.check_reset(targets)
        assert objects is not None
        return tuple(arrays), self._blobs(dump_objects(objects, targets)), targets

    def _blobs(self, rows: list[Parts]) -> list[Parts]:
        """Bundles the pickled objects of each vector env's rows into one message; those of single envs stay apart."""
        layout = self._engine.layout
        if layout.vector_size is None:
            return rows
        return [bundle([(0, parts) for parts in own]) for own in layout.by_env(rows)]

    def _targets_after(self, refusal: _core.Refusal, env_ids: Iterable[int] | None) -> Iterable[int] | None:
        """Returns the `env_ids` for repeating a step that the hub has refused. Raises if it would be refused again."""
        match refusal.reason:
            case _core.Reason.TARGETS:  # makes a list of a set or generator; raises if `env_ids` is invalid
                return self._targets(env_ids)
            case _core.Reason.PART if self._join_dropped():
                return env_ids
            case _:
                self._check_open()
                self._exchange.raise_refusal(refusal)

    def _raise_any(self) -> None:
        """Raises an error if there are faults. Then `_is_left_over` is True until the next batch."""
        try:
            self._engine.faults.raise_any(self._part)
        except BaseException:
            self._failed_after = self._engine.running.hub.caller.batches
            raise

    @property
    def _is_left_over(self) -> bool:
        """Whether no batch was received since an error was raised. Then a reset of all envs drops what is in flight."""
        hub = self._engine.hub
        return hub is not None and self._failed_after == hub.caller.batches

    @property
    def _is_divided(self) -> bool:
        """Whether this is a pool that is divided into parts now."""
        return False

    def _join_dropped(self) -> bool:
        """Makes the pool whole if it was divided for a rollout that was dropped. Returns whether it did."""
        return False

    def _targets(self, env_ids: Iterable[int] | None) -> Sequence[int]:
        self._check_open()
        targets = self._named(env_ids)
        if env_ids is not None and self._engine.layout.vector_size is not None:
            check_whole(targets, self._engine.layout)
        return targets

    def _some(self, env_ids: Iterable[int] | None) -> Sequence[int] | None:
        """Returns the checked env ids; None for all envs. Raises ValueError if there are none."""
        targets = None if env_ids is None else self._targets(env_ids)
        if targets is not None and len(targets) == 0:
            raise ValueError("expected env_ids to have at least one env, got none; nothing was sent")
        return targets

    def _check_open(self) -> None:
        self._engine.check_open()
        if not self._engine.running.slots.has_part(self._part):
            raise StateError(SPLIT_SINCE)

    def _check_quiet(self) -> None:
        if self.pending:
            raise StateError(f"expected no env in flight, got {self.pending}; call recv or discard first")
