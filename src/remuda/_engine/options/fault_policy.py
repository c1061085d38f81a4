"""FaultPolicy: what counts as a fault, and whether an env is restarted after one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from remuda._engine.options.checks import check_timeout, int_from
from remuda._keywords import names_keywords

OnFault: TypeAlias = Literal["raise", "restart"]
_CHOICES = ("raise", "restart")


@names_keywords(option="faults")
@dataclass(frozen=True)
class FaultPolicy:
    """Defines what counts as a fault besides crashes and exceptions, and what follows from one.

    A *fault* is the death of a worker, an exception in an env, a missed deadline, or a worker that sends invalid data.

    Attributes:
        on_fault: "raise": the next `recv` raises; the pool can still be closed, and the other envs' results taken.
            "restart": the env's episode ends truncated, with reward 0, its last observation once more and the
            `Fault` as `info["fault"]`; the env is rebuilt and rejoins through the pool's autoreset. No other env
            misses a step. A fault in a reset has no episode to end: the reset is tried again.
        step_timeout, reset_timeout, call_timeout: Seconds that one env may take for one step, one reset (autoresets
            too), one call. Its worker is killed when they are over, wherever it hangs. They are looked at while the
            pool waits. None for no limit. Worker processes only.
        max_restarts, period: So many restarts of one env within `period` seconds are borne; one more, and the pool
            raises RestartLimitError. Intensity and period of Erlang/OTP's supervisors.
        max_pool_restarts: The same for all envs of the pool together; None for no limit of its own.
        backoff, max_backoff: Seconds to wait before a worker's second restart within the period, twice as long before
            each further one, and at most. The first is at once. So an env whose worker is killed every other second
            is never away for more than a second and its build; raise both where builds are expensive, or fail for long.
        renew_every: Build an env anew after so many episodes, for simulators that get worse with time. A worker with
            one env is replaced as a whole, memory leaks and all; with several, each env is closed and built again.
            None: never.
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
    renew_every: int | None = None

    def __post_init__(self) -> None:
        if self.on_fault not in _CHOICES:
            raise ValueError(f"expected on_fault to be one of {_CHOICES}, got {self.on_fault!r}")
        for name in _TIMEOUTS:
            _check_positive(name, getattr(self, name), or_none=True)
        _check_positive("period", self.period)
        for name in ("backoff", "max_backoff"):
            check_timeout(getattr(self, name), name)
            if getattr(self, name) is None or getattr(self, name) < 0:
                raise ValueError(f"expected {name} to be at least 0, got {getattr(self, name)}")
        int_from(0)("max_restarts", self.max_restarts)
        if self.max_pool_restarts is not None:
            int_from(0)("max_pool_restarts", self.max_pool_restarts)
        if self.renew_every is not None:
            int_from(1)("renew_every", self.renew_every)

    @classmethod
    def of(cls, faults: Any) -> FaultPolicy:
        """Returns the meaning of an argument `faults`: "raise", "restart", or a policy.

        Raises:
            TypeError, ValueError: It is something else.
        """
        if isinstance(faults, FaultPolicy):
            return faults
        if isinstance(faults, str) and faults in _CHOICES:
            return cls(on_fault=faults)  # type: ignore[arg-type]  # it is one of them
        kind = ValueError if isinstance(faults, str) else TypeError
        raise kind(f"expected faults to be 'raise', 'restart' or a FaultPolicy, got {faults!r}")

    @property
    def restarts(self) -> bool:
        """Whether envs that fail are rebuilt."""
        return self.on_fault == "restart"

    @property
    def has_deadlines(self) -> bool:
        """Whether a step, a reset or a call has one."""
        return any(getattr(self, name) is not None for name in _TIMEOUTS)

    def delay(self, restarts: int) -> float:
        """How many seconds pass before the next restart of a worker that had so many `restarts` within the period."""
        if restarts == 0:
            return 0.0
        return min(self.backoff * 2.0 ** min(restarts - 1, 60), self.max_backoff)


_TIMEOUTS = ("step_timeout", "reset_timeout", "call_timeout")


def _check_positive(name: str, value: float | None, *, or_none: bool = False) -> None:
    check_timeout(value, name)
    if (value is None and not or_none) or (value is not None and value <= 0):
        raise ValueError(f"expected {name} to be more than 0{', or None' if or_none else ''}, got {value}")
