"""Requests and places the resources of shards, and reports why a shard waits for resources."""

from __future__ import annotations

import json
from typing import Any

import ray
from ray.exceptions import GetTimeoutError
from ray.experimental.internal_kv import _internal_kv_get
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from remuda._cluster.description import ClusterDescription
from remuda.errors import StartTimeoutError


class Placement:
    """The placement of one pool's shards on the machines of a cluster.

    Attributes:
        bundle: The resources of each shard.
    """

    def __init__(self, where: ClusterDescription) -> None:
        self._given = where.placement
        self._group: PlacementGroup | None = None
        if self._given == "auto":
            self._group = ray.util.get_current_placement_group()
        elif isinstance(self._given, PlacementGroup):
            self._group = self._given
        self.bundle: dict[str, float] = {"CPU": float(where.cpus_per_shard), **where.resources}
        if where.gpus_per_shard:
            self.bundle["GPU"] = float(where.gpus_per_shard)
        self._is_ours = False  # whether this object has made the placement group

    def reserve(self, shards: int, timeout: float | None) -> None:
        """Reserves a bundle of resources for each shard, if the placement requires that.

        Raises StartTimeoutError if there is no such room.
        """
        if isinstance(self._given, PlacementGroup) and len(self._given.bundle_specs) < shards:
            raise ValueError(
                f"expected a placement group with a bundle for each of {shards} shards, got "
                f"{len(self._given.bundle_specs)} bundles"
            )
        if not isinstance(self._given, str) or self._given in ("auto", "spread"):
            return
        group = placement_group([self.bundle] * shards, strategy=self._given.upper())
        self._group, self._is_ours = group, True
        try:
            ray.get(group.ready(), timeout=timeout)
        except GetTimeoutError:
            self.give_back()
            raise StartTimeoutError(
                f"expected room for {shards} shards of {self.bundle} with placement={self._given!r} within "
                f"{timeout} s; the cluster has {ray.cluster_resources()}"
            ) from None

    def strategy(self, shard: int) -> Any:
        """Returns Ray's scheduling strategy for a shard."""
        if self._group is not None:
            bundle = -1 if self._given == "auto" else shard  # -1: Ray chooses any bundle with room
            return PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=bundle)
        return "SPREAD" if isinstance(self._given, str) else self._given

    def shortage(self) -> str | None:
        """Returns why no machine can run a shard. Returns None if a machine can, or if an autoscaler may add one."""
        if self._group is not None:
            offers, of = self._group.bundle_specs, "no bundle of the placement group has"
        elif _has_autoscaler():
            return None
        else:
            offers, of = [node["Resources"] for node in ray.nodes() if node["Alive"]], "no machine of the cluster has"
        if any(all(offer.get(name, 0) >= count for name, count in self.bundle.items()) for offer in offers):
            return None
        return f"{of} {in_words(self.bundle)}"

    def give_back(self) -> None:
        """Frees the reserved resources. The connection to Ray must be open."""
        if self._is_ours:
            remove_placement_group(self._group)
        self._is_ours = False


def in_words(resources: dict[str, float]) -> str:
    return ", ".join(f"{count:g} {name}" for name, count in resources.items())


def _has_autoscaler() -> bool:
    """Returns whether an autoscaler may add machines. Without one, Ray reports each machine as a type of its own."""
    try:
        report = json.loads(_internal_kv_get(b"__autoscaling_status") or "")["autoscaler_report"]
        return not all(name.startswith("node_") for name in report["active_nodes"])
    except (ValueError, KeyError, TypeError):  # Ray's report is missing, or has the format of another version
        return True
