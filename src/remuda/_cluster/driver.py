"""Sends commands to shards and settles what comes of them: results, errors, and the deaths of shards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from remuda import _core
from remuda._cluster import actors
from remuda._cluster.fleet import Fleet
from remuda._cluster.ledger import Ledger
from remuda._cluster.options import ClusterOptions
from remuda._cluster.packing import pack_step, unpack_reply
from remuda._cluster.publisher import Publisher
from remuda._cluster.replies import Legacy, Reply
from remuda._cluster.rows import TRUNCATED, Array, Rows, ended_rows
from remuda._cluster.shares import Portion, Shares
from remuda._cluster.standing import Standing
from remuda._cluster.station import Sent, Station
from remuda._engine.running.infos import PickledRows, RawRow
from remuda._relay.log import logger
from remuda._wire.codec import SpaceCodec
from remuda.errors import EnvError, Fault, RemudaError, RestartLimitError, WorkerDiedError

Ids = npt.NDArray[np.int64]

_BEGINNINGS = ("reset", "restore")  # what was pending of an episode is over with these, told or not


@dataclass
class Command:
    """A command that a shard was sent, and what is needed to send it once more.

    Attributes:
        station: Where.
        kind: "step", "reset", "restore" or "observe": the name of the shard's method.
        env_ids: Whose results come of it.
        arguments: The method's, but for the ids.
        ends: Where a reset is to complete the row of a step, with same-step autoreset: why the episodes ended.
    """

    station: Station
    kind: str
    env_ids: Ids
    arguments: tuple[Any, ...]
    ends: dict[int, Fault | None] | None = None


class Mail:
    """The commands of a part of the pool that are under way, and the results that nobody has taken yet.

    Attributes:
        commands: Under way, by the message that they are.
        rows: That nobody has taken yet.
        errors: That nobody was told.
    """

    def __init__(self) -> None:
        self.commands: dict[Sent, Command] = {}
        self.rows: list[Rows] = []
        self.errors: list[RemudaError] = []

    @property
    def ready(self) -> int:
        return sum(map(len, self.rows))

    @property
    def pending(self) -> int:
        return self.ready + sum(len(command.env_ids) for command in self.commands.values())


class Driver:
    """Sends commands to shards and settles what comes of them.

    Attributes:
        fleet, shares: The shards, and which has which envs.
        ledger: What is known of each env.
        codec: Of observations.
        standing: What envs were told for good.
        publisher: Of policies.
    """

    def __init__(
        self, fleet: Fleet, shares: Shares, ledger: Ledger, codec: SpaceCodec, options: ClusterOptions
    ) -> None:
        self.fleet, self.shares, self.ledger, self.codec = fleet, shares, ledger, codec
        self.standing, self.publisher = Standing(), Publisher()
        self._mode = options.settings.mode
        self._told: dict[int, dict[int, Fault]] = {}  # by shard: the faults of its latest death, by env

    # -- sending -----------------------------------------------------------------------------------------

    def send(
        self,
        mail: Mail,
        kind: str,
        env_ids: Ids,
        arguments: Sequence[Any],
        portions: Sequence[Portion] | None = None,
    ) -> None:
        """Sends each shard its part.

        Args:
            mail: What is to come of it, and where.
            kind: As a `Command` has it.
            env_ids: The envs.
            arguments: As `_some` takes them apart.
            portions: What `Shares.divide` makes of the envs, where it is known: they are the same in each step.
        """
        self.ledger.in_flight[env_ids] = True
        sent = env_ids
        if kind == "observe":
            env_ids = self._repeat_ended(mail, env_ids)
        if self.ledger.owed and kind not in _BEGINNINGS:
            env_ids, arguments = self._answer_owed(mail, env_ids, arguments)
        elif self.ledger.owed:
            for env in env_ids.tolist():
                self.ledger.owed.pop(env, None)
        if portions is None or env_ids is not sent:
            portions = self.shares.divide(env_ids)
        for one in portions:
            whole = len(one.where) == len(env_ids)
            its = arguments if whole else [_some(argument, one.where) for argument in arguments]
            self._post(mail, Command(self.fleet.stations[one.share.shard], kind, one.env_ids, tuple(its)))

    def _post(self, mail: Mail, command: Command) -> None:
        ids = command.station.share.local(command.env_ids)
        if command.kind == "step" and not command.arguments[1]:
            sent = command.station.send("step_packed", pack_step(command.arguments[0], ids))
        else:
            sent = command.station.send(command.kind, *command.arguments, ids)
        mail.commands[sent] = command

    def _answer_owed(self, mail: Mail, env_ids: Ids, arguments: Sequence[Any]) -> tuple[Ids, Sequence[Any]]:
        """Tells of episodes that were cut off while their envs were idle; what is left is to be sent."""
        owing = np.array([env in self.ledger.owed for env in env_ids.tolist()], bool)
        ends = {env: self.ledger.owed.pop(env) for env in env_ids[owing].tolist()}
        for portion in self.shares.divide(env_ids[owing]):
            self._end_episodes(mail, self.fleet.stations[portion.share.shard], portion.env_ids, ends)
        rest = np.flatnonzero(~owing)
        return env_ids[rest], [_some(argument, rest) for argument in arguments]

    def _repeat_ended(self, mail: Mail, env_ids: Ids) -> Ids:
        """Shows the ends of episodes once more whose envs were built anew since; what is left is to be sent."""
        ended = self.ledger.fresh[env_ids] & self.ledger.over[env_ids]
        if not ended.any():
            return env_ids
        self._repeat(mail, env_ids[ended])
        return env_ids[~ended]

    # -- receiving ---------------------------------------------------------------------------------------

    def collect_all(self, mail: Mail) -> None:
        """Waits for the answers to all commands, one after another, and takes each when it is there."""
        for sent in list(mail.commands):
            self.collect(mail, sent)

    def collect(self, mail: Mail, sent: Sent) -> None:
        """Takes the answer to a command; waits for it where it has not come."""
        command = mail.commands[sent]
        reply, failure = self._answer(sent)
        if failure is not None and self.fleet.starts_elsewhere(sent, failure):
            return None
        told = None if failure is None else self.died(sent, failure, command.kind)
        del mail.commands[sent]
        if failure is not None:
            return self._settle(mail, command, told)
        assert reply is not None
        self._take(mail, command, reply)
        reply.log_faults()

    def _answer(self, sent: Sent) -> tuple[Reply | None, Exception | None]:
        """What has come; or why nothing will, since the shard is gone, or could not build its envs anew."""
        try:
            reply = unpack_reply(actors.get(sent.ref))
        except actors.Lost as error:
            return None, error
        return reply, self.fleet.note_rebuilt(sent)

    def _take(self, mail: Mail, command: Command, reply: Reply) -> None:
        rows = reply.rows
        for error in reply.errors:
            self._note_error(error)
            mail.errors.append(error)
        if rows is not None and len(rows):
            rows = rows if command.ends is None else self._completed(rows, command.ends)
            self.ledger.note(rows, command.kind if command.ends is None else "step")
            mail.rows.append(rows)
        if reply.errors:
            without = command.env_ids if rows is None else np.setdiff1d(command.env_ids, rows.env_ids)
            self.ledger.in_flight[without] = False

    def _note_error(self, error: RemudaError) -> None:
        if isinstance(error, EnvError):
            self.ledger.must_reset[list(error.env_ids)] = True
        elif isinstance(error, WorkerDiedError):
            self.ledger.lost.update(dict.fromkeys(error.env_ids, error))
            for other in error.others:
                self._note_error(other)
        elif isinstance(error, RestartLimitError) and error.faults:
            self.ledger.lost[error.faults[-1].env_id] = error

    def forget(self, mail: Mail) -> None:
        """Drops what has come."""
        for rows in mail.rows:
            self.ledger.in_flight[rows.env_ids] = False
        mail.rows.clear()
        mail.errors.clear()

    # -- deaths of shards --------------------------------------------------------------------------------

    def died(self, sent: Sent, error: Exception, operation: str) -> RemudaError | None:
        """An actor is gone. Who notices it first has it replaced; the error, where nobody comes in its place."""
        station = sent.station
        if station.error is not None or sent.generation != station.generation:
            return station.error
        death = self.fleet.note_death(station, error, operation)
        try:
            faults, delay = self.fleet.restarts.allow(station, death, self.ledger.where)
        except RemudaError as given_up:
            station.error = given_up
            self.ledger.lost.update(dict.fromkeys(station.share.env_ids, given_up))
            return given_up
        self._restart(station, faults, delay)
        logger.warning("%s; it is built anew where there is room", death, extra={"shard": death.shard})
        return None

    def _restart(self, station: Station, faults: dict[int, Fault], delay: float) -> None:
        share, ledger = station.share, self.ledger
        self._told[share.shard] = faults
        cut = [env for env in share.env_ids if not ledger.in_flight[env] and ledger.is_in_episode(env)]
        ledger.owed.update({env: faults[env] for env in cut})
        ledger.note_anew(share.env_ids)
        options, standing = self.standing.of(share)
        seeds, first_worker = ledger.legacy_seeds(share.env_ids), self.fleet.first_worker(station)
        self.fleet.replace(station, Legacy(seeds, options, standing, delay, first_worker))

    def _settle(self, mail: Mail, command: Command, error: RemudaError | None) -> None:
        """A command whose shard has died. `error`: where nobody comes in its place."""
        ids, station = command.env_ids, command.station
        if error is not None:
            self.ledger.in_flight[ids] = False
            return None if error in mail.errors else mail.errors.append(error)
        faults = self._told[station.share.shard]
        if command.kind in _BEGINNINGS:
            return self._post(mail, command)
        over = self.ledger.over[ids]
        if command.kind == "observe" and over.any():
            self._repeat(mail, ids[over])
        elif over.any() and self._mode.in_next_step:
            self._post(mail, _part_of(command, np.flatnonzero(over)))
        elif over.any():  # stepped after its end, which is the env's affair: it tells of an end once more
            over = np.zeros(len(ids), bool)
        if not over.all():
            self._end_episodes(mail, station, ids[~over], faults)

    def _end_episodes(self, mail: Mail, station: Station, ids: Ids, faults: Mapping[int, Fault | None]) -> None:
        if self._mode.in_same_step:
            ends = {env: faults[env] for env in ids.tolist()}
            return self._post(mail, Command(station, "reset", ids, (None, None), ends))
        extras: dict[int, RawRow] = {
            row: (0, (self._objects(env), _info_of_end(faults[env]), None, None), None)
            for row, env in enumerate(ids.tolist())
        }
        self._made(mail, ended_rows(ids, self._last(ids), extras))

    def _repeat(self, mail: Mail, ids: Ids) -> None:
        """The last observations once more, of episodes that are over."""
        extras: dict[int, RawRow] = {
            row: (0, (self._objects(env), {}, None, None), None) for row, env in enumerate(ids.tolist())
        }
        rows = ended_rows(ids, self._last(ids), extras)
        rows.columns[TRUNCATED] = np.zeros(len(ids), bool)
        mail.rows.append(rows)

    def _made(self, mail: Mail, rows: Rows) -> None:
        self.ledger.note(rows, "step")
        mail.rows.append(rows)

    def _completed(self, rows: Rows, ends: Mapping[int, Fault | None]) -> Rows:
        """First observations of new episodes, in rows that tell of the end of others."""
        ids, extras = rows.env_ids, dict(rows.extras or {})
        finals = self._last(ids)[: len(self.codec.columns)]
        for row, env in enumerate(ids.tolist()):
            flags, parts, _ = extras.get(row, (0, None, None))
            obs = None
            if self.codec.num_objects:
                obs = self.codec.build_one([final[row, ...] for final in finals], self._objects(env))
            extras[row] = flags | _core.HAS_FINAL, parts, (obs, _info_of_end(ends[env]))
        columns = [*rows.columns]
        columns[TRUNCATED] = np.ones(len(ids), bool)
        return replace(rows, columns=columns, finals=finals, extras=extras)

    def _last(self, ids: Ids) -> list[Array]:
        assert self.ledger.last is not None  # where nobody restarts, nobody asks
        return [kept[ids] for kept in self.ledger.last]

    def _objects(self, env: int) -> list[Any]:
        """The parts of an env's last observation that have no column."""
        if not self.codec.num_objects:
            return []
        return PickledRows({0: self.ledger.last_extras[env]}).objects(0)


def _info_of_end(fault: Fault | None) -> dict[str, Any]:
    """Of an episode that was cut off. None: the pool was resized."""
    return {"resized": True} if fault is None else {"fault": fault}


def _part_of(command: Command, where: Ids) -> Command:
    arguments = tuple(_some(argument, where) for argument in command.arguments)
    return replace(command, env_ids=command.env_ids[where], arguments=arguments)


def _some(argument: Any, where: Ids) -> Any:
    """Those of an argument that belong to these of the envs. It is a tuple of arrays, a list of one item each, None."""
    if isinstance(argument, tuple):
        return tuple(array[where] for array in argument)
    return None if argument is None else [argument[i] for i in where.tolist()]
