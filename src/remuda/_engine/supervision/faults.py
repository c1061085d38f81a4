"""Keeps the faults that the pool has not raised yet, and the envs that are lost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from remuda import _core
from remuda._engine.running import Running
from remuda._wire.failures import breaks_protocol, raised
from remuda._wording import name_some
from remuda.errors import (
    BrokenPoolError,
    EnvError,
    Failure,
    RemudaError,
    RestartLimitError,
    StateError,
    WorkerDiedError,
)

T = TypeVar("T")


class Faults:
    """Keeps the faults that the pool has not raised yet, and the envs that are lost.

    A slot whose env raised must be reset before its next step. An env whose worker died is lost. The part of the pool
    that has the slot raises the failure of its env; any part raises deaths, and failures without a slot.

    Attributes:
        broken: The error of a pool whose supervision has failed; otherwise None.
    """

    def __init__(self, running: Running, *, in_callers_thread: bool, remedy: str = "") -> None:
        """`remedy`: the end of errors about faults: options with which the pool would continue."""
        self._running, self._remedy = running, remedy
        self.guards = running.slots.guards  # flags that the hub checks before it sends or returns anything.
        self._in_callers_thread = in_callers_thread
        self.broken: BrokenPoolError | None = None
        self._lost: dict[int, RemudaError] = {}
        self._failures: list[tuple[int | None, Failure]] = []  # (slot, failure); slot None: the failure ends no episode
        self._deaths: list[WorkerDiedError] = []
        self._unheard: list[RemudaError] = []  # deaths of idle workers, which the next command to their envs raises
        self._limits: list[RemudaError] = []  # exceeded limits and the like, raised before all others

    @property
    def urgent(self) -> bool:
        """Whether an error must be raised at once, because an env was lost."""
        return bool(self._deaths or self._limits)

    @property
    def any_unraised(self) -> bool:
        """Whether there are faults that some part has not raised yet."""
        return bool(self._failures) or self.urgent

    def add_failure(self, failure: Failure) -> None:
        """Keeps a failure that ends no episode, to be raised by the next call."""
        self._keep(self._failures, (None, failure))

    def add_failures(self, failures: Sequence[Failure], slots: Sequence[int]) -> None:
        """Keeps the failures of an env, one for each of its `slots`. They take the place of the slots' results."""
        for slot, failure in zip(slots, failures, strict=True):
            self._keep(self._failures, (slot, failure))
            self.guards.require_reset(slot)
        self._running.hub.settle(slots[0], _core.Fate.RAISED)

    def add_death(self, env_ids: Sequence[int], death: RemudaError, *, awaited: bool) -> None:
        """Marks the envs of a dead worker as lost. `awaited`: a caller waits for them, so the death must be raised.

        Otherwise the next command to the envs raises it. Such a command is sent all the same, and then dropped: so
        other envs get theirs, whether the death was noticed before or not.
        """
        if isinstance(death, WorkerDiedError):
            death.remedy = self._remedy
            if not awaited:
                self._lost.update(dict.fromkeys(env_ids, death))
                return self._unheard.append(death)
            if death not in self._deaths:
                self._keep(self._deaths, death)
        return self._lose(env_ids, death)

    def note_heard(self, death: RemudaError) -> None:
        """Notes that a call raises a death, so that the next command to its envs need not raise it."""
        if death in self._unheard:
            self._unheard.remove(death)
            self._lose([env_id for env_id, lost in self._lost.items() if lost is death], death)

    def raise_again(self, env_id: int) -> None:
        """Makes the pool raise the error of a lost env once more, because a caller waits for that env."""
        error = self._lost[env_id]
        self.note_heard(error)
        if isinstance(error, WorkerDiedError) and error not in self._deaths:
            self._keep(self._deaths, error)
        elif isinstance(error, RestartLimitError) and error not in self._limits:
            self._keep(self._limits, error)

    def add_loss(self, env_ids: Sequence[int], error: RestartLimitError) -> None:
        """Marks envs as lost because they failed too often."""
        self._lose(env_ids, error)
        if str(error) not in map(str, self._limits):  # a shard reports the same error for each env
            self._keep(self._limits, error)

    def break_all(self, cause: Exception) -> BrokenPoolError:
        """Marks all envs as lost because of a bug in remuda. Returns the error to raise."""
        error = BrokenPoolError(f"supervision failed, which is a bug in remuda: {type(cause).__name__}: {cause}")
        error.__cause__ = cause
        self._lose(range(self._running.layout.num_envs), error)
        self._keep(self._limits, error)
        self.broken = error
        return error

    def add_refusal(self, error: StateError) -> None:
        """Keeps the error for commands that a shard has refused."""
        self._keep(self._limits, error)

    def _lose(self, env_ids: Sequence[int], error: RemudaError) -> None:
        self._lost.update(dict.fromkeys(env_ids, error))
        for env_id in env_ids:
            self.guards.lose(env_id)

    def _keep(self, kept: list[T], fault: T) -> None:
        kept.append(fault)
        self._note_kept()

    def _note_kept(self) -> None:
        """Tells the hub whether faults are kept. Called after each change of them."""
        self.guards.note_faults(self.any_unraised, self.urgent)

    @property
    def any_lost(self) -> bool:
        """Whether any env is lost."""
        return bool(self._lost)

    def is_lost(self, env_id: int) -> bool:
        """Whether an env is lost."""
        return env_id in self._lost

    def living(self, env_ids: Iterable[int]) -> list[int]:
        """Returns the envs that are not lost."""
        return [env_id for env_id in env_ids if env_id not in self._lost]

    def lost(self, env_id: int) -> RemudaError:
        """Returns the error by which an env was lost."""
        return self._lost[env_id]

    def drop(self, part: int = 0) -> None:
        """Drops the faults that a part would raise. Lost envs stay lost, and envs that need a reset still need it."""
        self._failures = self._of_others(part)
        for kept in (self._deaths, self._limits):
            kept.clear()
        self._note_kept()

    def raise_any(self, part: int = 0) -> None:
        """Raises an error for the faults that a part has not raised yet. An exceeded restart limit is raised first."""
        error = self._limits.pop(0) if self._limits else self._take_error(part)
        self._note_kept()
        if error is not None:
            raise error

    def _take_error(self, part: int) -> BaseException | None:
        """Returns the error to raise for a part, and drops the faults that the error reports.

        A signal handler that raises may end this function early. Then the next call returns the error.
        """
        error, others = self._first_error(part), self._of_others(part)
        if error is not None:
            self._running.hub.release_failed(part)
            self._failures[:] = others
            self._deaths.clear()
        return error

    def _is_for(self, part: int, slot: int | None) -> bool:
        return slot is None or self._running.slots.part_of(slot) == part

    def _of_others(self, part: int) -> list[tuple[int | None, Failure]]:
        return [(slot, failure) for slot, failure in self._failures if not self._is_for(part, slot)]

    def _first_error(self, part: int) -> BaseException | None:
        """Returns the error for all faults of a part; None if there are none."""
        failures = [failure for slot, failure in self._failures if self._is_for(part, slot)]
        if not self._deaths:
            return self.error_for(failures) if failures else None
        raised = [EnvError(failures)] if failures else []
        first = self._deaths[0]
        first.others = (*self._deaths[1:], *raised)
        return first

    def is_interrupt(self, failure: Failure) -> bool:
        """Whether a failure is the exception of a signal handler, such as Ctrl-C, in an env in the caller's thread."""
        return self._in_callers_thread and isinstance(failure._exception, BaseException)  # others are pickled

    def error_for(self, failures: Sequence[Failure]) -> BaseException:
        """Returns the error for failures: the exception of a signal handler if there is one, else EnvError."""
        error = EnvError(failures, max(map(self._remedy_for, failures), default=""))
        interrupt = next((failure.exception for failure in failures if self.is_interrupt(failure)), None)
        if interrupt is None:
            return error
        interrupt.__cause__ = interrupt.__cause__ or error
        return interrupt

    def _remedy_for(self, failure: Failure) -> str:
        """Returns the remedy for an exception of an env; empty if a rebuilt env would raise it again."""
        where = failure.where
        is_first = where is not None and where.episode in (None, 0) and where.step <= 1
        may_pass = failure.operation in ("reset", "step") and not (is_first or breaks_protocol(failure))
        return self._remedy if may_pass else ""

    def shown(self, error: BaseException) -> BaseException:
        """Returns an error that is about to be raised, with its cause, which Python prints only if it exists by then.

        Making the cause may run code of the program, and no thread may wait for that code. So if this thread keeps
        others out of the hub, nothing is made: this function is called again when the outer call ends.
        """
        return error if self._running.is_in_turn else raised(error)

    def check_alive(self, env_ids: Iterable[int]) -> None:
        """Raises an error if one of these envs is lost: the death of its worker once, and then BrokenPoolError."""
        for env_id in env_ids if self._lost else ():
            if env_id in self._lost:
                raise self.lost_env(env_id)

    def lost_env(self, env_id: int) -> RemudaError:
        """Returns the error for a command to an env that is lost: see `check_alive`."""
        lost = self._lost[env_id]
        if lost in self._unheard:
            self.note_heard(lost)
            return lost
        if lost in self._limits:
            self._limits.remove(lost)
            self._note_kept()
            return lost
        error = was_lost(env_id, self._remedy)
        error.__cause__ = lost
        return error

    def check_reset(self, slots: Iterable[int]) -> None:
        """Raises StateError if one of these slots must be reset."""
        if missing := list(filter(self.guards.must_reset, slots)):
            raise must_reset(missing)


def was_lost(env_id: int, remedy: str = "") -> BrokenPoolError:
    """Returns the error for a command to an env that is lost, without a cause. `remedy`: the end of its text."""
    return BrokenPoolError(f"env {env_id} was lost to an earlier fault; close the pool and make a new one{remedy}")


def must_reset(slots: Sequence[int]) -> StateError:
    """Returns the error for a command that was sent to slots which must be reset first."""
    return StateError(f"expected envs that have been reset, got {name_some('env', sorted(slots))}; call reset first")
