"""Keeps faults until they are raised, and the envs that they have cost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from remuda._engine.supervision.changes import Changes
from remuda.errors import (
    BrokenPoolError,
    EnvError,
    Failure,
    RemudaError,
    RestartLimitError,
    StateError,
    WorkerDiedError,
    name_some,
)


class Faults:
    """Keeps faults until they are raised, and remembers which envs they cost.

    A slot whose env raised must be reset before it can step again; an env whose worker died is lost. What an env raised
    is for the part of the pool that has its slot; what is no slot's, and every death, is for whoever looks first.
    """

    def __init__(self, num_slots: int, in_callers_thread: bool) -> None:
        self.not_reset = set(range(num_slots))
        self._part_of = [0] * num_slots
        self.noted = [0]  # how many failures of envs there have been, for each part
        self._in_callers_thread = in_callers_thread
        self.deferred: set[int] = set()  # slots whose next result says that their episode was cut off
        self._lost: dict[int, RemudaError] = {}
        self._failures: list[tuple[int | None, Failure]] = []  # with the slot
        self._deaths: list[WorkerDiedError] = []
        self._limits: list[RestartLimitError] = []

    @property
    def none(self) -> bool:
        """Whether every env can step."""
        return not self.not_reset and not self._lost and not self.deferred

    @property
    def urgent(self) -> bool:
        """Whether envs were lost that somebody waits for."""
        return bool(self._deaths or self._limits)

    def add_failure(self, failure: Failure, changes: Changes) -> None:
        """It is to be raised."""
        changes.do(self._failures.append, (None, failure))

    def add_failures(self, failures: Sequence[Failure], slots: Sequence[int], changes: Changes) -> None:
        """The same of an env. `slots`: that had it, one for each, and wait for results."""
        part = self._part_of[slots[0]]
        changes.do(self._failures.extend, list(zip(slots, failures, strict=True)))
        changes.do(self.noted.__setitem__, part, self.noted[part] + len(slots))
        changes.do(self.not_reset.update, slots)

    def add_interrupt(self, failure: Failure, changes: Changes) -> None:
        """It is to be raised, but its env goes on."""
        changes.do(self._failures.append, (None, failure))

    def add_death(self, env_ids: Sequence[int], death: RemudaError, changes: Changes, *, tell: bool) -> None:
        """These envs died with their worker. `tell`: somebody waits for it, so the death is to be raised."""
        changes.do(self._lost.update, dict.fromkeys(env_ids, death))
        if tell and isinstance(death, WorkerDiedError):
            changes.do(self._deaths.append, death)

    def tell_again(self, env_id: int, changes: Changes) -> None:
        """Somebody waits for an env that was lost before."""
        error = self._lost[env_id]
        if isinstance(error, WorkerDiedError) and error not in self._deaths:
            changes.do(self._deaths.append, error)
        elif isinstance(error, RestartLimitError) and error not in self._limits:
            changes.do(self._limits.append, error)

    def add_loss(self, env_ids: Sequence[int], error: RestartLimitError, changes: Changes) -> None:
        """These envs failed too often."""
        changes.do(self._lost.update, dict.fromkeys(env_ids, error))
        changes.do(self._limits.append, error)

    def is_lost(self, env_id: int) -> bool:
        return env_id in self._lost

    def living(self, env_ids: Iterable[int]) -> list[int]:
        """Those that are not lost."""
        return [env_id for env_id in env_ids if env_id not in self._lost]

    def lost(self, env_id: int) -> RemudaError:
        """Why an env was lost."""
        return self._lost[env_id]

    def divide(self, shares: Sequence[Sequence[int]]) -> None:
        """From now on these slots are the parts 0, 1, ..."""
        self.noted = [0] * len(shares)
        for part, slots in enumerate(shares):
            for slot in slots:
                self._part_of[slot] = part

    def forget(self, part: int = 0) -> None:
        """Drops what has not been raised, but for other parts' failures; envs that are lost or not reset stay so."""
        self._failures = self._of_others(part)
        for told in (self._deaths, self._limits):
            told.clear()

    def raise_any(self, part: int = 0) -> None:
        """Raises the faults that have come up since the last time, as one error: deaths first, for they cost more."""
        if self._limits:
            raise self._limits.pop(0)
        if (error := self._first_error(part)) is not None:
            changes = Changes()
            changes.do(self._deaths.clear)
            changes.do(self._failures.__setitem__, slice(None), self._of_others(part))
            changes.make()
            raise error

    def _is_for(self, part: int, slot: int | None) -> bool:
        return slot is None or self._part_of[slot] == part

    def _of_others(self, part: int) -> list[tuple[int | None, Failure]]:
        return [(slot, failure) for slot, failure in self._failures if not self._is_for(part, slot)]

    def _first_error(self, part: int) -> BaseException | None:
        """With all others of its time."""
        failures = [failure for slot, failure in self._failures if self._is_for(part, slot)]
        if not self._deaths:
            return self.error_for(failures) if failures else None
        raised = [EnvError(failures)] if failures else []
        first = self._deaths[0]
        first.others = (*self._deaths[1:], *raised)
        return first

    def is_interrupt(self, failure: Failure) -> bool:
        """Whether it is the caller's own Ctrl-C."""
        return self._in_callers_thread and isinstance(failure.exception, KeyboardInterrupt)

    def error_for(self, failures: Sequence[Failure]) -> BaseException:
        """What to raise for them. Ctrl-C may hit an env that the caller steps itself: it is still the caller's."""
        error = EnvError(failures)
        if not any(map(self.is_interrupt, failures)):
            return error
        interrupt = KeyboardInterrupt()
        interrupt.__cause__ = error
        return interrupt

    def check_alive(self, env_ids: Iterable[int]) -> None:
        for env_id in env_ids if self._lost else ():
            if env_id in self._lost:
                raise BrokenPoolError(
                    f"env {env_id} was lost to an earlier fault; close the pool and make a new one"
                ) from self._lost[env_id]

    def check_reset(self, slots: Iterable[int]) -> None:
        if self.not_reset and (missing := sorted(self.not_reset.intersection(slots))):
            raise StateError(f"expected envs that have been reset, got {name_some('env', missing)}; call reset first")
