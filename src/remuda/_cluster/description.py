"""Where on a Ray cluster the envs of a pool run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any, Literal

from remuda._engine.options.checks import int_from

if TYPE_CHECKING:
    from ray.util.placement_group import PlacementGroup

PLACEMENTS = ("auto", "spread", "pack", "strict_spread", "strict_pack")
LOCAL_BACKENDS = ("process", "thread", "serial", "auto")
_SMALLEST = 0.0001  # the smallest part of a resource that Ray can place


def _is_number(given: object) -> bool:
    return isinstance(given, (int, float)) and not isinstance(given, bool)


@dataclass(frozen=True)
class ClusterDescription:
    """Where on a Ray cluster the envs of a pool run: the fields of `remuda.Ray`, which describes each."""

    shards: int = 1
    cpus_per_shard: float = 1
    gpus_per_shard: float = 0
    resources: Mapping[str, float] = field(default_factory=dict)
    placement: Literal["auto", "spread", "pack", "strict_spread", "strict_pack"] | PlacementGroup | Any = "auto"
    address: str | None = None
    runtime_env: Mapping[str, Any] | None = None
    backend: Literal["process", "thread", "serial", "auto"] = "process"

    def __post_init__(self) -> None:
        int_from(1)("shards", self.shards)
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
