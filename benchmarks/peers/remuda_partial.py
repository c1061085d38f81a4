"""`remuda.Pool` that steps the envs that are done: `Plan.min_envs` results or more at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from remuda._bench.contenders import Plan, Remuda


class RemudaPartial(Remuda):
    """`remuda.Pool`, one env a worker: `recv` of at least `Plan.min_envs` results, and `send` to their envs."""

    workers = "one an env"

    def __init__(self, plan: Plan) -> None:
        super().__init__(replace(plan, num_envs=plan.num_envs + plan.spares))  # its envs include the spares
        self._min_envs = plan.min_envs
        self._resets_itself = plan.background_resets

    def _more(self, plan: Plan) -> dict[str, Any]:
        resets = {"autoreset": "background"} if plan.background_resets else {}
        return resets | ({"spares": plan.spares} if plan.spares else {})

    def begin_turn(self, seed: int) -> None:
        """Starts all envs again. Resets that ended between two turns would leave the envs in step with each other."""
        self._pool.discard()
        self._pool.send_reset(seed=seed)

    def step(self, actions: Any) -> Any:
        batch = self._pool.recv(min_envs=self._min_envs)
        rewards = self._read(batch)
        env_ids = batch.env_ids
        if self._resets_itself:  # a finished env returns by itself
            env_ids = env_ids[~(batch.terminated | batch.truncated)]
        if env_ids.size:
            self._pool.send(actions[env_ids], env_ids)
        return rewards
