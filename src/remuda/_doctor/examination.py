"""Runs the trials of an env in workers, and makes a report of what they find."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import remuda
from remuda._doctor.findings import ONE_EACH, Finding, judge_memory, judge_pictures, judge_repetition
from remuda._doctor.trials import A, B, EnvFn, Stage, alone, resets, together
from remuda.errors import RemudaError

_SOFTWARE = ("llvmpipe", "softpipe", "swrast", "software")


@dataclass(frozen=True)
class Report:
    """What is right and wrong with an env.

    Attributes:
        env: Its name.
        findings: Of each thing that was examined.
        workers: Of each worker in which the env was alone: what it renders on.
    """

    env: str
    findings: Sequence[Finding]
    workers: Sequence[dict[str, str]]

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
        return "\n".join([*lines, *(f"  advice: {one}" for one in self.advice)])


def rendered_on(where: dict[str, str]) -> str:
    """A renderer or GPU in words; with the variables that choose it."""
    renderer = where.get("renderer")
    named = "what it does not tell" if renderer is None else renderer
    if renderer is not None and any(word in renderer.lower() for word in _SOFTWARE):
        named = f"the CPU, in software ({renderer})"
    chosen = ", ".join(f"{name}={value}" for name, value in where.items() if name != "renderer")
    return f"{named} [{chosen}]" if chosen else named


def examine(name: str, env_fn: EnvFn, other_fn: EnvFn, *, num_resets: int, timeout: float, **options: Any) -> Report:
    """Tries an env alone and beside another one. A worker that dies or hangs is a finding.

    Args:
        name: Of the env.
        env_fn, other_fn: Factories of the env, and of the one beside it.
        num_resets: That are measured.
        timeout: Seconds for all trials.
        **options: Of the pool whose workers run the trials.
    """
    asked: list[tuple[Callable[..., Any], tuple[Any, ...], str]] = [
        (alone, (env_fn, A), "alone in a process"),
        (alone, (env_fn, A), "alone in another process"),
        (alone, (other_fn, B), "the other env, alone in a process"),
        (together, (env_fn, other_fn), "beside another env"),
        (resets, (env_fn, num_resets, 5), "resets"),
    ]
    pool = remuda.Pool([Stage] * len(asked), num_workers=None, **options)
    answers, findings, end = list[Any](), list[Finding](), time.monotonic() + timeout
    try:
        calls = [pool.apply_async(trial, args, env_ids=[i]) for i, (trial, args, _) in enumerate(asked)]
        for call, (_, _, what) in zip(calls, asked, strict=True):
            try:
                answers.append(call.result(timeout=max(0.0, end - time.monotonic()))[0])
            except (RemudaError, TimeoutError) as error:
                answers.append(None)
                advice = ONE_EACH if what.startswith("beside") else None
                lines = str(error).strip().splitlines() or [type(error).__name__]
                findings.append(Finding(what, "wrong", lines[0], advice))
    finally:
        pool.close(terminate=True)
    return Report(name, [*_judged(*answers), *findings], [one[1] for one in answers[:2] if one is not None])


def _judged(first: Any, again: Any, other: Any, beside: Any, sizes: Any) -> list[Finding]:
    """Of those trials that were not None."""
    findings = []
    if first is not None and again is not None:
        repetition = judge_repetition(first[0], again[0])
        findings.append(repetition)
        if repetition.verdict == "right" and other is not None and beside is not None:
            findings += judge_pictures(beside, {A: first[0], B: other[0]})
    return findings if sizes is None else [*findings, judge_memory(sizes)]
