"""Resumes the episodes of envs that failed: an env that is built again plays its episode again, from the log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from remuda import _core
from remuda._crash.episode_start import load_start, why_not_repeatable
from remuda._engine.calls import Addressee
from remuda._engine.options.fault_policy import FaultPolicy
from remuda._engine.running import Running
from remuda._engine.supervision.fault_log import FaultLog
from remuda._engine.supervision.preparations import Preparations
from remuda._wire.pickling import Buffers
from remuda.errors import Failure, Fault, RemudaError

_RESTORED, _STEP = _core.Entry.RESTORED.value, _core.Entry.STEP.value
_REPLAYS = {"death": 10}  # by kind of fault: the failed replays in a row after which an episode ends; else 2


class Resumption:
    """Decides which episodes are resumed, and makes the workers of rebuilt envs resume them.

    The worker plays the episode (worker/resume.cpp), and answers the next command with an error if it cannot.
    """

    def __init__(
        self,
        policy: FaultPolicy,
        running: Running,
        preparations: Preparations,
        addressees: dict[int, Addressee | None],
        fault_log: FaultLog,
    ) -> None:
        """`preparations`: the resets in advance with arguments that have not been answered."""
        self._policy, self._running, self._preparations = policy, running, preparations
        self._addressees, self._fault_log = addressees, fault_log
        self._log = _core.EpisodeLog(running.arena, running.layout.plan) if running.layout.resumes else None
        self._entries: dict[int, int] = {}  # by env: where its log ended when it last failed within a command
        self._faults: dict[int, Fault] = {}  # by env: the fault because of which its episode is played again
        self._raised: set[int] = set()  # the envs that have raised while they played their episodes again
        # By env: where the episode began that failed when it was played again, and how often in a row.
        self._replays: dict[int, tuple[int, int]] = {}

    def begin(self, fault: Fault) -> Fault | None:
        """Decides on an env that failed, before it is built again. Takes back the command that was interrupted.

        Returns: None if the env resumes its episode; then `send` must follow, when messages reach its new worker.
            Otherwise the fault with the reason.
        """
        log, env = self._log, fault.env_id
        if log is None:
            return fault
        was_resuming = env in self._raised or log.is_resuming(env)
        self._raised.discard(env)
        is_reported = self._policy._reports(fault.operation) and not fault.shared
        if is_reported and not was_resuming:
            return fault
        slot = self._running.slots.slot_of(env)
        sequence = 0 if slot is None else self._running.slots.interrupted(slot)
        # A reset in advance whose answer the pool has not received is requested again.
        is_taken = log.take_back(env, sequence, self._preparations.is_unmade(env))
        why = self._why_not(log, env)
        if why is None and is_taken and not fault.shared and not was_resuming:
            entries = log.entries(env)
            if self._entries.get(env) == entries:
                why = f"it failed again at the same {fault.operation}"
            self._entries[env] = entries
        if why is None and was_resuming and not fault.shared:
            first, failures = log.place(env)[0], 1
            if env in self._replays and self._replays[env][0] == first:
                failures += self._replays[env][1]
            self._replays[env] = first, failures
            # Limits on restarts do not count a fault that is reported, so the episode is not tried again.
            if is_reported or failures >= _REPLAYS.get(fault.kind, 2):
                why = f"it failed in a {fault.operation} when it was played again"
        if why is None:
            self._faults[env] = fault
            return None
        log.forgo(env)
        self._forget(log, env)
        return replace(fault, not_resumed=why)

    def send(self, fault: Fault, failed: Callable[[Failure], object]) -> None:
        """Makes the env's new worker resume the episode. `failed`: called if the env raises meanwhile."""
        assert self._log is not None
        env, slot = fault.env_id, self._running.slots.slot_of(fault.env_id)
        if slot is not None and self._log.place(env)[0] < self._log.entries(env):
            self._running.slots.set_fresh(slot, False)  # it will have an observation

        def raised(failure: Failure) -> None:
            self._raised.add(env)
            failed(failure)

        def differed(why: str) -> None:
            self._fault_log.add(fault, f"its episode is not resumed: {why}")

        addressee = _Replay(lambda: self._replays.pop(env, None), differed, raised)
        self._running.hub.instruct(_core.Op.RESUME, fault.worker, env, None, self._addressees, addressee)

    def settle(self, slot: int, faults: Sequence[Fault], *, resumes: bool) -> None:
        """Settles the slot of an env that has failed and is built again.

        Args:
            slot: The slot, or the first slot of a vector env.
            faults: The fault of each of its slots.
            resumes: Whether it plays its episode again. Then no row shows the faults.
        """
        if resumes:
            return self._running.hub.settle(slot, _core.Fate.RESUMED)
        return self._running.hub.settle(slot, self._fate_of(faults[0]), [{"fault": fault} for fault in faults])

    def _fate_of(self, fault: Fault) -> _core.Fate:
        # A reset that had not begun, because its worker died before, is not reported: it is sent again.
        is_reported = self._policy._reports(fault.operation) and not fault.shared
        return _core.Fate.REPORTED if is_reported else _core.Fate.FAILED

    def given_up(self, env: int, why: str) -> Fault:
        """Returns the fault of an env whose worker could not play the episode again. `why`: the reason."""
        assert self._log is not None
        self._forget(self._log, env)
        return replace(self._faults.pop(env), not_resumed=why)

    def _forget(self, log: _core.EpisodeLog, env: int) -> None:
        """Ends the episode in the log, so that nothing is resumed if the env's worker dies before it has rebuilt it."""
        log.add(env, _core.Entry.MADE)
        self._entries.pop(env, None)
        self._replays.pop(env, None)
        self._raised.discard(env)

    def _why_not(self, log: _core.EpisodeLog, env: int) -> str | None:
        """Returns why an episode cannot be played again; None if it can, or if there is none."""
        first, touched, discarded = log.place(env)
        end = log.entries(env)
        if touched == _core.FOR_GOOD:
            return "it was called, and the call would not be repeated"
        if first == end:
            return None
        if touched > first:
            return "it was called within the episode"
        limit, steps = self._policy.max_resumed_steps, end - first - 1
        too_long = None
        # The command that was taken back has overwritten the oldest entry of a full log.
        if limit is not None and steps > limit:
            too_long = f"max_resumed_steps={limit}"
        elif end - first >= log.capacity or discarded > first:
            too_long = f"bytes_per_env={self._policy.bytes_per_env} can hold"
        if too_long is not None:
            return f"the episode has {steps} steps, more than {too_long}"
        if log.kind(env, first) == _RESTORED:  # to put an env into a state begins an episode
            return "it was put into a state"
        resets = (n for n in (first, end - 1) if log.kind(env, n) != _STEP)
        return next(filter(None, (_why_no_reset(log.beginning(env, n)) for n in resets)), None)


def _why_no_reset(beginning: bytes) -> str | None:
    """Returns why a reset cannot be repeated from what the worker has noted; None if it can."""
    if not beginning:
        return "how it began is no longer known"
    try:
        return why_not_repeatable(load_start(beginning))
    except ValueError as error:  # native code of the env has written over the log
        return str(error)


@dataclass(frozen=True)
class _Replay:
    """Receives the answer of a worker that has played an episode again."""

    played: Callable[[], object]
    differed: Callable[[str], object]
    raised: Callable[[Failure], object]

    def answer(self, sequence: int, parts: Buffers) -> None:
        if parts:
            self.differed(bytes(parts[0]).decode())
        else:
            self.played()

    def fail(self, sequence: int, failure: Failure) -> None:
        self.raised(failure)

    def abandon(self, error: RemudaError) -> None:
        """Does nothing when the worker has died: its successor plays the episode again."""
