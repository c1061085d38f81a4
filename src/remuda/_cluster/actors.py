"""The calls to Ray's actors: starts them, waits for their answers, and reads why they are gone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from remuda._cluster.description import Ray
from remuda._cluster.messages import Reply
from remuda._cluster.shard import Shard
from remuda.errors import MissingFrameworkError

try:
    import ray
    from ray.exceptions import GetTimeoutError, RayError, RayTaskError, RuntimeEnvSetupError

    from remuda._cluster.connection import Connection
    from remuda._cluster.room import Room
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "ray":
        raise
    raise MissingFrameworkError(
        'remuda.Ray needs Ray, which is not installed: pip install "remuda[ray]"', name=error.name
    ) from error

Actor: TypeAlias = Any  # Ray makes a class of it at run time
Ref: TypeAlias = Any

_CONTROL = "control"  # a thread of the actor beside the one that runs commands


class Lost(Exception):
    """The actor that was to answer is gone, or cannot be reached. The text is the reason, in a line.

    Attributes:
        has_no_runtime_env: Whether Ray could not set up the `runtime_env` of the actor.
    """

    def __init__(self, why: str, *, has_no_runtime_env: bool = False) -> None:
        super().__init__(why)
        self.has_no_runtime_env = has_no_runtime_env


class ShardActor(Shard):
    """A shard as an actor."""

    def __init__(self, shard: int, generation: int) -> None:
        node = f"{ray.util.get_node_ip_address()}-{ray.get_runtime_context().get_node_id()[:8]}"
        super().__init__(shard, node, generation)

    @ray.method(enable_task_events=False)  # type: ignore[untyped-decorator]
    def step_packed(self, message: bytes) -> Reply | bytes:
        """Steps without an entry in Ray's list of tasks. The list would have an entry for each step."""
        return super().step_packed(message)

    @ray.method(concurrency_group=_CONTROL)  # type: ignore[untyped-decorator]
    def locate(self) -> str:
        """Returns the machine. Answers also while envs are built."""
        return self.node

    @ray.method(concurrency_group=_CONTROL)  # type: ignore[untyped-decorator]
    def stop_rollouts(self, number: int) -> None:
        """Stops rollouts, also one that is being filled."""
        self.collector.stop(number)

    @ray.method(concurrency_group=_CONTROL)  # type: ignore[untyped-decorator]
    def hurry(self) -> None:
        """Runs while commands are run."""
        super().hurry()

    def fetch(self, ref: Ref) -> Any:
        return ray.get(ref)


class Cluster:
    """A Ray cluster as one pool uses it.

    Attributes:
        connection: The connection of this process.
        room: The resources for the shards.
    """

    def __init__(self, where: Ray) -> None:
        """Connects, unless this process is connected. Raises what `Connection` raises."""
        self._where, self.connection, self.room = where, Connection(where), Room(where)

    def start(self, shard: int, generation: int, name: str) -> Actor:
        """Returns an actor, which runs once there is room for it. Ray never repeats a step of it."""
        where = self._where
        actor = ray.remote(concurrency_groups={_CONTROL: 1})(ShardActor).options(
            num_cpus=where.cpus_per_shard,
            num_gpus=where.gpus_per_shard,
            resources=dict(where.resources) or None,
            scheduling_strategy=self.room.strategy(shard),
            runtime_env=self.connection.runtime_env,
            name=name,
            max_restarts=0,
            max_task_retries=0,
        )
        return actor.remote(shard, generation)

    def kill(self, actor: Actor) -> None:
        if self.connection.is_open:
            ray.kill(actor, no_restart=True)

    def give_back(self) -> None:
        """Frees the room, and ends the cluster if it was started for this pool and no other pool is on it."""
        if self.connection.is_open:
            self.room.give_back()
        self.connection.give_back()


def put(value: Any) -> Ref:
    """Puts a value into the object store, once for all shards."""
    return ray.put(value)


def get(ref: Ref, timeout: float | None = None) -> Any:
    """Waits for an answer. Raises Lost and TimeoutError."""
    try:
        return ray.get(ref, timeout=timeout)
    except GetTimeoutError:
        raise TimeoutError from None
    except RayTaskError:  # a shard reports errors in its answers: this one is a defect of the shard
        raise
    except RuntimeEnvSetupError as error:
        lines = str(error).strip().splitlines()
        raise Lost(f"its runtime_env could not be set up: {lines[-1]}", has_no_runtime_env=True) from error
    except RayError as error:
        raise Lost(_reason_of(error)) from error


def wait(refs: Sequence[Ref], count: int, timeout: float | None) -> list[Ref]:
    """Returns the answers that are there, once there are `count` of them or the time is over."""
    ready, _ = ray.wait(list(refs), num_returns=count, timeout=timeout, fetch_local=True)
    return list(ready)


def _reason_of(error: Exception) -> str:
    """Returns why an actor is gone, in a line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    given = [line for line in lines if line.startswith("The actor is dead because")]
    return (given or lines or [type(error).__name__])[0].partition(" Some common causes")[0]
