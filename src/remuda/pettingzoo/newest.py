"""Follows the newest results of the envs of a pool, whichever call has received them."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from remuda import Batch, Pool
from remuda.pettingzoo.agents import Agents, ByAgent
from remuda.pettingzoo.agents_env import NUMBERS


class Newest:
    """The attributes of a `ParallelVectorEnv` that belong to the newest results.

    Attributes:
        env_ids, final_obs, state, extras: See `ParallelVectorEnv`.
        there: (n, agents) bool: which agents act next, in the envs of `env_ids`.
        numbers: (rewards, terminations, truncations), each (n, agents).
    """

    def __init__(self, agents: Agents, pool: Pool) -> None:
        self._agents, self._pool = agents, pool
        self._followed: Callable[[], Any] = lambda: None  # returns the engine, if it exists still
        self._heard = 0  # the number of batches that the engine had handed out when `note` was last called
        self.env_ids: npt.NDArray[np.int64] = pool.env_ids
        self.final_obs: ByAgent | None = None
        self.state: Any = None
        self.extras: dict[str, npt.NDArray[Any]] = {}
        self.numbers: tuple[Any, Any, Any] = (None, None, None)
        self.follow()
        self._may_act[:] = False  # no env has been reset
        self.there = self._there.copy()

    def follow(self) -> None:
        """Follows the pool's engine, which `ClusterPool.resize` replaces. Missed results count as unknown."""
        engine = self._pool._engine
        engine.check_open()
        if self._followed() is not engine:
            self._followed = weakref.ref(engine)
            shape = self._pool.num_envs, len(self._agents.names)
            self._there, self._may_act = np.zeros(shape, np.bool_), np.ones(shape, np.bool_)
        elif self._heard != engine.running.hub.caller.batches:  # an interrupt has lost a batch
            self._may_act[:] = True
        else:
            return
        self._heard = engine.running.hub.caller.batches
        engine.batches.listen(weakref.ref(self))

    def known(self, env_ids: Any) -> npt.NDArray[np.bool_]:
        """Returns (n, agents) bool: which agents act next in these envs, as far as results show. A copy."""
        there: npt.NDArray[np.bool_] = self._there[env_ids]
        return there

    def may_act(self, env_ids: Sequence[int]) -> npt.NDArray[np.bool_]:
        """Returns (n, agents) bool: which agents act next. Where this is unknown, all agents are assumed to act."""
        return self._may_act[env_ids]

    def note(self, batch: Batch) -> None:
        """Follows a batch. The pool calls this before it returns the batch."""
        ids, agents, running = batch.env_ids, self._agents, self._pool._engine.running
        if running.hub.caller.batches != self._heard + 1:
            self._may_act[:] = True
        there = batch.obs["alive"].astype(np.bool_)
        if not agents.in_same_step:  # the row of an env that has failed shows the agents that were there
            over = batch.dones | np.array([running.slots.needs_reset(env) for env in ids.tolist()], np.bool_)
            there &= ~over[:, None]
        extras = dict(batch.extras)
        # The row of an env that has failed repeats its last observation.
        last = batch.final_obs if agents.in_same_step else batch.obs
        before = there if last is None else last["alive"].astype(np.bool_)
        self.numbers = agents.numbers(extras.pop(NUMBERS), batch.truncations, before)
        self.there = self._there[ids] = self._may_act[ids] = there
        self._heard = running.hub.caller.batches  # not before: an interrupt may end this function early
        self.env_ids, self.extras, self.state = ids, extras, batch.obs.get("state")
        self.final_obs = agents.observations(last) if agents.in_same_step and last is not None else None

    def forget(self, env_ids: Sequence[int]) -> None:
        """Notes that results of envs are dropped, so that it is unknown which agents act next."""
        self._may_act[list(env_ids)] = True

    def let_go(self) -> None:
        """Drops the references to the memory of the newest results, which a rollout may use again."""
        self.final_obs, self.state, self.extras = None, None, {}
