"""Everything remuda raises.

    RemudaError
    ├── ClosedError            you closed the pool
    ├── BrokenPoolError        it died under you: an earlier fault left envs that cannot answer
    ├── StateError             asked at the wrong moment: a step before the reset, an env in flight
    ├── InvalidActionError     wrong number, shape, dtype or range of actions; nothing was sent
    ├── InvalidEnvError        a factory that gave no env
    ├── SpaceMismatchError     the envs' spaces disagree
    ├── EnvError               an env raised, or returned what it must not
    ├── WorkerDiedError        a worker process died
    │   ├── EnvTimeoutError    ... because an env missed a deadline
    │   ├── CorruptReplyError  ... because what it said made no sense
    │   └── ShardDiedError     ... or the Ray actor that it belonged to, maybe with its machine
    ├── RestartLimitError      an env failed too often to go on restarting it
    ├── StartTimeoutError      the envs were not built in time
    ├── RecordError            a file that is no crash record, or a replay that cannot be
    ├── TraceError             a file that is no trace, or traces that cannot be merged
    ├── CloseTimeoutError      a worker would not die
    ├── ResourceError          the system allows too few descriptors or processes
    └── MissingFrameworkError  an optional package is not installed: a face's framework, torch, Ray, rich, Jinja2, ...

The classes that are mistakes of the caller also derive from the built-in exception one would expect
(`ValueError`, `TypeError`, `RuntimeError`); those of time, of the system and of what is installed too (`TimeoutError`,
`OSError`, `ModuleNotFoundError`).
"""

from __future__ import annotations

import re
import reprlib
import shlex
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from remuda._wording import describe_exitcode, listed, name_some

# Of an object in its `repr`, maybe shortened by `reprlib`.
_ADDRESS = re.compile(r"(?:0x|\.\.\.x?)[0-9a-f]{4,}")


class RemudaError(Exception):
    """The base of all errors of remuda. They can be pickled; their causes stay behind."""

    def __reduce__(self) -> Any:
        return _restore, (type(self), self.args, self.__dict__)


def _restore(kind: type[RemudaError], args: tuple[Any, ...], state: dict[str, Any]) -> RemudaError:
    """Past the constructors, each of which has arguments of its own."""
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class ClosedError(RemudaError):
    """The pool was closed; nothing can be asked of it any more."""


class BrokenPoolError(RemudaError):
    """Envs were lost to an earlier fault; the pool can only be closed."""


class StateError(RemudaError, RuntimeError):
    """The call does not fit the moment: nothing was sent, and the pool is as it was."""


class InvalidActionError(RemudaError, ValueError):
    """The actions do not fit the action space: nothing was sent, and the pool is as it was."""


class InvalidEnvError(RemudaError, TypeError):
    """A factory returned something that is not an env of its own, or an env of which `extras` cannot be computed."""


class SpaceMismatchError(RemudaError, ValueError):
    """The envs of a pool must agree in structure, shape and dtype of their spaces.

    Attributes:
        kind: Which: "observation" or "action".
        spaces: Of each env, as gymnasium.Space; with vector envs of each slot.
    """

    def __init__(self, message: str, kind: str, spaces: Sequence[Any]) -> None:
        super().__init__(message)
        self.kind, self.spaces = kind, tuple(spaces)


class StartTimeoutError(RemudaError, TimeoutError):
    """A worker did not finish building its envs within `start_timeout`."""


class ResourceError(RemudaError, OSError):
    """The system allows this process too few file descriptors or processes: the pool was not made.

    `errno` is EMFILE or EAGAIN, as in the OSError that one would have met on the way.
    """


class MissingFrameworkError(RemudaError, ModuleNotFoundError):
    """A feature needs an optional package that is not installed. The message has the command that installs it.

    Attributes:
        name: The module that was not found.
    """

    def __reduce__(self) -> Any:
        return _restore_import_error, (type(self), self.args, self.name)


def _restore_import_error(
    kind: type[MissingFrameworkError], args: tuple[Any, ...], name: str | None
) -> MissingFrameworkError:
    return kind(*args, name=name)


class RecordError(RemudaError, ValueError):
    """A file is no crash record, or there is not what is needed to replay it."""


class TraceError(RemudaError, ValueError):
    """A file is no trace, or traces have no time in common and so cannot be merged."""


class CloseTimeoutError(RemudaError, TimeoutError):
    """Processes were there some time after their SIGKILL: they hang in a system call, or are frozen.

    Everything else was released, and the pool is closed. They end as soon as the kernel lets go of them.

    Attributes:
        pids: Theirs, of workers and of what workers have started.
        workers: The indexes of the workers among them.
    """

    def __init__(self, *, pids: Sequence[int], workers: Sequence[int]) -> None:
        self.pids, self.workers = tuple(pids), tuple(workers)
        super().__init__(
            f"expected all processes of the pool to end when killed, got {len(self.pids)} that did not: "
            f"pids {listed(self.pids)} (workers {listed(self.workers)}); everything else was released. They hang in "
            "a system call (a network file system, a disk, a driver) or are frozen: see `ps -o pid,stat,wchan,cmd -p "
            f"{','.join(map(str, self.pids))}`"
        )


class RemoteTraceback(Exception):
    """The traceback of a worker, as text: the cause of an exception that came from there."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"\n\n{self.text}"


@dataclass(frozen=True)
class EnvProgress:
    """How far an env had come.

    Attributes:
        env_id: The env.
        episode: 0 for the one that began with its first reset; None before that.
        step: Steps begun in the episode.
        seed: Of the last reset that was given one; None when none was. With "per_episode" seeding every reset is.
        resets_since_seed: Resets after that one: the episode continues its random numbers.
        action: The last one sent to it in a step; None before the first.
    """

    env_id: int
    episode: int | None
    step: int
    seed: int | None
    resets_since_seed: int
    action: Any = field(default=None, compare=False)

    def __str__(self) -> str:
        if self.episode is None:
            return "before its first reset"
        later = f" and {self.resets_since_seed} resets" if self.resets_since_seed else ""
        seed = "no seed" if self.seed is None else f"seed {self.seed}{later}"
        action = "" if self.action is None else f", last action {_brief(self.action)}"
        return f"episode {self.episode}, step {self.step}, {seed}{action}"


def _brief(action: Any) -> str:
    """A NumPy scalar as its number; of what is long the beginning."""
    return reprlib.repr(action.item() if hasattr(action, "item") and not getattr(action, "shape", ()) else action)


@dataclass(frozen=True)
class Failure:
    """One env's exception.

    Attributes:
        env_id: The env, or None when it concerns its whole worker.
        worker: Index of the worker that hosts it.
        operation: "build", "reset", "step", "observe", "call" or "close".
        exception: The original exception, its `__cause__` the remote traceback; None when it could not be
            pickled there or unpickled here.
        type_name: The exception's class, qualified.
        message: Its text.
        traceback: The worker's traceback, as text.
        where: How far the env had come; None where that says nothing.
        record: The crash record; None where none was written (`record=`).
        shared: Whether it is the exception of a vector env, and told in full of the first of its envs.
    """

    env_id: int | None
    worker: int
    operation: str
    exception: BaseException | None
    type_name: str
    message: str
    traceback: str
    where: EnvProgress | None = None
    record: Path | None = field(default=None, compare=False)
    shared: bool = False

    @property
    def kind(self) -> tuple[str, str, str]:
        """What failures of many envs have in common: all that is told but whose they are and where an object lies."""
        return self.operation, self.type_name, _ADDRESS.sub("", self.message)

    def __str__(self) -> str:
        return _told_as_one([self])


def _recorded(record: Path | None) -> str:
    return "" if record is None else f"; `remuda replay --trust {shlex.quote(str(record))}`"


class EnvError(RemudaError):
    """An env raised, or returned something invalid, in its worker.

    `__cause__` is the first failure's original exception, or its traceback as text.

    Attributes:
        failures: One entry for each env that failed, in the order of their env ids.
    """

    failures: tuple[Failure, ...]

    def __init__(self, failures: Sequence[Failure]) -> None:
        self.failures = tuple(sorted(failures, key=lambda f: -1 if f.env_id is None else f.env_id))
        super().__init__(_told_together(self.failures))
        first = self.failures[0]
        self.__cause__ = RemoteTraceback(first.traceback) if first.exception is None else first.exception

    @property
    def record(self) -> Path | None:
        """The crash record of the first failure that has one."""
        return next((failure.record for failure in self.failures if failure.record is not None), None)

    @property
    def env_ids(self) -> tuple[int, ...]:
        """Of `failures`: the envs that raised, in their order."""
        return tuple(f.env_id for f in self.failures if f.env_id is not None)


def _told_together(failures: Sequence[Failure]) -> str:
    """One text for each exception, be it that of many envs: a vector env may have a thousand."""
    alike: dict[Any, list[Failure]] = {}
    for failure in failures:
        if not failure.shared:
            alike.setdefault((failure.kind, failure.env_id is None), []).append(failure)
    texts = [_told_as_one(some) for some in alike.values()]
    if shared := [failure.env_id for failure in failures if failure.shared and failure.env_id is not None]:
        texts.append(f"and with them, of the same vector envs, {name_some('env', shared)}")
    return "; ".join(texts)


def _told_as_one(alike: Sequence[Failure]) -> str:
    """Failures that differ in their envs alone. How far the env had come, and its crash record, are the first one's."""
    first = alike[0]
    who = "all envs" if first.env_id is None else name_some("env", [f.env_id for f in alike if f.env_id is not None])
    workers = name_some("worker", [failure.worker for failure in alike])
    whose = f"env {first.env_id}: " if len(alike) > 1 else ""
    at = f" ({whose}{first.where})" if first.where is not None else ""
    records = [failure.record for failure in alike if failure.record is not None]
    recorded = _recorded(records[0]) if records else ""
    recorded += f" (and {len(records) - 1} more)" if len(records) > 1 else ""
    return f"{who} ({workers}) raised {first.type_name} in {first.operation}: {first.message}{at}{recorded}"


@dataclass(frozen=True)
class MemoryVerdict:
    """Whether memory had run out when a worker was killed.

    Attributes:
        out_of_memory: None when that is left open.
        evidence: The same for people.
    """

    out_of_memory: bool | None
    evidence: str


class WorkerDiedError(RemudaError):
    """A worker process ended without being asked to.

    Attributes:
        worker: Its index.
        pid: Its process id.
        exitcode: As `subprocess` has it: negative for a signal; None when it could not be learned.
        env_ids: The envs it hosted; all of them are lost.
        operation: What it was doing: "build", "reset", "step", "call", "close" or "nothing".
        out_of_memory: Where SIGKILL ended it, whether the kernel did that for want of memory, as far as its counters
            show; None when they leave it open, and for other ends.
        output: The last lines it wrote to stdout and stderr; empty where they were not captured (`worker_output=`).
        where: Which env it was doing that to, and how far that had come; None when that is not known.
        record: The crash record of that env; None where none was written (`record=`).
        others: Further errors that came up at the same time: deaths, and an EnvError for the envs that raised.
    """

    def __init__(
        self,
        *,
        worker: int,
        pid: int | None,
        exitcode: int | None,
        env_ids: Sequence[int],
        operation: str,
        verdict: MemoryVerdict | None = None,
        output: str = "",
        where: EnvProgress | None = None,
    ) -> None:
        self.worker, self.pid, self.exitcode = worker, pid, exitcode
        self.env_ids = tuple(env_ids)
        self.operation, self.where, self.output = operation, where, output
        self.out_of_memory = None if verdict is None else verdict.out_of_memory
        self.record: Path | None = None
        self.others: tuple[RemudaError, ...] = ()
        self._verdict = verdict
        super().__init__()

    def reason(self) -> str:
        """The cause of its death, in a few words."""
        if self._verdict is not None:
            return f"killed by SIGKILL: {self._verdict.evidence}"
        return describe_exitcode(self.exitcode)

    def __str__(self) -> str:
        envs = name_some("env", self.env_ids)
        doing = "idle" if self.operation == "nothing" else f"in {self.operation}"
        at = f" (env {self.where.env_id}, {self.where})" if self.where is not None else ""
        more = "".join(f"; and {other}" for other in self.others)
        report = f"worker {self.worker} (pid {self.pid}, {envs}) died while {doing}{at}: {self.reason()}"
        return f"{report}{_recorded(self.record)}{more}{self.details()}"

    def details(self) -> str:
        """What there is more to be told, in lines of its own; else nothing."""
        return "\n  its last output:\n" + textwrap.indent(self.output, "    ") if self.output else ""


class EnvTimeoutError(WorkerDiedError, TimeoutError):
    """An env missed a deadline, and its worker was killed.

    It has all that `WorkerDiedError` has, and more:

    Attributes:
        deadline: The name of the limit: "step_timeout", "reset_timeout" or "call_timeout"; "start_timeout" of an env
            that was built anew.
        limit: Its seconds.
        stack: The Python calls that the worker was in before it was killed, the last first, a line for each; empty
            where it did not answer.
    """

    deadline: str
    limit: float
    stack: str = ""

    def reason(self) -> str:
        """The limit that it missed."""
        return f"it took longer than {self.deadline}={self.limit} s, and was killed"

    def details(self) -> str:
        """What there is more to be told, in lines of its own: where it was, and what it had written."""
        where = f"\n  it was in, the last call first:\n{textwrap.indent(self.stack, '    ')}" if self.stack else ""
        return where + super().details()


class CorruptReplyError(WorkerDiedError):
    """A worker wrote what no worker of ours would, and was killed: native code of an env wrote over our memory, or
    something in it reads or writes our socket."""

    def reason(self) -> str:
        """The cause of its death."""
        return "what it wrote made no sense, and it was killed"


class ShardDiedError(WorkerDiedError):
    """A shard of a pool on a Ray cluster is gone: its actor died, or the machine that it was on.

    It has all that `WorkerDiedError` has; `worker` is the index of the first of its workers, -1 where it died before
    it was known how many come before that. And more:

    Attributes:
        shard: Its index.
        node: The machine that it was on, as Ray names it.
    """

    def __init__(
        self, *, shard: int, node: str, reason: str, worker: int, env_ids: Sequence[int], operation: str
    ) -> None:
        super().__init__(worker=worker, pid=None, exitcode=None, env_ids=env_ids, operation=operation)
        self.shard, self.node, self._reason = shard, node, reason

    def reason(self) -> str:
        """The cause of its death, as Ray has it."""
        return self._reason

    def __str__(self) -> str:
        envs, doing = name_some("env", self.env_ids), "idle" if self.operation == "nothing" else f"in {self.operation}"
        more = "".join(f"; and {other}" for other in self.others)
        return f"shard {self.shard} ({envs}, on node {self.node}) died while {doing}: {self.reason()}{more}"


@dataclass(frozen=True)
class Fault:
    """Why an env had to be restarted.

    Attributes:
        env_id: The env.
        worker: The index of its worker.
        kind: "death", "timeout", "exception" or "corrupt".
        operation: What the worker was doing: "build", "reset", "step", "call" or "nothing".
        where: How far the env had come.
        error: A WorkerDiedError (or one of its kinds), or an EnvError; its `__cause__` is the remote traceback.
        shared: Whether another env of the same worker was the reason.
        shard, node: On a Ray cluster, the index of the env's shard, and the machine that it was on; else None.
    """

    env_id: int
    worker: int
    kind: Literal["death", "timeout", "exception", "corrupt"]
    operation: str
    where: EnvProgress
    error: RemudaError = field(compare=False)
    shared: bool = False
    shard: int | None = None
    node: str | None = None

    @property
    def record(self) -> Path | None:
        """The crash record of the env that was the reason; None where none was written (`record=`)."""
        return self.error.record if isinstance(self.error, (WorkerDiedError, EnvError)) else None

    def __str__(self) -> str:
        told = f"{self.error}" if not self.shared else f"env {self.env_id} went with its worker: {self.error}"
        if self.shard is None or isinstance(self.error, ShardDiedError):
            return told
        return f"{told} (shard {self.shard}, node {self.node})"


class RestartLimitError(RemudaError):
    """Envs failed more often than the pool's FaultPolicy bears.

    `__cause__` is the error of the last fault.

    Attributes:
        faults: All faults within the period, oldest first.
    """

    def __init__(self, limit: str, faults: Sequence[Fault]) -> None:
        self.limit, self.faults = limit, tuple(faults)
        history = "".join(f"\n  {number}. {fault}" for number, fault in enumerate(_told_once(self.faults), 1))
        super().__init__(f"more faults than {limit} allows:{history}")
        if self.faults:
            self.__cause__ = self.faults[-1].error


def _told_once(faults: Sequence[Fault]) -> list[Fault]:
    """Of those with the same error, envs that went with their worker, the one that was the reason."""
    reasons: dict[int, Fault] = {}
    for fault in faults:
        if id(fault.error) not in reasons or not fault.shared:
            reasons[id(fault.error)] = fault
    return list(reasons.values())
