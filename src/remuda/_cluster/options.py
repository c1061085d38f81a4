"""Which options of a pool its shards get, and which it refuses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from remuda import FaultPolicy, PoolOptions
from remuda._cluster.description import Ray
from remuda._engine.options.autoreset import autoreset_name
from remuda._engine.options.given import Asked
from remuda._engine.options.pool_options import OPTIONS, EnvFn
from remuda._engine.options.settings import Settings


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
        self.shard_options: dict[str, Any] = {**options, "backend": where.backend, "advise": False}
        local: Any = {**self.shard_options, "backend": where.backend, "num_workers": 1}
        self.settings = Settings.of(local, len(env_fns))
        self.width = self.settings.width
        given: Any = {**{name: option.default for name, option in OPTIONS.items()}, **options}
        self.asked = Asked.of(given, self.faults)
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
    for name, option in OPTIONS.items():
        got = options.get(name, option.default)
        if option.not_on_a_cluster is not None and got != option.default:
            raise ValueError(
                f"expected {name}={option.default!r} with backend=remuda.Ray(...), got {got!r}: "
                f"{option.not_on_a_cluster}"
            )
    if autoreset_name(options.get("autoreset")) == "background":
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
