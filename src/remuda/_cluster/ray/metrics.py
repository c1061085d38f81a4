"""Metrics of pools, which Ray exports to its dashboard and to Prometheus."""

from __future__ import annotations

from ray.util.metrics import Counter, Gauge


class Metrics:
    """A pool's metrics for each shard: `remuda_rollouts`, `remuda_policy_age` and `remuda_shard_restarts`."""

    def __init__(self, pool: str) -> None:
        """`pool`: the name of the pool, which is the value of the tag `pool`."""
        self._pool, tags = pool, ("pool", "shard")
        self._rollouts = Counter("remuda_rollouts", "Rollouts that the learner has taken", tags)
        self._age = Gauge("remuda_policy_age", "Publications that the policy of the latest rollout missed", tags)
        self._restarts = Counter("remuda_shard_restarts", "Actors that were started for dead ones", tags)

    def note_rollout(self, shard: int, age: int) -> None:
        """Counts a rollout. `age`: the number of policies that were published after the policy that filled it."""
        self._rollouts.inc(tags=self._tags(shard))
        self._age.set(age, tags=self._tags(shard))

    def note_restart(self, shard: int) -> None:
        """Counts an actor that replaces a dead actor of the shard."""
        self._restarts.inc(tags=self._tags(shard))

    def _tags(self, shard: int) -> dict[str, str]:
        return {"pool": self._pool, "shard": str(shard)}
