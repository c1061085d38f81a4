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

    The envs are divided among *shards*. A shard is a Ray actor with a pool of its own. Ray chooses the machine of each
    shard. Neighbouring envs share a shard. Needs `pip install "remuda-rl[ray]"`.

    Attributes:
        shards: The number of shards; at most the number of factories.
        cpus_per_shard: Ray's CPUs for each shard; also the number of its workers unless `num_workers` is given.
        gpus_per_shard: Ray's GPUs for each shard, also a fraction: for simulators, or for a policy in the shard.
        resources: Further resources for each shard, by their names in Ray: `{"simulator": 1}`.
        placement: "auto": the placement group that this code runs in (for example in a trial of Ray Tune), otherwise
            "spread". "spread": different machines if possible; "pack": few machines. "strict_spread" and "strict_pack"
            require different machines, or one machine: starting waits until the cluster has them. A placement group of
            Ray: shard i runs in bundle i. Any other scheduling strategy of Ray applies to each shard.
        address: The address of the cluster, "auto" or for example "10.0.0.1:6379". None: the cluster that this process
            is connected to, otherwise the one in the variable RAY_ADDRESS, otherwise a new one on this machine, which
            ends with the pool.
        runtime_env: Ray's `runtime_env`: packages, files and environment variables of the shards' processes. Folders
            of this machine (`working_dir`, `py_modules`) are uploaded.
        backend: The backend of each shard: "process"; "serial", which steps envs in the actor, for envs that take
            microseconds; "thread"; or "auto", which measures the envs if `num_workers="auto"`.

    Raises:
        ValueError: A number is below 1 (of GPUs: below 0), or the name in `placement` or `backend` is unknown.
        TypeError: `resources` is not a mapping.
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
