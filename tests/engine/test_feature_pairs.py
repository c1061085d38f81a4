"""Every two compatible features of a pool, tested in one pool beside a serial pool with the same commands."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import features
import pytest
from drawn import MINUTES
from features import FACTORS, REFUSALS, SLOTS, Combination, Refusal
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from scripted_envs import scripted, vectors
from twins import Twins

from remuda import Pool

EVENTS = (
    "options",
    "fail in step",
    "fail in reset",
    "kill",
    "reset some",
    "reset all",
    "tell",
    "ask",
    "observe",
    "go back",
    "split",
    "some",
    "fail in step",
    "some",
)

scripts = st.tuples(st.permutations(EVENTS), st.lists(st.integers(1, 15), min_size=len(EVENTS), max_size=len(EVENTS)))


def name(combination: Combination) -> str:
    return " ".join(f"{k}={v}" for k, v in combination.items() if v != FACTORS[k][0]) or "plain"


def lead(combination: Combination, events: list[str], picks: list[int]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        twins = Twins(combination, Path(directory))
        try:
            _lead(twins, list(zip(events, picks, strict=True)))
        finally:
            twins.close()


def _lead(twins: Twins, script: list[tuple[str, int]]) -> None:
    combination = twins.combination
    twins.reset_all(seed=7)
    if combination["parts"] > 1:
        twins.split(combination["parts"])
    for event, pick in script:
        happen(twins, event, pick)
        twins.step()
        twins.step()
    if combination["crash_dir"]:
        twins.check_records()
    if not twins.restarts and (not twins.has_threads or combination["deadlines"]):
        twins.lose_worker(script[0][1], "hang" if combination["deadlines"] else "death")


def happen(twins: Twins, event: str, pick: int) -> None:
    """Triggers an event if the features allow it."""
    combination = twins.combination
    if event.startswith("fail in"):
        kinds = twins.kinds(in_reset=event == "fail in reset")
        if kinds:
            (twins.fail_in_reset if event == "fail in reset" else twins.fail_in_step)(pick, kinds[pick % len(kinds)])
    elif event == "kill" and "death" in twins.kinds(in_reset=False):
        twins.kill_idle(pick)
    elif event == "reset some":
        twins.reset_some(pick)
    elif event == "reset all":
        twins.reset_all_again(pick)
    elif event == "split" and combination["parts"] > 1:
        twins.split(1)
        twins.step()
        twins.split(combination["parts"])
    elif event == "options" and combination["reset_options"]:
        twins.set_reset_options(pick)
    elif event == "some" and combination["partial"]:
        twins.step([slot for slot in range(SLOTS) if pick >> (slot // twins.width) & 1])
    elif event == "observe":
        twins.observe()
    elif event == "go back":
        twins.go_back(pick)
    elif combination["calls"] and event == "tell":
        twins.set_bonus(pick)
    elif combination["calls"] and event == "ask":
        twins.ask_in_flight()


def how_long(examples: int) -> Any:
    soak = {"max_examples": round(examples * (1 + MINUTES)), "derandomize": False} if MINUTES else {}
    return settings(
        **{"max_examples": examples, **soak},
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],  # shrinking would take minutes, because it repeats the deaths many times
        report_multiple_bugs=False,
    )


combinations = st.fixed_dictionaries({factor: st.sampled_from(values) for factor, values in FACTORS.items()}).filter(
    lambda combination: not features.is_refused(combination)
)


@pytest.mark.watchdog(600 + 60 * MINUTES)
@pytest.mark.parametrize("combination", features.covering(), ids=name)
def test_features_work_together(combination: Combination) -> None:
    @how_long(1)
    @given(script=scripts)
    def test(script: tuple[list[str], list[int]]) -> None:
        lead(combination, *script)

    test()


@pytest.mark.skipif(not MINUTES, reason="draws more than pairs, for as long as there is time: make soak")
@pytest.mark.watchdog(600 + 600 * MINUTES)
def test_any_features_work_together() -> None:
    @how_long(20)
    @given(combination=combinations, script=scripts)
    def test(combination: Combination, script: tuple[list[str], list[int]]) -> None:
        lead(combination, *script)

    test()


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: " ".join(f"{f}={v}" for f, v in refusal.choices))
def test_incompatible_features_are_refused(refusal: Refusal, tmp_path: Path) -> None:
    arguments = features.pool_arguments(features.plain(*refusal.choices), tmp_path)
    width = arguments["vector_size"] or 1
    env_fns = scripted(SLOTS + arguments["spares"], tmp_path, width)
    env_fns = vectors(env_fns, width, arguments["autoreset"]) if width > 1 else env_fns
    with pytest.raises(ValueError, match=refusal.says), Pool(env_fns, **arguments) as pool:
        assert ("reset_options", True) in refusal.choices, "the pool should have been refused"
        pool.set_reset_options({"level": 1})


def test_the_document_lists_all_pairs() -> None:
    text = features.DOCUMENT.read_text()
    assert features.with_tables(text) == text, "run tests/features.py"
