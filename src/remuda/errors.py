"""All errors that remuda raises.

    RemudaError
    ├── ClosedError            you closed the pool
    ├── BrokenPoolError        the call needs an env that an earlier fault has ended
    ├── StateError             a call at the wrong time: a step before the reset, an env in flight
    ├── InvalidActionError     wrong number, shape, dtype or range of actions; nothing was sent
    ├── InvalidEnvError        a factory did not return an env
    ├── SpaceMismatchError     the envs' spaces disagree
    ├── EnvError               an env raised, or returned something invalid
    ├── WorkerDiedError        a worker process died
    │   ├── EnvTimeoutError    ... because an env missed a deadline
    │   ├── CorruptReplyError  ... because its messages were invalid
    │   └── ShardDiedError     ... with its Ray actor, perhaps with its machine
    ├── RestartLimitError      an env failed more often than the policy allows
    ├── StartTimeoutError      the envs were not built in time
    ├── RecordError            a file is not a crash record, or cannot be replayed
    ├── CloseTimeoutError      a worker did not end when it was killed
    ├── ResourceError          the system allows too few descriptors or processes
    └── MissingFrameworkError  an optional package is not installed: a face's framework, torch, Ray, rich, ...

Most classes also derive from a built-in exception: mistakes of the caller from `ValueError`, `TypeError` or
`RuntimeError`, the others from `TimeoutError`, `OSError` or `ModuleNotFoundError`.
"""

from __future__ import annotations

import functools
import pickle
import re
import reprlib
import shlex
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from remuda._wording import describe_exitcode, listed, name_some

# Matches the address of an object in its `repr`, even if `reprlib` has shortened the address.
_ADDRESS = re.compile(r"(?:0x|\.\.\.x?)[0-9a-f]{4,}")


class RemudaError(Exception):
    """The base of all errors of remuda. They can be pickled, without their causes (those of EnvError excepted)."""

    def __reduce__(self) -> Any:
        return _restore, (type(self), self.args, self.__dict__)


def _restore(kind: type[RemudaError], args: tuple[Any, ...], state: dict[str, Any]) -> RemudaError:
    """Unpickles an error without calling its constructor, because constructors have different arguments."""
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class ClosedError(RemudaError):
    """The pool is closed and can no longer be used."""


class BrokenPoolError(RemudaError):
    """The call needs an env that an earlier fault has ended; calls for other envs still work. Or Ray was shut down."""


class StateError(RemudaError, RuntimeError):
    """The pool's state does not allow the call now. Nothing was sent, and the pool is unchanged."""


class InvalidActionError(RemudaError, ValueError):
    """The actions do not fit the action space. Nothing was sent, and the pool is unchanged."""


class InvalidEnvError(RemudaError, TypeError):
    """A factory did not return a new env, or `extras` cannot be computed for its env."""


class SpaceMismatchError(RemudaError, ValueError):
    """The envs' spaces differ in structure, shape or dtype.

    Attributes:
        kind: "observation" or "action".
        spaces: The gymnasium.Space of each env; with vector envs, of each slot.
    """

    def __init__(self, message: str, kind: str, spaces: Sequence[Any]) -> None:
        super().__init__(message)
        self.kind, self.spaces = kind, tuple(spaces)


class StartTimeoutError(RemudaError, TimeoutError):
    """A worker did not finish building its envs within `start_timeout`, or `ray.init` failed."""


class ResourceError(RemudaError, OSError):
    """The system allows this process too little for a pool: descriptors, processes, bytes of files or of variables.

    `errno` is EMFILE, EAGAIN, EFBIG or E2BIG, as in the system's own error.
    """


class MissingFrameworkError(RemudaError, ModuleNotFoundError):
    """A feature needs an optional package that is not installed. The message has the command that installs it.

    Attributes:
        name: The module that was not found.
    """

    def __reduce__(self) -> Any:
        return functools.partial(type(self), *self.args, name=self.name), ()


class RecordError(RemudaError, ValueError):
    """A file is not a crash record, or lacks data that its replay needs."""


class CloseTimeoutError(RemudaError, TimeoutError):
    """Some processes of the pool still existed a while after SIGKILL: they hang in a system call, or are frozen.

    The pool is closed, and everything else was released. The processes end when their system calls return or they are
    thawed.

    Attributes:
        pids: The process ids, of workers and of processes that workers have started.
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
    """The traceback of a worker as text: the cause of an exception from that worker."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"\n\n{self.text}"


class PickledException:
    """An exception of a worker. It stays pickled until it is read, because loading it may run code of the program."""

    def __init__(self, pickled: bytes, traceback: str) -> None:
        """`traceback`: the worker's traceback, which becomes the exception's cause."""
        self.pickled, self._traceback = pickled, traceback

    def load(self) -> BaseException | None:
        """Returns the exception, the same one at each call. Returns None if it cannot be loaded in this process."""
        if "_loaded" not in self.__dict__:
            # Without a lock, because code of the program runs here. If two threads load it, one exception is kept.
            self.__dict__.setdefault("_loaded", self._load())
        return self.__dict__["_loaded"]  # type: ignore[no-any-return]

    def _load(self) -> BaseException | None:
        try:
            exception: BaseException = pickle.loads(self.pickled)
        except Exception:  # for example, the exception's class cannot be imported here
            return None
        exception.__cause__ = RemoteTraceback(self._traceback)
        return exception

    def __reduce__(self) -> Any:
        return PickledException, (self.pickled, self._traceback)


@dataclass(frozen=True)
class EnvProgress:
    """The episode and step that an env has reached.

    Attributes:
        env_id: The env.
        episode: The number of the episode, 0 for the one that its first reset began; None before that.
        step: The number of steps begun in the episode.
        seed: The seed of its last reset with one; None before that. With "per_episode" seeding every reset has one.
        resets_since_seed: The number of resets after that one, which continue its random numbers.
        action: The action of its last step; None before the first.
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
    """Returns an action as a short text: a NumPy scalar as a number, a long value without its middle."""
    return reprlib.repr(action.item() if hasattr(action, "item") and not getattr(action, "shape", ()) else action)


@dataclass(frozen=True)
class Failure:
    """The exception of one env.

    Attributes:
        env_id: The env; None if the exception concerns its whole worker.
        worker: The index of the worker that hosts it.
        operation: "build", "reset", "step", "observe", "call" or "close".
        exception: The original exception, with the remote traceback as its `__cause__`; None if it could not be
            pickled in the worker or unpickled here. It is unpickled when it is first read.
        type_name: The exception's class, qualified.
        message: The exception's text.
        traceback: The worker's traceback, as text.
        where: The progress of the env; None if it is not reported.
        record: The crash record; None if none was written (`crash_dir=`).
        shared: Whether it is the exception of a vector env, which the failure of its first env reports in full.
    """

    env_id: int | None
    worker: int
    operation: str
    _exception: BaseException | PickledException | None = field(compare=False, repr=False)
    type_name: str
    message: str
    traceback: str
    where: EnvProgress | None = None
    record: Path | None = field(default=None, compare=False)
    shared: bool = False

    @property
    def exception(self) -> BaseException | None:
        """The original exception; see above."""
        original = self._exception
        return original.load() if isinstance(original, PickledException) else original

    @property
    def kind(self) -> tuple[str, str, str]:
        """A key that is equal for like failures of several envs: it omits the env and the addresses of objects."""
        return self.operation, self.type_name, _ADDRESS.sub("", self.message)

    def __str__(self) -> str:
        return _as_one_text([self])


def _recorded(record: Path | None) -> str:
    return "" if record is None else f"; `remuda replay --trust {shlex.quote(str(record))}`"


class EnvError(RemudaError):
    """An env raised an exception, or returned an invalid value, in its worker.

    `__cause__` is the first failure's original exception, or its traceback as text.

    Attributes:
        failures: One entry for each env that failed, in the order of their env ids.
    """

    failures: tuple[Failure, ...]

    def __init__(self, failures: Sequence[Failure], remedy: str = "") -> None:
        self.failures = tuple(sorted(failures, key=lambda f: -1 if f.env_id is None else f.env_id))
        super().__init__(_as_text(self.failures) + remedy)

    @property
    def __cause__(self) -> BaseException | None:
        """The cause, which is made when it is first read, because it may have to be unpickled.

        Python prints only causes that exist when the error is printed, so code that raises an EnvError reads it first.
        """
        if super().__cause__ is None and not self.__suppress_context__:  # no cause was set, and not `from None`
            self.__cause__ = _cause_of(self.failures[0])
        return super().__cause__

    @__cause__.setter
    def __cause__(self, cause: BaseException | None) -> None:
        BaseException.__cause__.__set__(self, cause)  # type: ignore[union-attr]

    @property
    def record(self) -> Path | None:
        """The crash record of the first failure that has one."""
        return next((failure.record for failure in self.failures if failure.record is not None), None)

    @property
    def env_ids(self) -> tuple[int, ...]:
        """The ids of the envs in `failures`, in the same order."""
        return tuple(f.env_id for f in self.failures if f.env_id is not None)


def _cause_of(failure: Failure) -> BaseException:
    exception = failure.exception
    return RemoteTraceback(failure.traceback) if exception is None else exception


def _as_text(failures: Sequence[Failure]) -> str:
    """Describes failures. Failures of one `kind` share a text, because one bug can affect a thousand envs."""
    alike: dict[Any, list[Failure]] = {}
    for failure in failures:
        if not failure.shared:
            alike.setdefault((failure.kind, failure.env_id is None), []).append(failure)
    texts = [_as_one_text(some) for some in alike.values()]
    if shared := [failure.env_id for failure in failures if failure.shared and failure.env_id is not None]:
        texts.append(f"and with them, of the same vector envs, {name_some('env', shared)}")
    return "; ".join(texts)


def _as_one_text(alike: Sequence[Failure]) -> str:
    """Describes failures that differ only in their envs, with the episode, step and crash record of the first."""
    first = alike[0]
    envs = "all envs" if first.env_id is None else name_some("env", [f.env_id for f in alike if f.env_id is not None])
    workers = name_some("worker", [failure.worker for failure in alike])
    of_env = f"env {first.env_id}: " if len(alike) > 1 else ""
    at = f" ({of_env}{first.where})" if first.where is not None else ""
    records = [failure.record for failure in alike if failure.record is not None]
    recorded = _recorded(records[0]) if records else ""
    recorded += f" (and {len(records) - 1} more)" if len(records) > 1 else ""
    return f"{envs} ({workers}) raised {first.type_name} in {first.operation}: {first.message}{at}{recorded}"


@dataclass(frozen=True)
class MemoryVerdict:
    """An estimate whether a worker was killed because memory had run out.

    Attributes:
        out_of_memory: The estimate; None if the counters of the kernel do not show it.
        evidence: The reason, as text.
    """

    out_of_memory: bool | None
    evidence: str


class WorkerDiedError(RemudaError):
    """A worker process ended unexpectedly.

    Attributes:
        worker: The index of the worker.
        pid: Its process id.
        exitcode: Its exit code as in `subprocess`, negative for a signal; None if it is unknown.
        env_ids: The envs that it hosted; all of them are lost.
        operation: Its operation at the time: "build", "reset", "step", "observe", "call", "close" or "nothing".
        out_of_memory: After SIGKILL: whether the kernel killed it because memory had run out, by its counters; None if
            they do not show it, and for other ends.
        output: The last lines that it wrote to stdout and stderr; empty if they were not captured (`worker_output=`).
        where: The progress of the env of that operation; None if the env is unknown.
        record: The crash record of that env; None if none was written (`crash_dir=`).
        others: Further errors of the same time: deaths, and an EnvError for the envs that raised.
        remedy: The end of the message: options with which the pool would continue.
    """

    remedy = ""

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
        """Returns the cause of the worker's death, in a few words."""
        if self._verdict is not None:
            return f"killed by SIGKILL: {self._verdict.evidence}"
        return describe_exitcode(self.exitcode)

    def __str__(self) -> str:
        return f"{self.summary()}{self.remedy}{self.details()}"

    def summary(self) -> str:
        """Returns the error's message without `remedy` and `details`."""
        return "; and ".join(map(str, (self._report(), *self.others)))

    def _report(self) -> str:
        envs = name_some("env", self.env_ids)
        doing = "idle" if self.operation == "nothing" else f"in {self.operation}"
        at = f" (env {self.where.env_id}, {self.where})" if self.where is not None else ""
        return f"{self._what_happened(envs)} while {doing}{at}: {self.reason()}{_recorded(self.record)}"

    def _what_happened(self, envs: str) -> str:
        return f"worker {self.worker} (pid {self.pid}, {envs}) died"

    def details(self) -> str:
        """Returns further lines for the error's message: the worker's last output, if it is kept."""
        return "\n  its last output:\n" + textwrap.indent(self.output, "    ") if self.output else ""


class EnvTimeoutError(WorkerDiedError, TimeoutError):
    """An env missed a deadline, and its worker was killed.

    With `backend="thread"` nothing was killed: the env still runs in its thread. `pid` is None then, and `env_ids` has
    only this env.

    It has the attributes of `WorkerDiedError`, and:

    Attributes:
        deadline: The name of the limit: "step_timeout", "reset_timeout" or "call_timeout"; "start_timeout" for an env
            that was rebuilt.
        limit: The limit in seconds.
        stack: The Python stack of the worker before it was killed, one call a line, the innermost first; empty if the
            worker did not answer.
    """

    deadline: str
    limit: float
    stack: str = ""

    def reason(self) -> str:
        """Returns a text with the deadline that the env missed."""
        end = "its thread goes on, because it cannot be killed" if self.pid is None else "was killed"
        return f"it took longer than {self.deadline}={self.limit} s, and {end}"

    def _what_happened(self, envs: str) -> str:
        return super()._what_happened(envs) if self.pid is not None else f"worker {self.worker} ({envs}) hung"

    def details(self) -> str:
        """Returns further lines for the error's message: the worker's stack, and its last output."""
        where = f"\n  it was in, the last call first:\n{textwrap.indent(self.stack, '    ')}" if self.stack else ""
        return where + super().details()


class CorruptReplyError(WorkerDiedError):
    """A worker sent invalid data, and was killed.

    Native code of an env has overwritten the shared memory, or code in the worker uses the pool's socket.
    """

    def reason(self) -> str:
        """Returns the cause of the worker's death."""
        return "it wrote invalid data, and was killed"


class ShardDiedError(WorkerDiedError):
    """A shard of a pool on a Ray cluster is lost: its actor died, or its machine.

    It has the attributes of `WorkerDiedError`; `worker` is the index of the shard's first worker, or -1 if the shard
    died before that index was known. And:

    Attributes:
        shard: The index of the shard.
        node: Ray's name for the machine of the shard.
    """

    def __init__(
        self, *, shard: int, node: str, reason: str, worker: int, env_ids: Sequence[int], operation: str
    ) -> None:
        super().__init__(worker=worker, pid=None, exitcode=None, env_ids=env_ids, operation=operation)
        self.shard, self.node, self._reason = shard, node, reason

    def reason(self) -> str:
        """Returns the cause of the shard's death, as Ray reports it."""
        return self._reason

    def _report(self) -> str:
        envs, doing = name_some("env", self.env_ids), "idle" if self.operation == "nothing" else f"in {self.operation}"
        return f"shard {self.shard} ({envs}, on node {self.node}) died while {doing}: {self.reason()}"


@dataclass(frozen=True)
class Fault:
    """The reason why an env was restarted.

    Attributes:
        env_id: The env.
        worker: The index of its worker.
        kind: "death", "timeout", "exception" or "corrupt".
        operation: The operation of the worker: "build", "reset", "step", "observe", "call" or "nothing".
        where: The progress of the env.
        error: A WorkerDiedError or a subclass, or an EnvError; its `__cause__` is the remote traceback.
        shared: Whether another env of the same worker caused the fault.
        shard, node: On a Ray cluster, the index of the env's shard, and its machine; else None.
        not_resumed: With `faults="resume"`, why the episode was not resumed; else None.
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
    not_resumed: str | None = None

    @property
    def record(self) -> Path | None:
        """The crash record of the env that caused the fault; None if none was written (`crash_dir=`)."""
        return self.error.record if isinstance(self.error, (WorkerDiedError, EnvError)) else None

    def __str__(self) -> str:
        error = self.error.summary() if isinstance(self.error, WorkerDiedError) else self.error
        text = f"env {self.env_id} went with its worker: {error}" if self.shared else f"{error}"
        if self.not_resumed is not None:
            text = f"{text}; the episode was not resumed: {self.not_resumed}"
        if self.shard is None or isinstance(self.error, ShardDiedError):
            return text
        return f"{text} (shard {self.shard}, node {self.node})"


class RestartLimitError(RemudaError):
    """Envs failed more often than the pool's FaultPolicy allows.

    `__cause__` is the error of the last fault.

    Attributes:
        faults: All faults within the period, oldest first.
    """

    def __init__(self, limit: str, faults: Sequence[Fault]) -> None:
        self.limit, self.faults = limit, tuple(faults)
        history = "".join(f"\n  {number}. {fault}" for number, fault in enumerate(_one_each(self.faults), 1))
        super().__init__(f"more faults than {limit} allows:{history}")
        if self.faults:
            self.__cause__ = self.faults[-1].error


def _one_each(faults: Sequence[Fault]) -> list[Fault]:
    """Returns one fault for each error: if an error affected several envs, the fault of the env that caused it."""
    own = {id(fault.error): fault for fault in faults if not fault.shared}
    return list({id(fault.error): own.get(id(fault.error), fault) for fault in faults}.values())
