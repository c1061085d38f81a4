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
    ("kind", "verdict", "where", "why"),
    [
        ("clock", "wrong", "observation", OUTSIDE),
        ("global random", "wrong", "observation", GLOBAL),
        ("global numpy", "wrong", "reward", GLOBAL),
        ("file", "note", "info['builds']", OUTSIDE),
        ("race", "wrong", None, OUTSIDE),
        ("own space", "wrong", "reward", OUTSIDE),
    ],
)
def test_planted_nondeterminism_is_found(kind: str, verdict: str, where: str | None, why: str, tmp_path: Path) -> None:
    finding = findings_on(partial(OddWalkEnv, kind, tmp_path / "builds"))[PLAYED_AGAIN]
    text = f"the first episode of an env is not the same from step 1 on ({where}): {why}"
    assert (text if where else why) in finding.text
    assert finding.verdict == verdict
    assert finding.advice is not None


@pytest.mark.parametrize(
    ("kind", "advice"), [("own generator", "seeding='per_episode'"), ("levels", "reset() must begin")]
)
def test_an_env_with_episodes_that_depend_on_earlier_ones_is_no_fault(kind: str, advice: str) -> None:
    finding = findings_on(partial(EarlierEnv, kind))[PLAYED_AGAIN]
    assert finding.verdict == "note"
    assert "the second one, without a seed, is not the same from its reset on" in finding.text
    assert EARLIER in finding.text and advice in str(finding.advice)


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


def test_an_array_that_is_changed_after_it_was_returned_or_that_never_changes_is_wrong() -> None:
    found = findings_on(partial(BufferEnv, is_shared=True))
    assert wrong(found) == {"the observation's array"}
    assert "that step 0 has returned was changed by the next step" in found["the observation's array"].text
    assert wrong(findings_on(partial(BufferEnv, is_shared=False))) == {"the observation"}


def test_nan_is_wrong() -> None:
    found = findings_on(partial(OddWalkEnv, "NaN"))
    assert wrong(found) == {"NaN"}
    assert found["NaN"].text == "in an observation or reward after 3 steps"


IDS = ("Acrobot-v1", "CliffWalking-v1", "FrozenLake-v1", "MountainCar-v0", "MountainCarContinuous-v0")


@pytest.mark.parametrize(
    ("env_id", "options"),
    [
        *(pytest.param(env_id, {}, marks=nightly) for env_id in IDS),
        pytest.param("CliffWalking-v1", {"is_slippery": True}, marks=nightly),
        *((env_id, {}) for env_id in ("Blackjack-v1", "CartPole-v1", "Pendulum-v1", "Taxi-v4")),
        ("FrozenLake-v1", {"is_slippery": False, "desc": ["SF", "HG"]}),
    ],
)
def test_nothing_is_wrong_with_envs_of_gymnasium(env_id: str, options: dict[str, Any]) -> None:
    found = findings_on(partial(gymnasium.make, env_id, **options), steps=200)
    assert {finding.verdict for finding in found.values()} == {"right"}, found


def test_the_time_of_an_episode_in_its_last_info_is_no_difference() -> None:
    def timed() -> Any:
        return gymnasium.wrappers.RecordEpisodeStatistics(gymnasium.make("CartPole-v1"))

    assert findings_on(timed)[PLAYED_AGAIN].verdict == "right"
