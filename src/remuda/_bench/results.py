"""The result of a benchmark: steps per second of each round, and the figures drawn from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from remuda._system.cores import usable_cores, usable_cpus

from .contenders import Plan


@dataclass(frozen=True)
class Turn:
    """The turn of one contender in one round."""

    env_steps: int
    batches: int
    """The number of times that the contender was stepped."""
    seconds: float
    parent_cpu_seconds: float = 0.0
    """CPU time of this process."""
    others_cpu_seconds: float = 0.0
    """CPU time of all other programs on the same CPUs, without the workers of contenders."""

    @property
    def rate(self) -> float:
        """Env steps per second."""
        return self.env_steps / self.seconds


@dataclass
class Entry:
    """The figures of a contender. Each of its turns adds to them."""

    name: str
    num_workers: int = 0
    """Worker processes; 0: this process steps the envs."""
    startup_seconds: float | None = None
    """The time from the constructor's call until the first reset returned."""
    turns: list[Turn] = field(default_factory=list)
    error: str | None = None
    """The reason if it dropped out."""

    @property
    def rates(self) -> list[float]:
        return [turn.rate for turn in self.turns]

    @property
    def steps_per_second(self) -> float | None:
        """The env steps per second: the median over the rounds. None before the first round."""
        return median(self.rates) if self.turns else None


@dataclass(frozen=True)
class Result:
    """The result of a benchmark. ``entries`` begins with the plain loop and remuda."""

    plan: Plan
    rounds: int
    seconds: float
    """Time of each contender in all rounds together."""
    entries: Sequence[Entry]
    cores: int = field(default_factory=usable_cores)
    """Cores that this process may use."""

    @property
    def env(self) -> str:
        return self.plan.workload.name

    @property
    def plain(self) -> Entry:
        return self.entries[0]

    @property
    def remuda(self) -> Entry:
        return self.entries[1]

    @property
    def others_share(self) -> float:
        """The CPU time of other programs during all turns, as a share of the time of all CPUs of this process."""
        turns = [turn for entry in self.entries for turn in entry.turns]
        seconds = sum(turn.seconds for turn in turns) * usable_cpus()
        return sum(turn.others_cpu_seconds for turn in turns) / seconds if seconds else 0.0

    @property
    def ideal(self) -> float | None:
        """Env steps per second of a plain loop on every core, if the loops do not disturb each other."""
        plain = self.plain.steps_per_second
        return None if plain is None else plain * self.cores

    def ratio_to_ideal(self, entry: Entry) -> float | None:
        ratio = paired_ratio(entry, self.plain)
        return None if ratio is None else ratio / self.cores

    def entry(self, name: str) -> Entry | None:
        return next((entry for entry in self.entries if entry.name == name), None)


def paired_ratio(entry: Entry, base: Entry) -> float | None:
    """Returns the median over the rounds of ``entry``'s rate divided by ``base``'s rate in the same round.

    The rates of one round were measured within seconds, so that a slowdown of the whole machine cancels out.
    None means that no round has both rates.
    """
    ratios = [rate / base_rate for rate, base_rate in zip(entry.rates, base.rates, strict=False)]
    return median(ratios) if ratios else None
