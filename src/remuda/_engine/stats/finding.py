"""A verdict: what holds a pool's throughput back, and what to change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Cause: TypeAlias = Literal[
    "unknown",
    "policy",
    "pool",
    "env step",
    "infos",
    "faults",
    "slow resets",
    "slow env",
    "stragglers",
    "too few workers",
    "too many workers",
    "busy machine",
]


@dataclass(frozen=True)
class Verdict:
    """What holds the throughput back. As a text it is one line, with the figures.

    Attributes:
        cause: One of "policy" (your program's own code), "env step", "slow resets", "slow env" (one or few are slower
            than the others), "stragglers" (any env now and then), "too few workers", "too many workers", "busy machine"
            (others have the cores, be it the host of a virtual machine), "pool" (what the pool itself does: making
            batches, waking workers) and "unknown" (too little was done yet).
        text: The same in a sentence.
        code: What to change, to be pasted; None where nothing about the pool would help. It keeps the options that the
            pool was made with. `env_fns` stands for your factories, `pool`, `batch` and `policy` for what you have, and
            the name of an option for a value that code cannot show.
        saves: The share of the time that is expected to go with it, from 0 to 1: a rough estimate.
        found: The text without what it suggests.
    """

    cause: Cause
    text: str
    code: str | None = None
    saves: float = 0.0
    found: str = ""

    def __str__(self) -> str:
        return self.text


def verdict_of(cause: Cause, found: str, then: str, code: str | None, saves: float) -> Verdict:
    """A verdict whose text is made of parts.

    Args:
        cause, code, saves: As `Verdict` has them.
        found: What holds the throughput back.
        then: What to do about it, with the punctuation before it.
    """
    return Verdict(cause, f"{cause}: {found}{then}", code, saves, f"{cause}: {found}")
