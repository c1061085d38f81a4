"""Fills a rollout: steps a shard's envs as a policy has it, and keeps what comes of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from remuda import Batch, Pool
from remuda._wire.codec import SpaceCodec
from remuda.errors import Fault

Array = npt.NDArray[Any]
Act = Callable[[Any], tuple[Any, dict[str, Any]]]


class Filling:
    """The arrays of a rollout, while they are filled.

    Attributes:
        rewards, terminations, truncations, valid, columns, infos, faults: As the rollout has them.
        starts: (T + 1, n) bool.
    """

    def __init__(self, pool: Pool, steps: int, over: npt.NDArray[np.bool_], begun: npt.NDArray[np.bool_]) -> None:
        """`over`, `begun`: whose episode is over, or has begun with the last result."""
        n, layout = pool.num_envs, pool._engine.layout
        self._pool, self._steps, self._mode = pool, steps, pool.autoreset
        self._observation, self._action = layout.observation, layout.action
        self._leaves = _empty(self._observation, steps + 1, n)
        self._finals = _empty(self._observation, steps, n) if self._mode == "same_step" else []
        self._actions = _empty(self._action, steps, n)
        self.rewards = np.zeros((steps, n))
        self.terminations, self.truncations, self.valid = (np.zeros((steps, n), bool) for _ in range(3))
        self.starts = np.zeros((steps + 1, n), bool)
        self.columns: dict[str, Array] = {}
        self.infos: dict[str, Any] = {}
        self.faults: dict[tuple[int, int], Fault] = {}
        self._over, self.starts[0] = over, begun

    def fill(self, act: Act) -> None:
        """Raises what the pool or the policy raises."""
        self._pool.send_observe()
        batch = self._pool.recv()
        self._keep(self._leaves, 0, batch)
        for t in range(self._steps):
            actions, columns = act(batch.obs)
            batch = self._pool.step(actions)
            self._keep_actions(t, actions, columns)
            self._take(t, batch)

    @property
    def over(self) -> npt.NDArray[np.bool_]:
        """Whose episode is over after the last step."""
        return self._over

    @property
    def obs(self) -> Any:
        return self._observation.build_batch(self._leaves, [])

    @property
    def actions(self) -> Any:
        return self._action.build_batch(self._actions, [])

    @property
    def final_obs(self) -> Any:
        return self._observation.build_batch(self._finals, []) if self._finals else None

    def _take(self, t: int, batch: Batch) -> None:
        self.rewards[t], self.terminations[t], self.truncations[t] = batch.reward, batch.terminated, batch.truncated
        ends = batch.terminated | batch.truncated
        self.valid[t] = ~self._over
        self.starts[t + 1] = ends if self._mode == "same_step" else self._over & ~ends
        self._over = ends if self._mode == "next_step" else np.zeros(len(ends), bool)
        self._keep(self._leaves, t + 1, batch)
        if self._finals and (finals := batch._final_leaves()) is not None:
            for kept, leaf in zip(self._finals, finals, strict=True):
                kept[t, ends] = leaf[ends]
        if batch.has_infos:
            self._keep_infos(t, batch)

    def _keep(self, leaves: Sequence[Array], t: int, batch: Batch) -> None:
        for kept, leaf in zip(leaves, batch._leaves(), strict=True):
            kept[t] = leaf

    def _keep_actions(self, t: int, actions: Any, columns: dict[str, Any]) -> None:
        arrays, _ = self._action.split_batch(actions, self._pool.num_envs, ValueError)
        for kept, array in zip(self._actions, arrays, strict=True):
            kept[t] = array
        for name, column in columns.items():
            array = np.asarray(column)
            if name not in self.columns:
                self.columns[name] = np.zeros((self._steps, *array.shape), array.dtype)
            self.columns[name][t] = array

    def _keep_infos(self, t: int, batch: Batch) -> None:
        stacked = batch.stack_infos()
        self._merge(self.infos, stacked, t)
        told = stacked.get("fault", stacked.get("final_info", {}).get("fault", ()))
        self.faults.update({(t, i): fault for i, fault in enumerate(told) if isinstance(fault, Fault)})

    def _merge(self, kept: dict[str, Any], stacked: dict[str, Any], t: int) -> None:
        """Numbers alone: what is no number belongs to no column."""
        for key, value in stacked.items():
            if isinstance(value, dict):
                self._merge(kept.setdefault(key, {}), value, t)
            elif isinstance(value, np.ndarray) and value.dtype != object:
                if key not in kept:
                    kept[key] = np.zeros((self._steps, *value.shape), value.dtype)
                kept[key][t] = value


def _empty(codec: SpaceCodec, steps: int, n: int) -> list[Array]:
    return [np.zeros((steps, n, *spec.shape), spec.dtype) for spec in codec.columns]
