"""A contender with `remuda.Pool` and partial batches, of `Plan.min_envs` results or more."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from remuda._bench.contenders import Plan, Remuda


class RemudaPartial(Remuda):
    """A pool with a worker for each env. A step receives at least `Plan.min_envs` results, and steps those envs."""

    workers = "one an env"

    def __init__(self, plan: Plan) -> None:
        super().__init__(replace(plan, num_envs=plan.num_envs + plan.spares))  # a pool counts spares as envs
        self._min_envs = plan.min_envs
        self._resets_itself = plan.background_resets

    def _more(self, plan: Plan) -> dict[str, Any]:
        resets = {"autoreset": "background"} if plan.background_resets else {}
        return resets | ({"spares": plan.spares} if plan.spares else {})

    def begin_turn(self, seed: int) -> None:
        """Resets all envs. Otherwise the envs that waited between turns would start, and later end, all at once."""
        self._pool.discard()
        self._pool.send_reset(seed=seed)

    def step(self, actions: Any) -> Any:
        batch = self._pool.recv(min_envs=self._min_envs)
        rewards = self._read(batch)
        env_ids = batch.env_ids
        if self._resets_itself:  # a finished env resets in the background and needs no action
            env_ids = env_ids[~(batch.terminated | batch.truncated)]
        if env_ids.size:
            self._pool.send(actions[env_ids], env_ids)
        return rewards
