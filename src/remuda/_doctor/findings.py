"""Judges what the trials of an env have found."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

import numpy as np

from remuda._doctor.trials import BUILT_FIRST, CLOSED_FIRST, Picture
from remuda._worker.memory import in_words

Verdict = Literal["right", "wrong", "unknown"]

LEAK_BYTES = 32 << 10
"""A reset that takes so many bytes more each time leaks: that is 1 GiB in 32,768 episodes."""
_LEAST_RESETS = 8

ONE_EACH = "num_workers=num_envs (or None), backend='process': one process for each env"
_CLOSED_FIRST = (
    "close an env before the next one is built in its process: pool.replace does that if the env has a render_mode"
)
_RENEW = "do not replace envs in living workers; renew them with FaultPolicy('restart', renew_every=...)"
_LIMIT = "max_worker_memory='2GiB', or FaultPolicy('restart', renew_every=500): a new process before it is too large"


_ADVICE = {BUILT_FIRST: _CLOSED_FIRST, CLOSED_FIRST: _RENEW}


@dataclass(frozen=True)
class Finding:
    """One thing that was examined. `advice`: what to do; None: nothing."""

    what: str
    verdict: Verdict
    text: str
    advice: str | None = None


def judge_pictures(
    found: Mapping[str, tuple[int, int, Sequence[Picture]]],
    expected: Mapping[int, Sequence[Sequence[Picture]]],
) -> list[Finding]:
    """Compares pictures that were drawn beside other envs with those of each env alone.

    `found`: by situation, the seed of the env and how often it had drawn. `expected`: by seed.
    """
    findings = []
    for situation, (seed, number, drawn) in found.items():
        difference = _difference(drawn, expected[seed][number])
        what = f"picture when {situation}"
        if difference is None:
            findings.append(Finding(what, "right", "as alone in a process"))
        else:
            findings.append(Finding(what, "wrong", difference, _ADVICE.get(situation, ONE_EACH)))
    return findings


def judge_repetition(first: Sequence[Sequence[Picture]], again: Sequence[Sequence[Picture]]) -> Finding:
    """Whether an env draws the same twice: otherwise pictures cannot be compared."""
    what = "picture alone in a process"
    if not any(first):
        return Finding(
            what,
            "unknown",
            "none: the env has no render_mode that draws for its caller, and observes no pictures",
            "make it with render_mode='rgb_array' if it is to draw",
        )
    pairs = zip(first, again, strict=True)
    difference = next((told for one, other in pairs if (told := _difference(one, other))), None)
    if difference is None:
        return Finding(what, "right", "the same in two processes")
    return Finding(what, "unknown", f"{difference}, with the same seed and actions: pictures cannot be compared")


def judge_memory(sizes: Sequence[int]) -> Finding:
    """Whether memory grows with resets, in their first half and in their second: caches grow in one of these."""
    if len(sizes) < _LEAST_RESETS:
        return Finding("memory", "unknown", f"{len(sizes)} resets in a minute are too few to tell")
    half = len(sizes) // 2
    slope = min(_slope(sizes[:half]), _slope(sizes[half:]))
    text = f"{in_words(max(0.0, slope))} more with each of {len(sizes)} resets"
    return Finding("memory", "wrong", text, _LIMIT) if slope >= LEAK_BYTES else Finding("memory", "right", text)


def _slope(sizes: Sequence[int]) -> float:
    """The median slope of all pairs, which single large steps hardly move."""
    pairs = itertools.combinations(enumerate(sizes), 2)
    return median((later - earlier) / (j - i) for (i, earlier), (j, later) in pairs)


def _difference(drawn: Sequence[Picture], expected: Sequence[Picture]) -> str | None:
    """None: they are the same."""
    shapes = [one.shape for one in drawn], [one.shape for one in expected]
    if shapes[0] != shapes[1]:
        return f"pictures of shapes {shapes[0]}, alone in a process {shapes[1]}"
    for one, other in zip(drawn, expected, strict=True):
        if not np.array_equal(one, other):
            apart = np.abs(one.astype(float) - other.astype(float))
            return f"{np.count_nonzero(apart):,} of {apart.size:,} values differ, by up to {apart.max():g}"
    return None
