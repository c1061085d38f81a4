"""Judges the results of the trials of an env."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

import numpy as np

from remuda._doctor.episodes import Episode, Row
from remuda._doctor.trials import BUILT_FIRST, CLOSED_FIRST, Picture
from remuda._worker.memory import in_words

Verdict = Literal["right", "wrong", "note", "unknown"]

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
PLAYED_AGAIN = "an episode played again"
_GLOBAL, _EARLIER = "the global random numbers of Python or NumPy", "the episodes before it in the same env"
_OUTSIDE = "something outside of it (the clock, files, threads, addresses), or random numbers that no seed begins"
_ADVICE = {  # by cause
    _GLOBAL: "draw random numbers from self.np_random only, which reset(seed=...) seeds: a replay depends on that",
    _OUTSIDE: "remove that part (a wrapper can drop it from an info): faults='resume' restarts such an env instead",
    _EARLIER: "reset() must begin an episode from its seed or self.np_random only: faults='resume' depends on that",
}
_ONE_SEED = "pass the seed of reset() on to super().reset(seed=seed), and use no constant seed, neither in the factory"
PER_EPISODE = "seeding='per_episode', if faults='resume' or crash records shall repeat episodes: each gets a seed"
_COPY = "return a copy of the array: a replay buffer, or another code that keeps an observation, has wrong values"


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


def differences(played: Sequence[Episode], repeated: Sequence[Sequence[Row]]) -> list[tuple[int, str] | None]:
    """Returns for each episode the first step that was not the same, and a part of its row; None if all were.

    A part of an info is named only if all observations, rewards and flags were the same.
    """
    found: list[tuple[int, str] | None] = []
    for one, rows in zip(played, repeated, strict=True):
        parts = [
            (part.startswith("info"), step, part)
            for step, (row, other) in enumerate(zip(one.rows, rows, strict=False))
            for part in [*row, *(other.keys() - row.keys())]
            if row.get(part) != other.get(part)
        ]
        found.append(min(parts)[1:] if parts else None)
    return found


def judge_replay(
    different: Sequence[tuple[int, str] | None], *, with_shared_seeds: bool, in_one_env: bool, steps: int
) -> Finding:
    """Judges whether an env resumes exactly.

    Args:
        different: The `differences` of an episode with a seed, one that continued its random numbers, and another with
            a seed. Each was played again in an env of its own.
        with_shared_seeds: Whether they are the same if the random generators of the processes have the same seeds.
        in_one_env: Whether they are the same if all are played again, one after another in one env.
        steps: The number of steps that were compared.
    """
    found = [(n, *one) for n, one in enumerate(different) if one is not None]
    if not found:
        return Finding(PLAYED_AGAIN, "right", f"{len(different)} episodes with {steps:,} steps were the same")
    n, step, part = found[0]
    cause = _GLOBAL if with_shared_seeds else _EARLIER if in_one_env and n != 0 else _OUTSIDE
    which = "the first episode of an env", "the second one, without a seed,", "the third one, with a seed,"
    text = (
        f"{which[n]} is not the same from {f'step {step}' if step else 'its reset'} on ({part}): it depends on {cause}"
    )
    is_legal = part.startswith("info") or cause == _EARLIER
    advice = PER_EPISODE if cause == _EARLIER and n == 1 and different[2] is None else _ADVICE[cause]
    return Finding(PLAYED_AGAIN, "note" if is_legal else "wrong", text, advice)


def judge_copies(first: Sequence[Episode], other: Sequence[Episode]) -> list[Finding]:
    """Finds episodes of two envs that are copies: equal, although random numbers were drawn.

    The first ones had no seed, the others different seeds. Envs without chance have equal episodes too, but their
    generators differ.
    """
    for one, two, how in zip(first, other, ("without a seed", "with different seeds"), strict=True):
        same = {name for name in one.drawn_from if one.generators[name] == two.generators.get(name)}
        if same and differences([one], [two.rows]) == [None]:
            text = f"two envs reset {how} are the same for {len(one.rows) - 1:,} steps; both draw from {min(same)}"
            return [Finding("copies", "wrong", text, _ONE_SEED)]
    return []


def judge_arrays(played: Sequence[Episode]) -> list[Finding]:
    """Finds observations that were changed after they were returned."""
    steps = [one.changed_after for one in played if one.changed_after is not None]
    text = f"the observation that step {min(steps)} has returned was changed by the next step" if steps else ""
    return [Finding("the observation's array", "wrong", text, _COPY)] if steps else []


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
