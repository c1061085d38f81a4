"""Runs the trials of an env in workers, and reports their findings."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

import remuda
from remuda._crash.episode_start import load_start
from remuda._doctor.episodes import PROCESS_GENERATORS, Episode, episodes, play_again
from remuda._doctor.findings import (
    ONE_EACH,
    PER_EPISODE,
    PLAYED_AGAIN,
    Finding,
    differences,
    judge_arrays,
    judge_copies,
    judge_memory,
    judge_pictures,
    judge_repetition,
    judge_replay,
)
from remuda._doctor.play import play
from remuda._doctor.trials import A, B, EnvFn, Stage, alone, resets, together
from remuda.errors import RemudaError

Trial: TypeAlias = tuple[Any, ...]  # a function that runs in a worker, and its arguments

_SEEDS = 0, None, 1  # of the episodes that are played again
_LEAST_STEPS = 20  # of an episode that is played again
_BESIDE = "beside another env"
_SOFTWARE = ("llvmpipe", "softpipe", "swrast", "software")


@dataclass(frozen=True)
class Report:
    """The findings of an examination of an env."""

    env: str
    findings: Sequence[Finding]
    workers: Sequence[dict[str, str]]  # by worker: its renderer, and the environment variables that choose one

    @property
    def is_wrong(self) -> bool:
        return any(finding.verdict == "wrong" for finding in self.findings)

    @property
    def advice(self) -> list[str]:
        return list(dict.fromkeys(finding.advice for finding in self.findings if finding.advice is not None))

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "advice": self.advice, "wrong": self.is_wrong}

    def __str__(self) -> str:
        lines = [self.env]
        lines += [f"  {finding.verdict:8}{finding.what}: {finding.text}" for finding in self.findings]
        lines += [f"  worker {i} renders on {rendered_on(where)}" for i, where in enumerate(self.workers)]
        lines += [f"  advice: {one}" for one in self.advice]
        counts = Counter(finding.verdict for finding in self.findings)
        total = ", ".join(
            f"{counts[verdict]} {verdict}" for verdict in ("wrong", "note", "unknown", "right") if counts[verdict]
        )
        return "\n".join([*lines, f"{'something is wrong' if self.is_wrong else 'nothing is wrong'}: {total}"])


def rendered_on(where: dict[str, str]) -> str:
    """Returns the name of a renderer or GPU, with the environment variables that choose it."""
    renderer = where.get("renderer", "a renderer without a name")
    if any(word in renderer.lower() for word in _SOFTWARE):
        renderer = f"the CPU, in software ({renderer})"
    chosen = ", ".join(f"{name}={value}" for name, value in where.items() if name != "renderer")
    return f"{renderer} [{chosen}]" if chosen else renderer


def examine(
    name: str, env_fn: EnvFn, other_fn: EnvFn, *, steps: int, num_resets: int, timeout: float, **options: Any
) -> Report:
    """Plays an env, and examines it alone and beside another in a process. A worker that dies or hangs is a finding.

    `timeout`: the seconds for all trials; `options`: options of the trials' pools.
    """
    end = time.monotonic() + timeout
    played = play(env_fn, steps, end, **options)
    length, seconds = max(_LEAST_STEPS, steps // 5), max(0.0, end - time.monotonic()) / 4
    trials: dict[str, Trial] = {
        "alone in a process": (alone, env_fn, A),
        "alone in another process": (alone, env_fn, A),
        "the other env, alone in a process": (alone, other_fn, B),
        _BESIDE: (together, env_fn, other_fn),
        "resets": (resets, env_fn, num_resets, 5),
        "episodes in a process": (episodes, env_fn, 0, _SEEDS, length, seconds),
        "episodes in a second process": (episodes, env_fn, 100, (None, 2), length, seconds),
        "episodes in a third process": (episodes, env_fn, 200, (None, 3), length, seconds),
    }
    results, failed = _run(trials, end, options)
    *drawings, first, one, other = results
    if first is not None:
        played += [*_replayed(env_fn, first, length, end, options), *judge_arrays(first)]
    if one is not None and other is not None:
        played += judge_copies(one, other)
    renderers = [result[1] for result in results[:2] if result is not None and any(result[0])]
    return Report(name, [*played, *_judged(*drawings), *failed], renderers)


def _run(trials: Mapping[str, Trial], end: float, options: Mapping[str, Any]) -> tuple[list[Any], list[Finding]]:
    """Runs trials, each in a process. Returns the result of each, None if it has failed, and the failures."""
    results, failed = list[Any](), list[Finding]()
    pool = remuda.Pool([Stage] * len(trials), num_workers=None, **options)
    try:
        calls = [pool.apply_async(trial, tuple(args), env_ids=[i]) for i, (trial, *args) in enumerate(trials.values())]
        for call, what in zip(calls, trials, strict=True):
            try:
                results.append(call.result(timeout=max(0.0, end - time.monotonic()))[0])
            except (RemudaError, TimeoutError) as error:
                results.append(None)
                lines = str(error).strip().splitlines() or [type(error).__name__]
                failed.append(Finding(what, "wrong", lines[0], ONE_EACH if what == _BESIDE and not failed else None))
    finally:
        pool.close(terminate=True)
    return results, failed


def _replayed(
    env_fn: EnvFn, played: Sequence[Episode], length: int, end: float, options: Mapping[str, Any]
) -> list[Finding]:
    """Plays episodes again, each in a process of its own like a pool that resumes them. Finds the cause of differences.

    The random generators of the processes have other seeds than before, and for the cause the same seeds.
    """
    if unknown := load_start(played[1].start).get("random_unknown"):
        text = f"an episode without a seed cannot be begun again: {unknown}"
        return [Finding(PLAYED_AGAIN, "note", text, PER_EPISODE)]

    def replays(shared: int) -> dict[str, Trial]:
        return {f"{PLAYED_AGAIN} ({n})": (play_again, env_fn, shared, n, one) for n, one in enumerate(played)}

    results, failed = _run(replays(300), end, options)
    if failed:
        is_over = time.monotonic() >= end
        return [Finding(PLAYED_AGAIN, "unknown", "the time allowed no result")] if is_over else failed
    different, with_shared_seeds, in_one_env = differences(played, results), False, False
    if any(different):
        whole: Trial = (episodes, env_fn, 400, _SEEDS, length, end - time.monotonic())
        (second, *results), _ = _run({"episodes in another process": whole, **replays(0)}, end, options)
        draws = any(one.drawn_from & PROCESS_GENERATORS for one in played)
        with_shared_seeds = draws and None not in results and not any(differences(played, results))
        in_one_env = second is not None and not any(differences(played, [one.rows for one in second]))
    steps = sum(len(one.rows) - 1 for one in played)
    return [judge_replay(different, with_shared_seeds=with_shared_seeds, in_one_env=in_one_env, steps=steps)]


def _judged(first: Any, again: Any, other: Any, beside: Any, sizes: Any) -> list[Finding]:
    """Judges the results of the trials. The result of a trial that has failed is None."""
    findings = []
    if first is not None and again is not None and (any(first[0]) or any(again[0])):
        findings.append(judge_repetition(first[0], again[0]))
        if findings[0].verdict == "right" and other is not None and beside is not None:
            findings += judge_pictures(beside, {A: first[0], B: other[0]})
    return findings if sizes is None else [*findings, judge_memory(sizes)]
