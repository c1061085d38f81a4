"""Which options of a pool its shards get, and which it refuses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from remuda import FaultPolicy, PoolOptions
from remuda._cluster.description import Ray
from remuda._engine.options.given import Asked
from remuda._engine.options.pool_options import EnvFn
from remuda._engine.options.settings import Settings, check_vector_size, defaults_of_options

# What a value other than this one would mean for envs that share no machine, and whose results come by the shard.
_REFUSED: Mapping[str, tuple[Any, str]] = {
    "spares": (0, "a spare cannot back a slot of another shard"),
    "max_concurrency": (None, "no shard knows what the others do; the number of workers limits each"),
    "starts_serially": (False, "shards start beside each other"),
    "operation_of": (None, "it belongs to faces, which run on this machine"),
    "max_worker_memory": (None, "it takes one worker for each env, and those of a shard host several"),
    "record": (None, "crash records would lie on the machines of the shards"),
    "trace_on_fault": (None, "a trace is of one machine, by its clock"),
}


class ClusterOptions:
    """The options of a pool on a cluster, checked.

    Attributes:
        where: The cluster.
        faults: The policy that shards and the pool apply.
        settings: What the options would mean for all envs on one machine.
        asked: What advice must keep to.
        shard_options: What the pool of a shard is told.
    """

    def __init__(self, env_fns: Sequence[EnvFn], options: PoolOptions) -> None:
        """Raises ValueError, TypeError: one that cannot be."""
        where = options.get("backend")
        assert isinstance(where, Ray)  # or there would be another pool
        self.where = where
        _refuse(options)
        self.faults = FaultPolicy.of(options.get("faults", "raise"))
        self.width = check_vector_size(options.get("vector_size")) or 1
        self.shard_options: dict[str, Any] = {**options, "backend": where.backend, "advise": False}
        local: Any = {**self.shard_options, "backend": where.backend, "num_workers": 1}
        self.settings = Settings.of(local, len(env_fns), {})
        self.asked = Asked.of(options, self.faults, defaults_of_options())
        if where.shards > len(env_fns):
            what = "env_fns" if self.width == 1 else "vector envs"
            raise ValueError(
                f"expected shards to be from 1 to {len(env_fns)} (the number of {what}), got {where.shards}"
            )

    def for_shard(self, num_factories: int) -> dict[str, Any]:
        """What the pool of a shard with so many factories is told: a worker for each CPU, if nothing else was said."""
        workers = self.shard_options.get("num_workers", min(self.where.cpus_per_shard, num_factories))
        if self.where.backend == "serial" and "num_workers" not in self.shard_options:
            workers = 1
        return {**self.shard_options, "num_workers": workers}


def _refuse(options: PoolOptions) -> None:
    for name, (expected, why) in _REFUSED.items():
        got = options.get(name, expected)
        if got != expected:
            raise ValueError(f"expected {name}={expected!r} with backend=remuda.Ray(...), got {got!r}: {why}")
    if Settings.of({"autoreset": options.get("autoreset", "next_step")}, 1, {}).autoreset == "background":
        raise ValueError(
            "expected autoreset='next_step', 'same_step' or 'disabled' with backend=remuda.Ray(...), got 'background': "
            "results come from a shard in answer to what it is sent; rollouts wait for no long reset either"
        )
    if isinstance(output := options.get("worker_output", "inherit"), str) and output in ("inherit", "capture"):
        return
    raise ValueError(
        f"expected worker_output='inherit' or 'capture' with backend=remuda.Ray(...), got {output!r}: a directory "
        "would be one of each machine; Ray keeps what actors and their workers write in its own logs"
    )
