"""The pairs of options that exclude each other."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from remuda._engine.options.extras import check_extras
from remuda._engine.options.pool_options import OPTIONS, OptionValues


@dataclass(frozen=True)
class Refusal:
    """A rule: if the value of one option is not its default, another option may have only certain values.

    Attributes:
        option: The option that does not have its default.
        other: The other option, or a field of its value ("faults.renew_every").
        allowed: The values that `other` may have; the error names the first `named` of them.
        why: The reason, with which the error ends.
    """

    option: str
    other: str
    allowed: tuple[Any, ...]
    why: str
    named: int | None = None

    def check(self, values: OptionValues) -> None:
        """Raises ValueError if the values break this rule."""
        given, got = getattr(values, self.option), attrgetter(self.other)(values)
        if given == OPTIONS[self.option].default or got in self.allowed:
            return
        expected = " or ".join(", ".join(map(repr, self.allowed[: self.named])).rsplit(", ", 1))
        name = self.other.rpartition(".")[2]
        raise ValueError(f"expected {name}={expected} with {self.option}={given}, got {got!r}: {self.why}")


_OF_SINGLE_ENVS = {
    "spares": (0,),
    "autoreset": ("next_step", "same_step", "disabled"),
    "resets_ahead": (False,),
    "faults.renew_every": (None,),
    "faults.resets": ("retry",),
    "faults.on_fault": ("raise", "restart"),
    "max_worker_memory": (None,),
    "crash_dir": (None,),
    "seeding": ("gymnasium",),
}

REFUSALS = (
    *(
        Refusal("vector_size", other, allowed, "the envs in a vector env are neither reset nor built one by one")
        for other, allowed in _OF_SINGLE_ENVS.items()
    ),
    Refusal("spares", "max_concurrency", (None,), "spare envs reset while others step"),
    Refusal("resets_ahead", "max_concurrency", (None,), "workers that reset in advance do so while others step"),
    Refusal(
        "resets_ahead",
        "autoreset",
        ("next_step", "background"),
        "with 'same_step' an env is reset within the step that ends its episode, with 'disabled' by your reset",
        named=1,  # the error suggests only "next_step": "background" makes `resets_ahead` useless
    ),
)


def check_pairs(values: OptionValues) -> None:
    """Raises ValueError if two of the options exclude each other."""
    for refusal in REFUSALS:
        refusal.check(values)
    if values.faults.reports_resets and values.autoreset != "disabled":
        raise ValueError(
            f"expected autoreset='disabled' with FaultPolicy(resets='report'), got {values.autoreset!r}: only the "
            "caller of a reset can decide what follows when it fails"
        )
    if values.vector_size is not None and any(column.of_step for column in check_extras(values.extras)):
        raise ValueError(
            f"expected no StepColumn in extras with vector_size={values.vector_size}: the envs in a vector env are "
            "reset within its step; let the vector env put the values into its infos"
        )
    if values.backend != "process":
        _check_without_processes(values)


def _check_without_processes(values: OptionValues) -> None:
    backend = values.backend
    for name, option in OPTIONS.items():
        got = getattr(values, name)
        if option.of_processes is not None and got != option.default:
            raise ValueError(
                f"expected {name}={option.default!r} for backend={backend!r}, got {got!r}: its workers run in this "
                f"process{option.of_processes}"
            )
    if values.faults.has_deadlines and (backend == "serial" or values.vector_size is not None):
        envs = "" if backend == "serial" else f" and vector_size={values.vector_size}"
        raise ValueError(
            f"expected no deadlines with backend={backend!r}{envs}: only a process can be stopped from outside; "
            "use backend='process'"
        )
    if values.faults.restarts and values.vector_size is not None:
        raise ValueError(
            f"expected backend='process' with vector_size={values.vector_size} and faults='restart', got {backend!r}: "
            "a vector env that failed is rebuilt with its process"
        )
