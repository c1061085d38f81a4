"""The code that a verdict suggests keeps the options of the pool and the isolation of its workers."""

from __future__ import annotations

import ast
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_up_stats import US, each, snapshot
from pool_envs import CountingEnv, counting

import remuda
from remuda import FaultPolicy, Pool, PoolStats, Setup
from remuda._engine.options.given import Asked, as_code
from remuda._engine.options.pool_options import OPTIONS
from remuda._engine.pool.advice import advice
from remuda.gymnasium import AsyncVectorEnv

MS = 1e-3
CROWD: dict[str, Any] = {"steps": [each(23 * US)] * 64, "workers": 64, "waited": 1400 * US, "own": 95 * US}
CHEAP: dict[str, Any] = {"steps": [each(2 * US)] * 8, "workers": 2, "waited": 60 * US, "own": 10 * US}
GATHERED: dict[str, Any] = {"steps": [each(6 * US)] * 8, "workers": 2, "waited": 20 * US, "gathering": 400 * US}
IN_A_ROW: dict[str, Any] = {"steps": [each(5 * MS)] * 8, "workers": 1, "cpu": 0.01, "waited": 40 * MS}
BUSY: dict[str, Any] = {
    "steps": [each(1 * MS)] * 8,
    "workers": 2,
    "waited": 8.5 * MS,
    "own": 0.2 * MS,
    "queued": 4.3 * MS,
    "others": 1.5,
}
POLICY: dict[str, Any] = {"steps": [each(6 * US)] * 8, "workers": 8, "waited": 50 * US, "own": 500 * US}


def setup_options(**options: Any) -> dict[str, Any]:
    """Returns the keywords of a `snapshot` for a pool that was made with these options."""
    policy = FaultPolicy.of(options.get("faults", "raise"))
    given = {**{name: option.default for name, option in OPTIONS.items()}, **options}
    return vars(Asked.of(given, policy))


def keywords(code: str | None) -> dict[str, str]:
    """Returns the keywords of the call at the end of the code."""
    assert code is not None
    call = ast.parse(code).body[-1].value  # type: ignore[attr-defined]
    return {str(one.arg): ast.unparse(one.value).replace("'", '"') for one in call.keywords}


@pytest.mark.parametrize("figures", [CROWD, CHEAP, GATHERED, BUSY])
@pytest.mark.parametrize(
    "options", [{"faults": "restart"}, {"faults": FaultPolicy(step_timeout=1.0)}, {"max_worker_memory": "1GiB"}]
)
def test_less_isolation_is_never_suggested(figures: Any, options: Any) -> None:
    stats = snapshot(**figures, **setup_options(**options))
    verdict = stats.verdict
    assert "num_workers" not in f"{verdict.text} {verdict.code}"
    assert "auto" not in f"{verdict.text} {verdict.code}"
    assert "without workers" not in verdict.text
    assert advice(stats) is None


def test_more_envs_for_a_slow_policy_keep_one_worker_each() -> None:
    policy = "restart"
    assert keywords(snapshot(**POLICY, **setup_options(faults=policy)).verdict.code) == {"faults": '"restart"'}
    crowded = snapshot(**{**POLICY, "workers": 4}, **setup_options(faults=policy, num_workers=4))
    assert keywords(crowded.verdict.code) == {"faults": '"restart"', "num_workers": "8"}


def test_more_workers_keep_the_other_options() -> None:
    policy = FaultPolicy("restart", step_timeout=0.5)
    options: dict[str, Any] = {"num_workers": 1, "faults": policy, "frames": 8, "worker_env": lambda worker: {}}
    stats = snapshot(**IN_A_ROW, **setup_options(**options, autoreset="next_step"))
    assert keywords(stats.verdict.code) == {
        "num_workers": "8",
        "faults": 'remuda.FaultPolicy(on_fault="restart", step_timeout=0.5)',
        "frames": "8",
        "worker_env": "worker_env",  # the function has no source that the code could show
    }
    text = advice(stats) or ""
    assert "num_workers=8 should be faster" in text
    assert "'auto'" not in text  # "auto" might choose fewer workers


def test_spares_keep_all_options_except_num_workers() -> None:
    resets = remuda.Durations.of([0.3] * 10)
    figures: dict[str, Any] = {"steps": [each(1 * MS)] * 8, "resets": [resets] * 8, "workers": 8, "cpu": 0.02}
    stats = snapshot(**figures, waited=24 * MS, **setup_options(num_workers=8, seeding="per_episode"))
    code = keywords(stats.verdict.code)
    assert stats.verdict.cause == "slow resets"
    assert (code.keys(), code["seeding"]) == ({"spares", "seeding"}, '"per_episode"')
    limited = snapshot(**figures, waited=24 * MS, **setup_options(max_concurrency=2))
    assert limited.verdict.code is None  # spares and max_concurrency exclude each other


@pytest.mark.parametrize(
    "value",
    ["text", 3, 2.5, True, None, Path("crashes"), [1, "two"], {"a": 1}, FaultPolicy("restart", max_restarts=2)],
)
def test_the_code_of_a_value_makes_it(value: Any) -> None:
    code = as_code(value)
    assert code is not None
    made = eval(code, {"remuda": remuda})
    assert made == (str(value) if isinstance(value, Path) else value)


@pytest.mark.parametrize("value", [object(), len, [len], {"a": len}, float("inf")])
def test_a_value_without_source_has_no_code(value: Any) -> None:
    assert as_code(value) is None


def suggested_for(stats: PoolStats) -> dict[str, str]:
    """Returns the keywords that the verdict suggests for a pool of this setup with too few workers."""
    few = snapshot(**IN_A_ROW)
    setup = replace(stats.setup, envs_of_worker=(8,), is_chosen=False, backend="process")
    return keywords(replace(few, setup=setup).verdict.code)


def test_a_suggestion_has_the_pools_options() -> None:
    with Pool(counting(2), num_workers=1, backend="thread", faults="restart", frames=6) as pool:
        stats = pool.stats()
    assert stats.setup.keeps_apart
    assert suggested_for(stats) == {
        "num_workers": "8",
        "backend": '"thread"',
        "faults": '"restart"',
        "frames": "6",
    }


@pytest.mark.skipif(sys.platform != "linux", reason="worker processes need Linux")
def test_a_suggestion_for_a_face_uses_its_option_names() -> None:
    envs = AsyncVectorEnv([CountingEnv] * 2, num_workers=1, autoreset_mode="SameStep", context="spawn", frames=6)
    try:
        stats = envs.stats()
    finally:
        envs.close()
    assert suggested_for(stats) == {
        "num_workers": "8",
        "autoreset_mode": '"SameStep"',
        "context": '"spawn"',
        "frames": "6",
    }


def test_a_setup_without_options_keeps_none() -> None:
    assert (Setup((1,)).options, Setup((1,)).keeps_apart, Setup((1,)).needs_processes) == ((), False, False)
