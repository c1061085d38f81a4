"""Wraps Ray's API: starts actors, waits for their answers, and returns the reasons for their deaths."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeAlias

import ray
from ray.exceptions import RayError, RayTaskError, RuntimeEnvSetupError

from remuda._cluster.description import ClusterDescription
from remuda._cluster.ray.connection import Connection
from remuda._cluster.ray.placement import Placement
from remuda._cluster.shard.shard import CONTROL, NEVER, ShardActor

Actor: TypeAlias = Any  # Ray creates the class at run time
Ref: TypeAlias = Any
Outcome: TypeAlias = "Future[Any]"


class Lost(Exception):
    """The actor has died or cannot be reached. The text is the reason, in one line, except for a bug in remuda.

    Attributes:
        has_no_runtime_env: Whether Ray could not set up the `runtime_env` of the actor.
    """

    def __init__(self, why: str, *, has_no_runtime_env: bool = False) -> None:
        super().__init__(why)
        self.has_no_runtime_env = has_no_runtime_env


class Cluster:
    """One pool's connection to a Ray cluster, and the resources that it requests there.

    Attributes:
        connection: The connection of this process.
        placement: The placement of the shards.
    """

    def __init__(self, where: ClusterDescription) -> None:
        """Connects to the cluster, unless this process is already connected. Raises the errors of `Connection`."""
        self._where, self.connection, self.placement = where, Connection(where), Placement(where)

    def start(self, shard: int, generation: int, name: str) -> Actor:
        """Returns a new actor, which starts once the cluster has room. Ray never restarts it or retries its calls."""
        where = self._where
        actor = ray.remote(concurrency_groups={CONTROL: 1, NEVER: 1})(ShardActor).options(
            num_cpus=where.cpus_per_shard,
            num_gpus=where.gpus_per_shard,
            resources=dict(where.resources) or None,
            scheduling_strategy=self.placement.strategy(shard),
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
        """Frees the pool's resources. Ends the cluster if this process started it and no other pool uses it."""
        if self.connection.is_open:
            self.placement.give_back()
        self.connection.give_back()


def get(ref: Ref) -> Any:
    """Waits for an actor's answer and returns it. Raises Lost if the actor is gone."""
    with _losses():
        return ray.get(ref)


def when_done(ref: Ref, function: Callable[[Outcome], None]) -> None:
    """Calls a function once an actor has answered or died, in a thread of Ray, which must not be delayed."""
    ref.future().add_done_callback(function)


def answer_of(outcome: Outcome) -> Any:
    """Returns an actor's answer. Raises Lost if the actor is gone."""
    with _losses():
        return outcome.result()


@contextmanager
def _losses() -> Iterator[None]:
    """Raises Lost in place of Ray's errors."""
    try:
        yield
    except RayTaskError as error:  # a bug in remuda, because shards return the errors of envs in answers
        raise Lost(f"it failed: {error}") from error
    except RuntimeEnvSetupError as error:
        lines = str(error).strip().splitlines()
        raise Lost(f"its runtime_env could not be set up: {lines[-1]}", has_no_runtime_env=True) from error
    except RayError as error:
        raise Lost(_reason_of(error)) from error


def wait(refs: Sequence[Ref], count: int, timeout: float | None) -> list[Ref]:
    """Waits for `count` answers of actors or until the timeout. Returns the references of the finished answers."""
    ready, _ = ray.wait(list(refs), num_returns=count, timeout=timeout, fetch_local=True)
    return list(ready)


def _reason_of(error: Exception) -> str:
    """Returns why an actor is gone, in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    given = [line for line in lines if line.startswith("The actor is dead because")]
    return (given or lines or [type(error).__name__])[0].partition(" Some common causes")[0]
