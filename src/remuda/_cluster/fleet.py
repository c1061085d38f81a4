"""The shards of a pool as their driver sees them: starts them, sends them commands, and replaces those that die."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

import cloudpickle

from remuda._cluster import actors
from remuda._cluster.options import ClusterOptions
from remuda._cluster.replies import Answer, Legacy, ShardReport
from remuda._cluster.shares import Share, Shares
from remuda._engine.pool.options import EnvFn
from remuda.errors import RemudaError, ShardDiedError, StartTimeoutError


@dataclass
class Station:
    """The place of a shard, and the actor that is there now.

    Attributes:
        share: Its envs.
        actor: Does its commands, as soon as it has built them.
        building: What will tell that it has; None once it is known.
        generation: How many there were before.
        report: Of the first.
        node: Of the one before, while this one builds.
        error: Why there is nobody, and will be nobody.
    """

    share: Share
    actor: actors.Actor = None
    building: actors.Ref = None
    generation: int = 0
    report: ShardReport | None = None
    node: str = "unknown"
    error: RemudaError | None = None
    legacy: Legacy = field(default_factory=Legacy)

    @property
    def first_worker(self) -> int:
        return self.share.first


class Fleet:
    """The shards of a pool.

    Attributes:
        stations: Their places, by index.
        cluster: Where they are.
    """

    def __init__(self, env_fns: Sequence[EnvFn], options: ClusterOptions, shares: Shares) -> None:
        self._options, self._shares = options, shares
        self._name = f"{options.settings.name}-{os.getpid()}-{secrets.token_hex(3)}"
        self._factories = [cloudpickle.dumps(list(env_fns[shares.factories_of(share)])) for share in shares.each]
        self.stations = [Station(share) for share in shares.each]
        self.cluster = actors.Cluster(options.where)

    def start(self) -> list[ShardReport]:
        """Starts all, and waits until they have built their envs.

        Raises:
            StartTimeoutError: one was not there in time, or found no room.
            RemudaError: what a shard raised.
        """
        timeout = self._options.settings.start_timeout
        try:
            self.cluster.make_room(len(self.stations), timeout)
            for station in self.stations:
                self._start(station, None)
            self._await_builds(timeout)
        except BaseException:
            self.abandon()
            raise
        return [station.report for station in self.stations if station.report is not None]

    def _await_builds(self, timeout: float | None) -> None:
        building = [station.building for station in self.stations]
        ready = actors.wait(building, len(building), timeout)
        for station in self.stations:
            if station.building in ready:
                self._note_built(station)
        if late := [station.share.shard for station in self.stations if station.building is not None]:
            raise StartTimeoutError(
                f"expected all shards to build their envs within start_timeout={timeout} s, got {len(late)} that had "
                f"not (shards {late}): the cluster may have no room for "
                f"{self._options.where.cpus_per_shard} CPUs for each"
            )

    def _start(self, station: Station, legacy: Legacy | None) -> None:
        share = station.share
        envs = f"{share.env_ids[0]}-{share.env_ids[-1]}"
        generation = f"-again-{station.generation}" if station.generation else ""
        name = f"{self._name}-shard-{share.shard}-envs-{envs}{generation}"
        station.actor = self.cluster.start(share.shard, share.first, name)
        factories = self._factories[share.shard]
        options = self._options.for_shard(share.count // self._options.width)
        station.building = station.actor.build.remote(factories, sys.path, options, legacy)

    def _note_built(self, station: Station) -> None:
        """Raises what building has raised."""
        try:
            answer: Answer = actors.get(station.building)
        except actors.Lost as error:
            raise self._death(station, error, "build") from error
        station.building = None
        if answer.error is not None:
            raise answer.error
        report: ShardReport = answer.value
        station.node = report.node
        station.report = station.report or report

    def note_rebuilt(self, station: Station) -> Exception | None:
        """What a successor, which has answered a command, has raised when it built its envs."""
        if station.building is not None:
            try:
                self._note_built(station)
            except Exception as error:
                return error
        return None

    # -- deaths ------------------------------------------------------------------------------------------

    def _death(self, station: Station, error: Exception, operation: str) -> ShardDiedError:
        return ShardDiedError(
            shard=station.share.shard,
            node=station.node,
            reason=str(error),
            worker=station.share.first,
            env_ids=station.share.env_ids,
            operation=operation,
        )

    def note_death(self, station: Station, error: Exception, operation: str) -> ShardDiedError:
        """What to tell of the death of the actor that is there."""
        death = self._death(station, error, operation)
        actors.kill(station.actor)  # who is not dead, but cannot be reached
        return death

    def replace(self, station: Station, legacy: Legacy) -> None:
        """Starts a successor, wherever there is room; commands wait for it."""
        station.generation += 1
        self._start(station, legacy)

    # -- the end -----------------------------------------------------------------------------------------

    def close(self, timeout: float | None, terminate: bool) -> list[RemudaError]:
        """Lets all close their envs, as far as time allows, and returns what they raised."""
        errors = []
        try:
            if not terminate:
                errors = self._close_envs(10.0 if timeout is None else timeout)
        finally:
            self.abandon()
        return errors

    def _close_envs(self, timeout: float) -> list[RemudaError]:
        open_ones = [station for station in self.stations if station.error is None]
        closing = [station.actor.close.remote(timeout, False) for station in open_ones]
        errors = []
        done = actors.wait(closing, len(closing), timeout + _ON_THE_WAY) if closing else []
        for ref in done:
            try:
                answer: Answer = actors.get(ref)
            except actors.Lost:
                continue  # it is gone, as it should be
            if isinstance(answer.error, RemudaError):
                errors.append(answer.error)
        return errors

    def abandon(self) -> None:
        """Ends all at once.

        No handle of an actor may outlive the connection: the next cluster may have actors by the same ids.
        """
        for station in self.stations:
            if station.actor is not None:
                actors.kill(station.actor)
            station.actor = station.building = None
        self.cluster.give_back()


_ON_THE_WAY = 2.0  # seconds that an answer may take beyond what a shard was given
