"""All that remuda asks of Ray: connecting to a cluster, actors and where they are put, waiting for what they answer."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, TypeAlias

from remuda._cluster.description import Ray
from remuda._cluster.replies import Reply
from remuda._cluster.shard import Shard
from remuda.errors import MissingFrameworkError, StartTimeoutError

try:
    import ray
    from ray.exceptions import GetTimeoutError, RayError, RayTaskError
    from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "ray":
        raise
    raise MissingFrameworkError(
        'remuda.Ray needs Ray, which is not installed: pip install "remuda[ray]"', name=error.name
    ) from error

Actor: TypeAlias = Any  # Ray makes a class of it at run time
Ref: TypeAlias = Any

_NEVER_RAN = "The actor never ran"  # Ray says so in words alone, in the message of its error
_CONTROL = "control"  # a thread of the actor's own, beside the one that does commands


class Lost(Exception):
    """An answer that will never come: the actor that was to give it is gone, or cannot be reached. Why, in a line.

    Attributes:
        never_ran: Whether the actor was gone before it could be sent anything, as Ray's own record of it has it.
    """

    def __init__(self, why: str, *, never_ran: bool = False) -> None:
        super().__init__(why)
        self.never_ran = never_ran


class ShardActor(Shard):
    """A shard as an actor, which knows where it is."""

    def __init__(self, shard: int, first_env: int) -> None:
        context = ray.get_runtime_context()
        super().__init__(shard, first_env, f"{ray.util.get_node_ip_address()}-{context.get_node_id()[:8]}")

    @ray.method(enable_task_events=False)  # type: ignore[untyped-decorator]
    def step_packed(self, message: bytes) -> Reply | bytes:
        """Without an entry in Ray's list of tasks, which costs time, and would have one for each step."""
        return super().step_packed(message)

    @ray.method(concurrency_group=_CONTROL)  # type: ignore[untyped-decorator]
    def set_policy(self, version: int, *news: Any) -> None:
        """While rollouts are under way, too."""
        self.collector.policies.tell(version, news)


class Cluster:
    """A connection to a Ray cluster, with room for the shards of one pool."""

    _ours = 0  # pools that use a connection that was made for one of them

    def __init__(self, where: Ray) -> None:
        """Connects, unless this process is connected already."""
        self._where, self._is_ours = where, False
        self._connect()
        self._room: PlacementGroup | None = None

    def _connect(self) -> None:
        if ray.is_initialized():
            self._is_ours = Cluster._ours > 0
            Cluster._ours += self._is_ours
            return
        where = self._where
        told: dict[str, Any] = {"address": where.address}
        if where.address is None and not os.environ.get("RAY_ADDRESS"):  # else Ray takes any cluster that it finds here
            told = {"address": "local", "include_dashboard": False}
        ray.init(**told, runtime_env=None if where.runtime_env is None else dict(where.runtime_env))
        self._is_ours, Cluster._ours = True, 1

    def make_room(self, shards: int, timeout: float | None) -> None:
        """Reserves what shards ask for, where they are to be put in a certain way.

        Raises:
            StartTimeoutError: there is no such room.
        """
        if self._where.placement == "spread":
            return
        bundle = {"CPU": float(self._where.cpus_per_shard), **self._where.resources}
        if self._where.gpus_per_shard:
            bundle["GPU"] = float(self._where.gpus_per_shard)
        self._room = placement_group([bundle] * shards, strategy=self._where.placement.upper())
        try:
            ray.get(self._room.ready(), timeout=timeout)
        except GetTimeoutError:
            self.give_back()
            raise StartTimeoutError(
                f"expected room for {shards} shards of {bundle} with placement={self._where.placement!r} within "
                f"{timeout} s; the cluster has {ray.cluster_resources()}"
            ) from None

    def start(self, shard: int, first_env: int, name: str) -> Actor:
        """An actor, as soon as there is room for it. Ray starts none in its place: a step is never repeated."""
        where = self._where
        strategy: Any = "SPREAD"
        if self._room is not None:
            strategy = PlacementGroupSchedulingStrategy(self._room, placement_group_bundle_index=shard)
        actor = ray.remote(concurrency_groups={_CONTROL: 1})(ShardActor).options(
            num_cpus=where.cpus_per_shard,
            num_gpus=where.gpus_per_shard,
            resources=dict(where.resources) or None,
            scheduling_strategy=strategy,
            runtime_env=None if where.runtime_env is None else dict(where.runtime_env),
            name=name,
            max_restarts=0,
            max_task_retries=0,
        )
        return actor.remote(shard, first_env)

    def give_back(self) -> None:
        """The room, and the connection where nobody else needs it."""
        room, self._room = self._room, None
        if room is not None and ray.is_initialized():
            remove_placement_group(room)
        if self._is_ours:
            self._is_ours = False
            Cluster._ours -= 1
            if Cluster._ours == 0:
                ray.shutdown()


def kill(actor: Actor) -> None:
    if ray.is_initialized():
        ray.kill(actor, no_restart=True)


def put(value: Any) -> Ref:
    """Into the object store, once for all shards."""
    return ray.put(value)


def get(ref: Ref, timeout: float | None = None) -> Any:
    """Raises TimeoutError and Lost."""
    try:
        return ray.get(ref, timeout=timeout)
    except GetTimeoutError:
        raise TimeoutError from None
    except RayTaskError:  # a shard says what goes wrong in its answer: this is a mistake in it
        raise
    except RayError as error:
        raise Lost(_reason_of(error), never_ran=_NEVER_RAN in str(error)) from error


def wait(refs: Sequence[Ref], count: int, timeout: float | None) -> list[Ref]:
    """Those that have come, once there are so many."""
    ready, _ = ray.wait(list(refs), num_returns=count, timeout=timeout, fetch_local=True)
    return list(ready)


def _reason_of(error: Exception) -> str:
    """Why an actor is gone, in a line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if line.startswith("The actor is dead because")]
    return (told or lines or [type(error).__name__])[0].partition(" Some common causes")[0]
