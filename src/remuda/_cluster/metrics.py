"""Metrics of pools, which Ray exports to its dashboard and to Prometheus."""

from __future__ import annotations

from ray.util.metrics import Counter, Gauge


class Metrics:
    """The metrics of one pool: `remuda_rollouts`, `remuda_policy_age` and `remuda_shard_restarts`, by shard."""

    def __init__(self, pool: str) -> None:
        """`pool`: the name of the pool, the value of the tag of that name."""
        self._pool, tags = pool, ("pool", "shard")
        self._rollouts = Counter("remuda_rollouts", "Rollouts that the learner has taken", tags)
        self._age = Gauge("remuda_policy_age", "Publications that the policy of the latest rollout missed", tags)
        self._restarts = Counter("remuda_shard_restarts", "Actors that were started for dead ones", tags)

    def note_rollout(self, shard: int, age: int) -> None:
        """Counts a rollout. `age`: the number of publications that its policy missed."""
        self._rollouts.inc(tags=self._tags(shard))
        self._age.set(age, tags=self._tags(shard))

    def note_restart(self, shard: int) -> None:
        """Counts the successor of an actor."""
        self._restarts.inc(tags=self._tags(shard))

    def _tags(self, shard: int) -> dict[str, str]:
        return {"pool": self._pool, "shard": str(shard)}
