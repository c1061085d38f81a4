"""`remuda.Ray`: where on a Ray cluster the envs of a pool run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from remuda._engine.options.pool_options import RemoteBackend

if TYPE_CHECKING:
    from ray.util.placement_group import PlacementGroup

    from remuda import Pool

PLACEMENTS = ("auto", "spread", "pack", "strict_spread", "strict_pack")
LOCAL_BACKENDS = ("process", "thread", "serial", "auto")


@dataclass(frozen=True)
class Ray(RemoteBackend):
    """Runs the envs of a pool on a Ray cluster: `Pool(env_fns, backend=remuda.Ray(shards=8, cpus_per_shard=4))`.

    The envs are divided among *shards*. A shard is a Ray actor with a pool of its own, on whichever machine Ray finds
    room for it; neighbouring envs share a shard. Needs `pip install "remuda[ray]"`.

    Attributes:
        shards: How many; at most as many as there are factories.
        cpus_per_shard: Ray's CPUs for each, and the workers that it has unless `num_workers` says otherwise.
        gpus_per_shard: Ray's GPUs for each, or a part of one: for simulators, or for a policy that acts there.
        resources: Further resources for each shard, by their names in Ray: `{"simulator": 1}`.
        placement: "auto": in the placement group that this code runs in, as in a trial of Ray Tune, else as "spread".
            "spread": on different machines, as far as there are; "pack": on few. With `strict_` before it, on
            different machines, or on one, or not at all: then starting waits until there are. A placement group of
            Ray: shard i in bundle i. Any other scheduling strategy of Ray: each shard by that strategy.
        address: Of the cluster to connect to: "auto", "10.0.0.1:6379". None: the one that this process is connected to;
            else that of the variable RAY_ADDRESS; else a new one on this machine, which ends with the pool.
        runtime_env: Ray's: packages, files and environment variables of the machines' processes. Folders of this
            machine (`working_dir`, `py_modules`) are uploaded.
        backend: How each shard runs its envs: "process"; "serial" for envs that take microseconds, which the actor then
            steps itself; "thread"; or "auto", which measures, with `num_workers="auto"`.

    Raises:
        ValueError: A number below 1 (of GPUs: below 0), or an unknown name as `placement` or `backend`.
        TypeError: `resources` are no mapping.
    """

    shards: int = 1
    cpus_per_shard: int = 1
    gpus_per_shard: float = 0
    resources: Mapping[str, float] = field(default_factory=dict)
    placement: Literal["auto", "spread", "pack", "strict_spread", "strict_pack"] | PlacementGroup | Any = "auto"
    address: str | None = None
    runtime_env: Mapping[str, Any] | None = None
    backend: Literal["process", "thread", "serial", "auto"] = "process"

    def __post_init__(self) -> None:
        for name in ("shards", "cpus_per_shard"):
            number = getattr(self, name)
            if not isinstance(number, int) or isinstance(number, bool) or number < 1:
                raise ValueError(f"expected {name} to be an int from 1 up, got {number!r}")
        if not isinstance(self.gpus_per_shard, (int, float)) or self.gpus_per_shard < 0:
            raise ValueError(f"expected gpus_per_shard to be a number from 0 up, got {self.gpus_per_shard!r}")
        for name, known in (("placement", PLACEMENTS), ("backend", LOCAL_BACKENDS)):
            given = getattr(self, name)
            if given not in known and (name == "backend" or given is None or isinstance(given, str)):
                raise ValueError(f"expected {name} to be one of {known}, got {given!r}")
        if not isinstance(self.resources, Mapping):
            raise TypeError(f"expected resources to be a mapping of names to numbers, got {self.resources!r}")

    def pool_type(self) -> type[Pool]:
        """The class of the pool that drives the shards.

        Raises:
            MissingFrameworkError: Ray is not installed.
        """
        made: type[Pool] = import_module("remuda._cluster.pool").ClusterPool
        return made
