"""The shards of a pool as their driver sees them: starts them, sends them commands, and replaces those that die."""

from __future__ import annotations

import os
import pickle
import secrets
import sys
from collections import Counter
from collections.abc import Iterable, Sequence

from remuda._cluster import actors
from remuda._cluster.options import ClusterOptions
from remuda._cluster.progress import unknown
from remuda._cluster.replies import Answer, Legacy, ShardReport
from remuda._cluster.restarts import Restarts
from remuda._cluster.shares import Share, Shares
from remuda._cluster.start_bar import StartBar
from remuda._cluster.start_wait import StartWait
from remuda._cluster.station import Sent, Station, answered
from remuda._engine.options.pool_options import EnvFn
from remuda._relay.log import logger
from remuda._wire import by_value
from remuda.errors import RemudaError, ShardDiedError


class Fleet:
    """The shards of a pool.

    Attributes:
        stations: Their places, by index.
        cluster: Where they are.
        restarts: Of those that die.
    """

    def __init__(self, env_fns: Sequence[EnvFn], options: ClusterOptions, shares: Shares) -> None:
        self._options, self._shares = options, shares
        self._name = f"{options.settings.name}-{os.getpid()}-{secrets.token_hex(3)}"
        self._factories = _pickled(env_fns, shares)
        self._names = Counter[str]()
        self.stations = [Station(share) for share in shares.each]
        self.restarts = Restarts(options.faults)
        self.cluster = actors.Cluster(options.where)

    def start(self) -> list[ShardReport]:
        """Starts all, and waits until they have built their envs.

        Raises:
            StartTimeoutError: one was not there in time, or found no room.
            ShardDiedError, RestartLimitError: an actor died.
            RemudaError: what a shard raised.
        """
        timeout = self._options.settings.start_timeout
        try:
            self.cluster.room.reserve(len(self.stations), timeout)
            for station in self.stations:
                self._start(station, None)
            self._await_builds(timeout)
        except BaseException:
            self.abandon()
            raise
        for station in self.stations:
            station.send("number_workers", self.first_worker(station))
        return [station.report for station in self.stations if station.report is not None]

    def _await_builds(self, timeout: float | None) -> None:
        waiting = StartWait(self.cluster.room, timeout)
        with StartBar(self.stations, self._options.width) as shown:
            while building := [station for station in self.stations if station.building is not None]:
                sent = [station.building for station in building if station.building is not None]
                built = list(answered(sent, 1, shown.wait_time(waiting.next_look)))
                if not built:
                    waiting.look(building)
                for one in built:
                    self._note_first_build(one)

    def _note_first_build(self, sent: Sent) -> None:
        try:
            self._note_built(sent.station)
        except actors.Lost as error:
            if error.has_no_runtime_env:
                raise ValueError(
                    f"expected a runtime_env that Ray can set up: shard {sent.station.share.shard} could "
                    f"not start, because {error}"
                ) from error
            if not self.starts_elsewhere(sent, error):
                self._begin_anew(sent.station, error)

    def _begin_anew(self, station: Station, error: actors.Lost) -> None:
        """An actor has died while it built, as those of a machine that is lost do."""
        death = self.note_death(station, error, "build")
        try:
            _, delay = self.restarts.allow(station, death, unknown)
        except RemudaError as given_up:
            raise given_up from error
        logger.warning("%s; it is built anew where there is room", death, extra={"shard": death.shard})
        self.replace(station, Legacy(delay=delay))

    def _start(self, station: Station, legacy: Legacy | None) -> None:
        self.begin(station, legacy, self._factories[station.share.shard])

    def begin(self, station: Station, legacy: Legacy | None, factories: bytes) -> Sent:
        """Has an actor come to a place and build its envs."""
        return station.begin(self._actor(station), *self.plan_of(station.share, factories), legacy)

    def plan_of(self, share: Share, factories: bytes) -> tuple[bytes, list[str], bytes]:
        """What a shard with these envs is told: how to make them, where modules are, the options of its pool."""
        options = self._options.for_shard(share.count // self._options.width)
        return factories, sys.path, by_value.dumps(options)

    def _actor(self, station: Station) -> actors.Actor:
        share = station.share
        name = f"{self._name}-shard-{share.shard}-envs-{share.env_ids[0]}-{share.env_ids[-1]}"
        again = f"-again-{self._names[name]}" if self._names[name] else ""  # Ray has each name once
        self._names[name] += 1
        return self.cluster.start(share.shard, share.first, station.generation, f"{name}{again}")

    def _note_built(self, station: Station) -> None:
        """Raises what building has raised; Lost."""
        assert station.building is not None
        answer: Answer = actors.get(station.building.ref)
        station.note_built()
        if answer.error is not None:
            raise answer.error
        report: ShardReport = answer.value
        station.node = report.node
        station.report = station.report or report

    def note_rebuilt(self, sent: Sent) -> Exception | None:
        """What a successor, which has answered this, has raised when it built its envs."""
        if sent.station.building is not None and sent.generation == sent.station.generation:
            try:
                self._note_built(sent.station)
            except Exception as error:
                return error
        return None

    # -- another number of shards --------------------------------------------------------------------------

    def divided(self, shares: Shares) -> list[bytes]:
        """The factories, as these shares have them."""
        env_fns = [env_fn for pickled in self._factories for env_fn in pickle.loads(pickled)]
        return _pickled(env_fns, shares)

    def take(self, stations: list[Station], shares: Shares, factories: list[bytes]) -> None:
        """These are the pool's shards from now on."""
        self.stations, self._shares, self._factories = stations, shares, factories

    # -- deaths ------------------------------------------------------------------------------------------

    def first_worker(self, station: Station) -> int:
        """The index of a shard's first worker; -1 while not all shards before it have built theirs."""
        before = [other.report for other in self.stations[: station.share.shard]]
        if station not in self.stations or None in before:
            return -1
        return sum(len(report.workers) for report in before if report is not None)

    def death(self, station: Station, error: Exception, operation: str) -> ShardDiedError:
        """What to tell of it."""
        return ShardDiedError(
            shard=station.share.shard,
            node=station.node,
            reason=str(error),
            worker=self.first_worker(station),
            env_ids=station.share.env_ids,
            operation=operation,
        )

    def note_death(self, station: Station, error: Exception, operation: str) -> ShardDiedError:
        """The same, of the actor that is there; nobody is to be reached by it any more."""
        death = self.death(station, error, operation)
        self.cluster.kill(station.actor)  # it may be alive and only out of reach
        return death

    def starts_elsewhere(self, sent: Sent, error: Exception) -> bool:
        """Whether what was sent is under way again, since the actor that had it never ran: this is no death.

        For some seconds Ray puts actors on a machine that is dead, as nobody has noticed it yet.
        """
        station = sent.station
        if station.error is not None or sent.generation != station.generation:
            return False
        if not isinstance(error, actors.Lost) or not error.never_ran or station.starts >= _STARTS:
            return False
        self.cluster.kill(station.actor)
        logger.info("shard %d never ran: %s; it is started elsewhere", station.share.shard, error)
        station.generation += 1
        station.begin_again(self._actor(station))
        return True

    def replace(self, station: Station, legacy: Legacy) -> None:
        """Starts a successor, wherever there is room; commands wait for it."""
        station.generation += 1
        station.restarts += 1
        self._start(station, legacy)

    def stop_rollouts(self, number: int, stations: Iterable[Station]) -> None:
        """Makes shards drop the rollouts of this call of `rollouts`, a running one at its next step."""
        for station in stations:
            if station.error is None and station.actor is not None:
                station.actor.stop_rollouts.remote(number)

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
        open_ones = [station for station in self.stations if station.error is None and self.cluster.connection.is_open]
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
                self.cluster.kill(station.actor)
            station.forget()
        self.cluster.give_back()


def _pickled(env_fns: Sequence[EnvFn], shares: Shares) -> list[bytes]:
    """The factories of each shard."""
    return [by_value.dumps(list(env_fns[shares.factories_of(share)])) for share in shares.each]


_ON_THE_WAY = 2.0  # seconds that an answer may take beyond what a shard was given
_STARTS = 8  # of a shard that never runs: then it is no matter of machines that have just died
