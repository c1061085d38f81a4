"""The result of a benchmark: steps per second of each round, and the figures drawn from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median


@dataclass(frozen=True)
class Turn:
    """The turn of one contender in one round."""

    env_steps: int
    seconds: float
    cpu_seconds: float
    """CPU time of this process and the contender's workers."""
    others_cpu_seconds: float = 0.0
    """CPU time of all other processes on the same CPUs, without the workers of other contenders."""
    parent_cpu_seconds: float = 0.0
    """CPU time of this process alone."""
    batches: int = 0
    """The number of times that the contender was stepped."""
    learning_seconds: float = 0.0
    """Time that the contender spent on learning."""

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
    worker_mb: float | None = None
    """Mean proportional set size of its workers, in MB."""
    turns: list[Turn] = field(default_factory=list)
    idle_seconds: float = 0.0
    """Duration of the turns of the other contenders."""
    idle_cpu_seconds: float = 0.0
    """CPU time of its workers during these turns, which slows the others down."""
    error: str | None = None
    """The reason if it dropped out."""

    @property
    def rates(self) -> list[float]:
        return [turn.rate for turn in self.turns]

    @property
    def steps_per_second(self) -> float | None:
        """The env steps per second: the median over the rounds. None before the first round."""
        return median(self.rates) if self.turns else None

    @property
    def parent_us_a_batch(self) -> float | None:
        """The CPU time of this process for each batch, in microseconds: the median over the rounds."""
        each = [1e6 * turn.parent_cpu_seconds / turn.batches for turn in self.turns if turn.batches]
        return median(each) if each else None

    @property
    def learning_share(self) -> float:
        """The share of the contender's time that was spent on learning. Faster envs do not save this time."""
        return sum(turn.learning_seconds for turn in self.turns) / sum(turn.seconds for turn in self.turns)

    def cpu_share(self, cores: int) -> float | None:
        """Returns CPU seconds per second and core during the contender's turns: 1.0 means that every core was busy."""
        if not self.turns:
            return None
        return sum(turn.cpu_seconds for turn in self.turns) / sum(turn.seconds for turn in self.turns) / cores

    def idle_cpu_share(self, cores: int) -> float:
        """Returns the CPU time of the contender's workers in other contenders' turns, as a share of all cores' time."""
        return self.idle_cpu_seconds / self.idle_seconds / cores if self.idle_seconds else 0.0


@dataclass(frozen=True)
class Result:
    """The result of a benchmark. ``entries`` begins with the plain loop and remuda."""

    env: str
    num_envs: int
    num_workers: int
    backend: str
    start_method: str | None
    rounds: int
    seconds: float
    """Time of each contender in all rounds together."""
    cores: int
    """Cores that this process may use."""
    loops: int
    """The number of plain loops in the ideal."""
    entries: Sequence[Entry]
    cpus: int = 1
    """CPUs that this process may run on: more than its cores if its control group has a quota."""

    @property
    def plain(self) -> Entry:
        return self.entries[0]

    @property
    def remuda(self) -> Entry:
        return self.entries[1]

    @property
    def others_share(self) -> float:
        """The CPU time of other programs during all turns, as a share of the time of all CPUs."""
        return self._share([turn.others_cpu_seconds for entry in self.entries for turn in entry.turns])

    @property
    def own_share(self) -> float:
        """The CPU time of the contenders during their turns, as a share of the time of all CPUs."""
        return self._share([turn.cpu_seconds for entry in self.entries for turn in entry.turns])

    def _share(self, cpu_seconds: Sequence[float]) -> float:
        seconds = sum(turn.seconds for entry in self.entries for turn in entry.turns)
        return sum(cpu_seconds) / seconds / self.cpus if seconds else 0.0

    @property
    def ideal(self) -> float | None:
        """Env steps per second of `loops` plain loops that do not disturb each other."""
        plain = self.plain.steps_per_second
        return None if plain is None else plain * self.loops

    def ratio_to_ideal(self, entry: Entry) -> float | None:
        ratio = paired_ratio(entry, self.plain)
        return None if ratio is None else ratio / self.loops

    def advantage_over(self, entry: Entry) -> float | None:
        """Returns the ratio of remuda's speed to that of ``entry``."""
        return paired_ratio(self.remuda, entry)

    def entry(self, name: str) -> Entry | None:
        return next((entry for entry in self.entries if entry.name == name), None)


def paired_ratio(entry: Entry, base: Entry) -> float | None:
    """Returns the median over the rounds of ``entry``'s rate divided by ``base``'s rate in the same round.

    The rates of one round were measured within seconds, so that a slowdown of the whole machine cancels out.
    None means that no round has both rates.
    """
    ratios = [rate / base_rate for rate, base_rate in zip(entry.rates, base.rates, strict=False)]
    return median(ratios) if ratios else None
