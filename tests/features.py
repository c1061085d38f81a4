"""The features of a pool: their pairs, the refused pairs, and combinations in which every pair occurs.

The list and the tables in docs/incompatible-options.md are generated from this. tests/engine/test_lives.py tests it.
"""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import doc_pages

from remuda import FaultPolicy

Combination: TypeAlias = Mapping[str, Any]  # a value for each factor
Choice: TypeAlias = tuple[str, Any]  # a factor and one of its values

SLOTS, SPARES, WIDTH = 4, 2, 2
IN_THREADS = "in threads"  # two parts, each in a thread of its own

# The first value of each factor is the pool's default.
FACTORS: dict[str, tuple[Any, ...]] = {
    "backend": ("process", "thread"),
    "autoreset": ("next_step", "same_step", "disabled", "background"),
    "spares": (0, SPARES),
    "resets_ahead": (False, True),
    "vector_size": (None, WIDTH),
    "parts": (1, 2, IN_THREADS),
    "renew_every": (None, 2),
    "faults": ("raise", "restart", "report", "resume"),  # "report": "restart", but faults in resets are reported
    "deadlines": (False, True),
    "max_concurrency": (None, 1),
    "seeding": ("gymnasium", "per_episode"),
    "crash_dir": (False, True),
    "partial": (False, True),
    "calls": (False, True),
    "reset_options": (False, True),
    "shared": (False, True),
    "lazy": (False, True),
}


@dataclass(frozen=True)
class Refusal:
    """Choices that exclude each other.

    Attributes:
        says: What the error says.
    """

    choices: tuple[Choice, ...]
    says: str

    def concerns(self, combination: Combination) -> bool:
        return all(combination.get(factor) == value for factor, value in self.choices)


_ONE_BY_ONE = "neither reset nor built one by one"
_VECTOR = ("vector_size", WIDTH)
_AHEAD = ("resets_ahead", True)
_SPARES = ("spares", SPARES)
_REPORT = ("faults", "report")
_RESUME = ("faults", "resume")
_BY_CALLER = "only the caller of a reset can decide"

REFUSALS = (
    Refusal((_VECTOR, _SPARES), _ONE_BY_ONE),
    Refusal((_VECTOR, ("autoreset", "background")), _ONE_BY_ONE),
    Refusal((_VECTOR, _AHEAD), _ONE_BY_ONE),
    Refusal((_VECTOR, ("renew_every", 2)), _ONE_BY_ONE),
    Refusal((_VECTOR, ("crash_dir", True)), _ONE_BY_ONE),
    Refusal((_VECTOR, ("seeding", "per_episode")), _ONE_BY_ONE),
    Refusal((_VECTOR, ("reset_options", True)), "vector envs reset theirs by themselves, without options"),
    Refusal((_VECTOR, ("faults", "restart"), ("backend", "thread")), "rebuilt with its process"),
    Refusal((_SPARES, ("shared", True)), "hold up the others of its worker"),
    Refusal((_SPARES, ("max_concurrency", 1)), "spare envs reset while others step"),
    Refusal((_AHEAD, ("autoreset", "same_step")), "within the step that ends its episode"),
    Refusal((_AHEAD, ("autoreset", "disabled")), "by your reset"),
    Refusal((_AHEAD, ("max_concurrency", 1)), "do so while others step"),
    Refusal((_VECTOR, ("deadlines", True), ("backend", "thread")), "only a process can be stopped from outside"),
    Refusal((_VECTOR, _REPORT), _ONE_BY_ONE),
    *(Refusal((_REPORT, ("autoreset", mode)), _BY_CALLER) for mode in ("next_step", "same_step", "background")),
    Refusal((_REPORT, _AHEAD), _BY_CALLER),
    Refusal((_VECTOR, _RESUME), _ONE_BY_ONE),
)


# The choices that exclude a method of the pool, by its name in the document.
LIMITS: dict[str, tuple[Choice, ...]] = {
    "[rollouts](rollouts.md)": (("autoreset", "disabled"), ("autoreset", "background")),
    "[states](state.md)": (_VECTOR,),
    "`replace`": (_SPARES,),
}


def is_refused(combination: Combination) -> bool:
    """Returns whether the pool refuses the combination, or its rows would depend on timing."""
    in_any_order = combination.get("parts") == IN_THREADS and combination.get("spares")
    return bool(in_any_order) or any(refusal.concerns(combination) for refusal in REFUSALS)


def plain(*choices: Choice) -> dict[str, Any]:
    """Returns the combination of all default values except these choices."""
    return {factor: values[0] for factor, values in FACTORS.items()} | dict(choices)


def pairs() -> Iterator[frozenset[Choice]]:
    """Yields all pairs of values of different factors that are not refused."""
    for (one, values), (other, others) in itertools.combinations(FACTORS.items(), 2):
        for a, b in itertools.product(values, others):
            if not is_refused({one: a, other: b}):
                yield frozenset({(one, a), (other, b)})


def covering() -> list[dict[str, Any]]:
    """Returns few combinations in which every pair occurs, if possible with worker processes.

    Every feature also occurs with envs that hang in threads and are rebuilt, and with workers that die at any time. The
    result is always the same. Greedy: each combination takes a missing pair, and then for each factor the value that
    adds most missing pairs.
    """
    processes = (pair | {("backend", "process")} for pair in pairs() if not any(f == "backend" for f, _ in pair))
    missing = {*pairs(), *processes, *_with(_HANGS_IN_THREADS), *_with(_DIES_AT_ANY_TIME)}
    combinations = []
    while missing:
        combination = dict(min(missing, key=lambda choices: repr(sorted(choices, key=repr))))
        for factor in FACTORS:
            if factor not in combination:
                combination[factor] = max(_possible(combination, factor), key=_Gain(missing, combination, factor))
        combinations.append({factor: combination[factor] for factor in FACTORS})
        missing = {choices for choices in missing if not choices <= combinations[-1].items()}
    return combinations


_HANGS_IN_THREADS: Combination = {"backend": "thread", "faults": "restart", "deadlines": True}

_DIES_AT_ANY_TIME: Combination = {
    "backend": "process",
    "faults": "restart",
    "spares": 0,
    "renew_every": None,
    "shared": False,
}


def _with(fixed: Combination) -> Iterator[frozenset[Choice]]:
    """Yields each value of the other factors, together with the fixed ones."""
    for factor in FACTORS.keys() - fixed:
        for value in FACTORS[factor]:
            if not is_refused({**fixed, factor: value}):
                yield frozenset({(factor, value), *fixed.items()})


def _possible(combination: Combination, factor: str) -> list[Any]:
    values = [value for value in FACTORS[factor] if not is_refused({**combination, factor: value})]
    assert values, f"nothing goes with {combination}"
    return values


@dataclass(frozen=True)
class _Gain:
    """Counts the missing choices that a value adds."""

    missing: set[frozenset[Choice]]
    combination: Combination
    factor: str

    def __call__(self, value: Any) -> int:
        new, extended = (self.factor, value), {**self.combination, self.factor: value}.items()
        return sum(new in choices and choices <= extended for choices in self.missing)


def pool_arguments(combination: Combination, directory: Path) -> dict[str, Any]:
    """Returns the arguments of `Pool` for a combination. `directory`: for crash records."""
    seconds = 2.0 if combination["deadlines"] else None
    is_reported, width = combination["faults"] == "report", combination["vector_size"] or 1
    policy = FaultPolicy(
        "restart" if is_reported else combination["faults"],
        resets="report" if is_reported else "retry",
        step_timeout=seconds,
        reset_timeout=seconds,
        max_restarts=100,
        backoff=0,
        renew_every=combination["renew_every"],
        abandon_hung_threads=True,
    )
    names = ("backend", "autoreset", "spares", "resets_ahead", "vector_size", "max_concurrency", "seeding", "lazy")
    return {
        **{name: combination[name] for name in names},
        **({"crash_dir": directory} if combination["crash_dir"] else {}),
        "faults": policy,
        "log_advice": False,
        "frames": 2,
        "object_bytes": 4096,  # some messages are larger
        "num_workers": SLOTS // width // 2 if combination["shared"] else None,
    }


# -- for the document ------------------------------------------------------------------------------------

DOCUMENT = Path(__file__).parents[1] / "docs" / "incompatible-options.md"
WHY = (
    "a vector env resets its envs by itself, and builds all of them together",
    "a vector env that failed is rebuilt with its process",
    "the slow reset of a spare would delay the other envs of its worker",
    "spares reset while other envs step",
    "the env resets within the step that ends the episode",
    "the env resets only when you request it",
    "resets in advance run while other envs step",
    "a vector env in a thread cannot be left",
    "only the caller of a reset can decide what follows when it fails",
)
_REASONS = (0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 0, 8, 8, 8, 8, 0)  # an index in `WHY` for each refusal

WHY_NOT = (
    "a reset between two rows of the rollout is not a step and has no row",
    "observations or actions without a fixed size do not fit into an array",
    "only the vector env has the position of its envs in their episodes",
    "spares must be interchangeable",
)

_NAMES: dict[Choice, str] = {
    **{("autoreset", mode): f'`autoreset="{mode}"`' for mode in FACTORS["autoreset"]},
    _SPARES: "`spares`",
    _AHEAD: "`resets_ahead`",
    _VECTOR: "`vector_size`",
    ("parts", 2): "`split`",
    ("renew_every", 2): "`renew_every`",
    ("faults", "restart"): '`faults="restart"`',
    _REPORT: '`FaultPolicy(resets="report")`',
    _RESUME: '`faults="resume"`',
    ("deadlines", True): "deadlines",
    ("max_concurrency", 1): "`max_concurrency`",
    ("seeding", "per_episode"): '`seeding="per_episode"`',
    ("crash_dir", True): "`crash_dir`",
    ("partial", True): "partial batches",
    ("calls", True): "calls",
    ("reset_options", True): "`set_reset_options`",
    ("shared", True): "workers with several envs",
    ("backend", "thread"): '`backend="thread"`',
}


_HEAD = ("feature", "does not work with", "reason")


def names() -> str:
    """All features except the autoreset modes, as text."""
    rest = [name for (factor, _), name in _NAMES.items() if factor != "autoreset"]
    return textwrap.fill(f"All autoreset modes, {', '.join(rest[:-1])} and {rest[-1]}.", 150, break_on_hyphens=False)


def table() -> str:
    """A row for each feature and reason, with the features that the reason excludes."""
    rows: dict[tuple[str, str], list[str]] = {}
    for refusal, reason in zip(REFUSALS, _REASONS, strict=True):
        feature, *others = (_NAMES[choice] for choice in refusal.choices)
        rows.setdefault((feature, WHY[reason]), []).append(" with ".join(others))
    return doc_pages.table(_HEAD, [(one, ", ".join(others), why) for (one, why), others in rows.items()])


def methods_table() -> str:
    """A row for each method of a pool that some features exclude."""
    rows = [(name, ", ".join(_NAMES[choice] for choice in choices)) for name, choices in LIMITS.items()]
    rows.insert(1, (rows[0][0], "texts and graphs"))
    return doc_pages.table(_HEAD, [(name, others, why) for (name, others), why in zip(rows, WHY_NOT, strict=True)])


def with_tables(text: str) -> str:
    """Returns the document with its current list and tables."""
    return doc_pages.filled(text, {"features": names(), "pairs": table(), "methods": methods_table()})


if __name__ == "__main__":
    DOCUMENT.write_text(with_tables(DOCUMENT.read_text()))
