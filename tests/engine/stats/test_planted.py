"""Real pools with something planted in them, so large that no other program hides it: the verdict names it.

What is about cores (too many workers, a busy machine) is in `test_verdict`, with figures made up.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from pool_envs import HookedEnv

from remuda import Pool, Verdict

SHORT, LONG = 0.001, 0.04


def sleeper(step: Callable[[int], float], reset: float = 0.0, length: int = 1_000_000) -> Callable[[], Any]:
    """`step`: seconds of the n-th step."""

    def build() -> Any:
        steps = 0

        def on_step(*_: Any) -> None:
            nonlocal steps
            steps += 1
            time.sleep(step(steps))

        return HookedEnv(0, length, step=on_step, autoreset=lambda *_: time.sleep(reset))

    return build


def always(seconds: float) -> Callable[[int], float]:
    return lambda _: seconds


def verdict_of(env_fns: Sequence[Callable[[], Any]], policy: float = 0.0, **options: Any) -> Verdict:
    with Pool(env_fns, advise=False, **options) as pool:
        pool.reset()
        pool.step([0] * pool.num_envs)
        before = pool.stats()
        for _ in range(32):
            time.sleep(policy)
            pool.step([0] * pool.num_envs)
        return (pool.stats() - before).verdict


@pytest.mark.parametrize("backend", ["process", "thread"])
def test_one_slow_env_among_eight(backend: Any) -> None:
    verdict = verdict_of(
        [sleeper(always(LONG if env == 5 else SHORT)) for env in range(8)], num_workers=8, backend=backend
    )
    assert verdict.cause == "slow env", verdict
    assert "env 5 takes" in verdict.text
    assert "min_envs=7" in (verdict.code or "")


def test_any_env_that_is_slow_now_and_then() -> None:
    def seldom(env: int) -> Callable[[int], float]:
        return lambda step: LONG if step % 8 == env else SHORT

    verdict = verdict_of([sleeper(seldom(env)) for env in range(8)], num_workers=8)
    assert verdict.cause == "stragglers", verdict
    assert "min_envs=6" in (verdict.code or "")


def test_resets_that_all_others_wait_for() -> None:
    verdict = verdict_of([sleeper(always(SHORT), reset=LONG, length=4 + env) for env in range(4)], num_workers=4)
    assert verdict.cause == "slow resets", verdict
    assert "spares=" in (verdict.code or "")


def test_the_same_with_spares_is_no_matter_of_resets() -> None:
    verdict = verdict_of([sleeper(always(SHORT), reset=LONG, length=4)] * 6, spares=2)
    assert verdict.cause != "slow resets", verdict


@pytest.mark.parametrize("backend", ["process", "thread", "serial"])
def test_a_policy_that_takes_longest(backend: Any) -> None:
    verdict = verdict_of([sleeper(always(0.0))] * 2, policy=LONG, num_workers=2, backend=backend)
    assert verdict.cause == "policy", verdict


def test_envs_that_wait_in_a_row() -> None:
    verdict = verdict_of([sleeper(always(LONG / 4))] * 8, num_workers=1)
    assert verdict.cause == "too few workers", verdict
    assert "num_workers=8" in (verdict.code or "")


def test_envs_that_wait_at_the_same_time_are_as_they_should_be() -> None:
    verdict = verdict_of([sleeper(always(LONG))] * 4, num_workers=4)
    assert verdict.cause == "env step", verdict
