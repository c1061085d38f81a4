"""Divides the options of a pool between shards and driver. Refuses options that clusters do not support."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import Any

from remuda import FaultPolicy, PoolOptions
from remuda._cluster.description import ClusterDescription
from remuda._cluster.driver.shares import Share
from remuda._engine.options.pool_options import OPTIONS, EnvFn
from remuda._engine.options.settings import Settings


class ClusterOptions:
    """The options of a pool on a cluster, checked.

    Attributes:
        where: The cluster.
        faults: The policy that shards and the pool apply.
        given: The settings that the options give for a pool on one machine.
        settings: The settings of the engine that drives the shards. Deadlines and memory limits are left to shards.
        shard_options: The options of the pool of each shard.
    """

    def __init__(self, env_fns: Sequence[EnvFn], options: PoolOptions) -> None:
        """Raises ValueError or TypeError if an option is invalid."""
        where: object = options.get("backend")
        if not isinstance(where, ClusterDescription):
            raise TypeError(f"expected backend=remuda.Ray(...) for a ClusterPool, got {where!r}; use remuda.Pool")
        self.where = where
        _refuse(options)
        self.faults = FaultPolicy.of(options.get("faults", "raise"))
        self.shard_options: dict[str, Any] = {**options, "backend": where.backend, "log_advice": False}
        self.shard_options.pop("max_concurrency", None)  # the driver applies it
        local: Any = {**options, "backend": where.backend, "num_workers": 1}
        self.given = Settings.of(local, len(env_fns))
        if self.given.mode.in_background:
            self.shard_options["autoreset"] = "disabled"  # the driver sends the resets
        self.width = self.given.width
        self.settings = replace(
            self.given,
            backend="process",
            faults=replace(
                self.faults,
                on_fault="restart" if self.faults.resumes else self.faults.on_fault,  # shards resume by themselves
                step_timeout=None,
                reset_timeout=None,
                call_timeout=None,
                renew_every=None,
            ),
            max_worker_memory=None,
            resets_ahead=False,
            lazy=False,
            log_advice=False,
            choice=None,
            keeps_last=True,  # `resize` and successors of dead shards need the last rows
            is_remote=True,
            needs_processes=True,
        )
        if where.shards > len(env_fns):
            what = "env_fns" if self.width == 1 else "vector envs"
            raise ValueError(
                f"expected shards to be from 1 to {len(env_fns)} (the number of {what}), got {where.shards}"
            )
        self._check_workers()

    def with_shards(self, shards: int) -> ClusterOptions:
        """Returns a copy of these options, for another number of shards. Raises ValueError as the constructor does."""
        made = copy(self)
        made.where = replace(self.where, shards=shards)
        made._check_workers()
        return made

    def _check_workers(self) -> None:
        """Raises ValueError if a shard has fewer envs than `num_workers`, which is that of each shard."""
        workers, shards = self.shard_options.get("num_workers"), self.where.shards
        most = self.given.num_envs // self.width
        if isinstance(workers, int) and 1 <= workers <= most and most // shards < workers:
            raise ValueError(
                f"expected shards to be from 1 to {most // workers} with num_workers={workers}, got {shards}"
            )

    def for_shard(self, share: Share) -> dict[str, Any]:
        """Returns the options of a shard. By default it has one worker per whole CPU."""
        cpus = 1 if self.where.backend == "serial" else max(1, int(self.where.cpus_per_shard))
        return {"num_workers": min(cpus, share.count // self.width), **self.shard_options}

    def num_workers_of(self, share: Share) -> int:
        """Returns the number of workers of a shard; with "auto", the most that it may have."""
        given = self.for_shard(share)["num_workers"]
        return given if isinstance(given, int) else share.count // self.width


def _refuse(options: PoolOptions) -> None:
    for name, option in OPTIONS.items():
        got = options.get(name, option.default)
        if option.not_on_a_cluster is not None and got != option.default:
            raise ValueError(
                f"expected {name}={option.default!r} with backend=remuda.Ray(...), got {got!r}: "
                f"{option.not_on_a_cluster}"
            )
    if isinstance(output := options.get("worker_output", "inherit"), str) and output in ("inherit", "capture"):
        return
    raise ValueError(
        f"expected worker_output='inherit' or 'capture' with backend=remuda.Ray(...), got {output!r}: a directory "
        "would be one of each machine; Ray keeps what actors and their workers write in its own logs"
    )
