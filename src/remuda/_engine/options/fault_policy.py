"""FaultPolicy: the deadlines of envs, and whether an env is restarted after a fault."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from remuda._engine.options.checks import int_from, one_of, seconds
from remuda._keywords import names_keywords

OnFault: TypeAlias = Literal["raise", "restart", "resume"]
OnResetFault: TypeAlias = Literal["retry", "report"]
_CHOICES = ("raise", "restart", "resume")


@names_keywords(option="faults")
@dataclass(frozen=True)
class FaultPolicy:
    """Defines what counts as a fault besides crashes and exceptions, and the reaction to a fault.

    A *fault* is the death of a worker, an exception in an env, a missed deadline, or a worker that sends invalid data.

    Attributes:
        on_fault: "raise": the next `recv` raises; other envs can still be stepped, and the pool closed.
            "restart": the env's episode ends truncated, with reward 0, its last observation once more and the
            `Fault` as `info["fault"]`; the env is rebuilt and continues by the pool's autoreset. The other
            episodes continue; a step of all envs waits for the rebuilt env. A fault in a reset ends no episode: the
            reset is tried again.
            "resume": the env is rebuilt, and its episode played again with the same seed and actions, up to the command
            that was interrupted. The caller receives the results that it would have received without the fault. If that
            is impossible, the env is restarted, as with "restart", and `Fault.not_resumed` has the reason: a row of the
            episode was not the same, the env failed again at the same command, it was called (`call`, `apply`) or put
            into a state (`set_state`), its reset cannot be repeated, or the episode is too long. Calls that only read,
            and lasting ones before the episode, do not matter.
        step_timeout, reset_timeout, call_timeout: The seconds that one env may take for one step, one reset (also an
            autoreset), one call. After that its worker is killed, wherever it hangs, also while the program does not
            call the pool. None for no limit. With `backend="thread"` nothing is killed: the env is lost, and its
            thread goes on. `backend="serial"` has no deadlines.
        abandon_hung_threads: With "restart" or "resume" and `backend="thread"`: whether an env that missed a deadline
            is rebuilt although the old one still runs in its thread. That thread keeps the old env, its memory and
            perhaps a core until the call returns; then it closes the env. Calls that never return add up.
        max_restarts, period: The number of restarts of one env that are allowed within `period` seconds. One more
            raises RestartLimitError. They are the intensity and period of Erlang/OTP's supervisors.
        max_pool_restarts: The same limit for all envs of the pool together; None for no such limit.
        backoff, max_backoff: The seconds before a worker's second restart within the period, which double before each
            further one, and their maximum. The first restart is immediate. With the defaults, an env whose worker is
            killed repeatedly is away for at most a second and its build. Raise both if builds are expensive or fail
            for a long time.
        resets: The reaction to a fault in a reset, if envs are restarted. "retry": the pool repeats the reset until it
            succeeds or `max_restarts` is exceeded. "report": the reset returns the row of a fault, with the `Fault` as
            `info["fault"]`, and the env is built again by its next reset, of which the caller decides. Such faults do
            not count for `max_restarts`. This needs `autoreset="disabled"`.
        renew_every: The number of episodes after which an env is rebuilt, for simulators that get worse with time. A
            worker with one env is replaced, which also frees leaked memory; in a worker with several envs, each env is
            closed and built again. None: never.
        max_resumed_steps: With "resume": an episode with more steps is not played again, but ends. None: no limit.
        bytes_per_env: With "resume": bytes of shared memory for the latest actions of each env. An episode with more
            actions ends. Half is for actions that are sent pickled; in the other half, an action takes its own bytes
            and 9 more.
    """

    on_fault: OnFault = "raise"
    step_timeout: float | None = None
    reset_timeout: float | None = None
    call_timeout: float | None = None
    max_restarts: int = 5
    period: float = 60.0
    max_pool_restarts: int | None = None
    backoff: float = 0.1
    max_backoff: float = 1.0
    resets: OnResetFault = "retry"
    renew_every: int | None = None
    abandon_hung_threads: bool = False
    max_resumed_steps: int | None = None
    bytes_per_env: int = 1 << 18

    def __post_init__(self) -> None:
        one_of(*_CHOICES)("on_fault", self.on_fault)
        one_of("retry", "report")("resets", self.resets)
        if self.reports_resets and not self.restarts:
            raise ValueError(f"expected on_fault='restart' with resets='report', got {self.on_fault!r}")
        for name in _TIMEOUTS:
            seconds(or_zero=False)(name, getattr(self, name))
        seconds(or_zero=False, or_none=False)("period", self.period)
        for name in ("backoff", "max_backoff"):
            seconds(or_none=False)(name, getattr(self, name))
        int_from(0)("max_restarts", self.max_restarts)
        int_from(0, or_none=True)("max_pool_restarts", self.max_pool_restarts)
        int_from(1, or_none=True)("renew_every", self.renew_every)
        int_from(0, or_none=True)("max_resumed_steps", self.max_resumed_steps)
        int_from(1)("bytes_per_env", self.bytes_per_env)

    @classmethod
    def of(cls, faults: Any) -> FaultPolicy:
        """Returns the policy for the option `faults`, which is "raise", "restart", "resume" or a policy.

        Raises:
            TypeError, ValueError: `faults` is something else.
        """
        if isinstance(faults, FaultPolicy):
            return faults
        if isinstance(faults, str) and faults in _CHOICES:
            return cls(on_fault=faults)  # type: ignore[arg-type]  # it is one of them
        kind = ValueError if isinstance(faults, str) else TypeError
        raise kind(
            f"expected faults to be 'raise', 'restart' or a FaultPolicy, got {faults!r}; or 'resume', which plays the "
            "episode of an env that failed again"
        )

    @property
    def restarts(self) -> bool:
        """Whether envs that fail are rebuilt."""
        return self.on_fault != "raise"

    @property
    def resumes(self) -> bool:
        """Whether envs that were rebuilt play their episodes again."""
        return self.on_fault == "resume"

    @property
    def rebuilding(self) -> OnFault:
        """The reaction of a pool that must rebuild envs: "restart", or "resume" if that is the policy's."""
        return "resume" if self.resumes else "restart"

    @property
    def reports_resets(self) -> bool:
        """Whether a reset that fails returns the row of a fault, and its env is built again by the next reset."""
        return self.resets == "report"

    def _reports(self, operation: str) -> bool:
        """Whether a fault in this operation is the row of a reset, on which the caller decides."""
        return self.reports_resets and operation in ("reset", "build")

    def _counts(self, operation: str) -> bool:
        """Whether a fault in this operation counts for the limits of restarts. Each failed start of a worker does."""
        return not self._reports(operation)

    def _for_caller(self, **changes: Any) -> FaultPolicy:
        """Returns a policy that rebuilds envs, and whose limits count failed starts of workers only.

        On other faults a caller decides. `changes`: fields with other values than here.
        """
        values = {name: getattr(self, name) for name in FaultPolicy.__dataclass_fields__}
        return _CallersPolicy(**values | {"on_fault": self.rebuilding, "max_pool_restarts": None} | changes)

    @property
    def has_deadlines(self) -> bool:
        """Whether a step, a reset or a call has a deadline."""
        return any(getattr(self, name) is not None for name in _TIMEOUTS)

    def _reported(self, deadline: str) -> tuple[float | None, str]:
        """Returns the seconds and the name of a deadline, as errors report them. A face may have names of its own."""
        return getattr(self, deadline), deadline

    def delay(self, restarts: int) -> float:
        """Returns the seconds before the next restart of a worker that had `restarts` restarts within `period`."""
        if restarts == 0:
            return 0.0
        return min(self.backoff * 2.0 ** min(restarts - 1, 60), self.max_backoff)


@dataclass(frozen=True)
class _CallersPolicy(FaultPolicy):
    """See `FaultPolicy._for_caller`."""

    def _counts(self, operation: str) -> bool:
        return False


_TIMEOUTS = ("step_timeout", "reset_timeout", "call_timeout")
