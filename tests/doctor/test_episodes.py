"""The doctor's verdicts on episodes: which are resumed exactly, and which envs are wrong without an error."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from drawn import nightly
from resumed_envs import BufferEnv, CopiedEnv, EarlierEnv, OddWalkEnv, WalkEnv

from remuda._doctor.examination import examine
from remuda._doctor.findings import PLAYED_AGAIN, Finding

OUTSIDE = "it depends on something outside of it (the clock, files"
GLOBAL = "it depends on the global random numbers of Python or NumPy"
EARLIER = "it depends on the episodes before it in the same env"


def findings_on(env_fn: Any, steps: int = 40) -> dict[str, Finding]:
    report = examine("it", env_fn, env_fn, steps=steps, num_resets=8, timeout=600.0)
    return {finding.what: finding for finding in report.findings}


def wrong(found: dict[str, Finding]) -> set[str]:
    return {what for what, finding in found.items() if finding.verdict == "wrong"}


def test_an_env_that_draws_from_its_np_random_resumes_exactly() -> None:
    found = findings_on(WalkEnv)
    assert {finding.verdict for finding in found.values()} == {"right"}
    assert "3 episodes with" in found[PLAYED_AGAIN].text


@pytest.mark.parametrize(
    ("kind", "verdict", "text"),
    [
        ("clock", "wrong", f"the first episode of an env is not the same from step 1 on (observation): {OUTSIDE}"),
        (
            "global random",
            "wrong",
            f"the first episode of an env is not the same from step 1 on (observation): {GLOBAL}",
        ),
        ("global numpy", "wrong", f"the first episode of an env is not the same from step 1 on (reward): {GLOBAL}"),
        ("file", "note", f"the first episode of an env is not the same from step 1 on (info['builds']): {OUTSIDE}"),
        ("race", "wrong", OUTSIDE),
        ("own space", "wrong", f"the first episode of an env is not the same from step 1 on (reward): {OUTSIDE}"),
    ],
)
def test_planted_nondeterminism_is_found(kind: str, verdict: str, text: str, tmp_path: Path) -> None:
    found = findings_on(partial(OddWalkEnv, kind, tmp_path / "builds"))
    assert text in found[PLAYED_AGAIN].text
    assert found[PLAYED_AGAIN].verdict == verdict
    assert found[PLAYED_AGAIN].advice is not None


@pytest.mark.parametrize(
    ("kind", "which", "advice"),
    [
        ("own generator", "the second one, without a seed, is not the same from its reset on", "seeding='per_episode'"),
        ("levels", "the second one, without a seed, is not the same from its reset on", "reset() must begin"),
    ],
)
def test_an_env_with_episodes_that_depend_on_earlier_ones_is_no_fault(kind: str, which: str, advice: str) -> None:
    finding = findings_on(partial(EarlierEnv, kind))[PLAYED_AGAIN]
    assert finding.verdict == "note"
    assert which in finding.text and EARLIER in finding.text
    assert advice in str(finding.advice)


@pytest.mark.parametrize(
    ("kind", "how"),
    [
        ("seeded in the factory", "without a seed are the same for"),
        ("constant seed", "without a seed are the same for"),
        ("global", "both draw from random"),
        ("own", "both draw from own of CopiedEnv"),
    ],
)
def test_envs_that_are_copies_of_each_other_are_wrong(kind: str, how: str) -> None:
    found = findings_on(partial(CopiedEnv, kind))
    assert "copies" in wrong(found)
    assert how in found["copies"].text


def test_an_array_that_is_changed_after_it_was_returned_is_wrong() -> None:
    found = findings_on(partial(BufferEnv, is_shared=True))
    assert wrong(found) == {"the observation's array"}
    assert "that step 0 has returned was changed by the next step" in found["the observation's array"].text


def test_an_observation_that_never_changes_is_wrong() -> None:
    assert wrong(findings_on(partial(BufferEnv, is_shared=False))) == {"the observation"}


def test_nan_is_wrong() -> None:
    found = findings_on(partial(OddWalkEnv, "NaN"))
    assert wrong(found) == {"NaN"}
    assert found["NaN"].text == "in an observation or reward after 3 steps"


@pytest.mark.parametrize(
    ("env_id", "options"),
    [
        pytest.param("Acrobot-v1", {}, marks=nightly),
        ("Blackjack-v1", {}),
        ("CartPole-v1", {}),
        pytest.param("CliffWalking-v1", {}, marks=nightly),
        pytest.param("CliffWalking-v1", {"is_slippery": True}, marks=nightly),
        pytest.param("FrozenLake-v1", {}, marks=nightly),
        ("FrozenLake-v1", {"is_slippery": False, "desc": ["SF", "HG"]}),
        pytest.param("MountainCar-v0", {}, marks=nightly),
        pytest.param("MountainCarContinuous-v0", {}, marks=nightly),
        ("Pendulum-v1", {}),
        ("Taxi-v4", {}),
    ],
)
def test_nothing_is_wrong_with_envs_of_gymnasium(env_id: str, options: dict[str, Any]) -> None:
    found = findings_on(partial(gymnasium.make, env_id, **options), steps=200)
    assert {finding.verdict for finding in found.values()} == {"right"}, found


def test_the_time_of_an_episode_in_its_last_info_is_no_difference() -> None:
    def timed() -> Any:
        return gymnasium.wrappers.RecordEpisodeStatistics(gymnasium.make("CartPole-v1"))

    assert findings_on(timed)[PLAYED_AGAIN].verdict == "right"
