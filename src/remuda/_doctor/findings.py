"""Judges the results of the trials of an env."""

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
"""The growth per reset that counts as a leak: 1 GiB in 32,768 episodes."""
_LEAST_RESETS = 8

ONE_EACH = "num_workers=num_envs (or None), backend='process': one process for each env"
_LIMIT = "max_worker_memory='2GiB', or FaultPolicy('restart', renew_every=500): a new process before it is too large"
_INSTEAD = {  # by situation
    BUILT_FIRST: (
        "close an env before the next one is built in its process: pool.replace does that if the env has a render_mode"
    ),
    CLOSED_FIRST: "do not replace envs in living workers; renew them with FaultPolicy('restart', renew_every=...)",
}


@dataclass(frozen=True)
class Finding:
    """The result of one examination. `advice`: a way to avoid the problem; None if there is no advice."""

    what: str
    verdict: Verdict
    text: str
    advice: str | None = None


def judge_pictures(
    found: Mapping[str, tuple[int, int, Sequence[Picture]]],
    expected: Mapping[int, Sequence[Sequence[Picture]]],
) -> list[Finding]:
    """Compares the pictures that envs drew in a shared process with those that they drew alone.

    `found`: by situation, the seed of the env, how often it had drawn before, and the pictures. `expected`: by seed.
    """
    findings = []
    for situation, (seed, number, drawn) in found.items():
        what = f"picture when {situation}"
        if difference := _difference(drawn, expected[seed][number]):
            findings.append(Finding(what, "wrong", difference, _INSTEAD.get(situation, ONE_EACH)))
        else:
            findings.append(Finding(what, "right", "as alone in a process"))
    return findings


def judge_repetition(first: Sequence[Sequence[Picture]], again: Sequence[Sequence[Picture]]) -> Finding:
    """Judges whether an env draws the same pictures in two processes. If not, its pictures cannot be compared."""
    what = "picture alone in a process"
    for one, other in zip(first, again, strict=True):
        if difference := _difference(one, other):
            text = f"{difference}, with the same seed and actions: pictures cannot be compared"
            return Finding(what, "unknown", text)
    return Finding(what, "right", "the same in two processes")


def judge_memory(sizes: Sequence[int]) -> Finding:
    """Judges whether resets leak memory: a leak grows in both halves of the resets, a cache in one half only."""
    if len(sizes) < _LEAST_RESETS:
        return Finding("memory", "unknown", f"{len(sizes)} resets in a minute are too few for a result")
    half = len(sizes) // 2
    slope = min(_slope(sizes[:half]), _slope(sizes[half:]))
    text = f"{in_words(max(0.0, slope))} more with each of {len(sizes)} resets"
    return Finding("memory", "wrong", text, _LIMIT) if slope >= LEAK_BYTES else Finding("memory", "right", text)


def _slope(sizes: Sequence[int]) -> float:
    """Returns the median of the slopes between all pairs of sizes. A single jump in size hardly changes the median."""
    pairs = itertools.combinations(enumerate(sizes), 2)
    return median((later - earlier) / (j - i) for (i, earlier), (j, later) in pairs)


def _difference(drawn: Sequence[Picture], expected: Sequence[Picture]) -> str | None:
    """Describes how pictures differ from the expected ones. Returns None if all are equal."""
    shapes = [one.shape for one in drawn], [one.shape for one in expected]
    if shapes[0] != shapes[1]:
        return f"pictures of shapes {shapes[0]}, alone in a process {shapes[1]}"
    for one, other in zip(drawn, expected, strict=True):
        if not np.array_equal(one, other):
            apart = np.abs(one.astype(float) - other.astype(float))
            return f"{np.count_nonzero(apart):,} of {apart.size:,} values differ, by up to {apart.max():g}"
    return None
