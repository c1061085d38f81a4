"""`remuda.Ray`: where on a Ray cluster the envs of a pool run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from math import inf
from typing import TYPE_CHECKING, Any, Literal

from remuda._engine.options.pool_options import RemoteBackend

if TYPE_CHECKING:
    from ray.util.placement_group import PlacementGroup

    from remuda import Pool

PLACEMENTS = ("auto", "spread", "pack", "strict_spread", "strict_pack")
LOCAL_BACKENDS = ("process", "thread", "serial", "auto")
_SMALLEST = 0.0001  # the smallest part of a resource that Ray can place


def _is_number(given: object, kind: type | tuple[type, ...] = (int, float)) -> bool:
    return isinstance(given, kind) and not isinstance(given, bool)


@dataclass(frozen=True)
class Ray(RemoteBackend):
    """Runs the envs of a pool on a Ray cluster: `Pool(env_fns, backend=remuda.Ray(shards=8, cpus_per_shard=4))`.

    The envs are divided among *shards*. A shard is a Ray actor with a pool of its own. Ray chooses the machine of each
    shard. Neighbouring envs share a shard. Needs `pip install "remuda-rl[ray]"`.

    Attributes:
        shards: The number of shards; at most the number of factories.
        cpus_per_shard: Ray's CPUs for each shard. A fraction such as 0.5 lets shards of cheap envs share a core. Unless
            `num_workers` is given, a shard has one worker for each whole CPU, at least one.
        gpus_per_shard: Ray's GPUs for each shard, for simulators, or for a policy in the shard: a fraction below 1, or
            a whole number.
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
        ValueError: A number is out of range, or the name in `placement` or `backend` is unknown.
        TypeError: `resources` is not a mapping.
    """

    shards: int = 1
    cpus_per_shard: float = 1
    gpus_per_shard: float = 0
    resources: Mapping[str, float] = field(default_factory=dict)
    placement: Literal["auto", "spread", "pack", "strict_spread", "strict_pack"] | PlacementGroup | Any = "auto"
    address: str | None = None
    runtime_env: Mapping[str, Any] | None = None
    backend: Literal["process", "thread", "serial", "auto"] = "process"

    def __post_init__(self) -> None:
        if not _is_number(self.shards, int) or self.shards < 1:
            raise ValueError(f"expected shards to be an int from 1 up, got {self.shards!r}")
        if not _is_number(self.cpus_per_shard) or not _SMALLEST <= self.cpus_per_shard < inf:
            raise ValueError(f"expected cpus_per_shard to be a number from {_SMALLEST} up, got {self.cpus_per_shard!r}")
        gpus = self.gpus_per_shard
        if not _is_number(gpus) or not (gpus == 0 or _SMALLEST <= gpus < 1 or (1 <= gpus < inf and gpus % 1 == 0)):
            raise ValueError(
                f"expected gpus_per_shard to be a fraction from {_SMALLEST} to 1, or a whole number from 0 up, "
                f"got {gpus!r}"
            )
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
