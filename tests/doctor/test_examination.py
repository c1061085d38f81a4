"""The doctor's verdicts: on fake envs that draw with a context of their process, without a library, and on episodes."""

from __future__ import annotations

import json
import os
import socket
from functools import partial
from pathlib import Path
from typing import Any

import accidents
import gymnasium
import numpy as np
import pytest
from drawing_envs import ContextEnv, OwnContextEnv, PixelEnv, TextEnv
from drawn import nightly
from pool_envs import HookedEnv
from resumed_envs import BufferEnv, CopiedEnv, EarlierEnv, OddWalkEnv, WalkEnv

from remuda._doctor.examination import Report, examine, rendered_on
from remuda._doctor.findings import LEAK_BYTES, PLAYED_AGAIN, Finding, judge_memory

MIB = 1 << 20
PLAYED = {"20 random steps": "right", "an episode played again": "note"}  # the envs observe how often they were reset


def report_of(env_fn: Any, other_fn: Any = None, steps: int = 20, timeout: float = 600.0) -> Report:
    return examine("it", env_fn, other_fn or env_fn, steps=steps, num_resets=8, timeout=timeout)


def verdicts(report: Report) -> dict[str, str]:
    return {finding.what: finding.verdict for finding in report.findings}


class PidEnv(OwnContextEnv):
    def render(self) -> Any:
        return np.full((8, 8, 3), os.getpid(), np.int64)


@pytest.mark.parametrize("kind", [ContextEnv, PixelEnv])
def test_an_env_that_draws_with_the_context_of_its_process_is_wrong_beside_another(kind: Any) -> None:
    report = report_of(partial(kind, 1), partial(kind, 2))
    assert verdicts(report) == {
        **PLAYED,
        "an episode played again": "right" if kind is PixelEnv else "note",
        "picture alone in a process": "right",
        "picture when another env is built": "right",
        "picture when another env draws": "wrong",
        "picture when another env is closed": "wrong",
        "picture when its predecessor is closed after it was built": "wrong",
        "picture when its predecessor is closed before it is built": "right",
        "memory": "right",
    }
    assert report.is_wrong
    assert [advice.split(":")[0] for advice in report.advice][-2:] == [
        "num_workers=num_envs (or None), backend='process'",
        "close an env before the next one is built in its process",
    ]
    assert "192 of 192 values differ, by up to" in str(report)
    assert json.loads(json.dumps(report.as_json()))["wrong"]


def test_an_env_that_selects_its_own_context_is_right() -> None:
    report = report_of(OwnContextEnv)
    assert set(verdicts(report).values()) == {"right", "note"}
    assert not report.is_wrong


def test_pictures_that_cannot_be_compared_are_neither_right_nor_wrong() -> None:
    report = report_of(PidEnv)
    assert verdicts(report) == {**PLAYED, "picture alone in a process": "unknown", "memory": "right"}
    assert "pictures cannot be compared" in str(report)
    assert not report.is_wrong


def test_nothing_is_said_of_pictures_if_an_env_draws_none() -> None:
    report = report_of(TextEnv)
    assert verdicts(report) == {**PLAYED, "memory": "right"}
    assert "renders on" not in str(report)
    assert str(report).splitlines()[-1] == "nothing is wrong: 1 note, 2 right"


def test_an_env_that_raises_or_two_that_bind_the_same_port_are_wrong(tmp_path: Path) -> None:
    def bind() -> Any:
        env = HookedEnv()
        env.socket = socket.socket(socket.AF_UNIX)
        env.socket.bind(str(tmp_path / "port"))
        return env

    for build, text in ((partial(HookedEnv, step=accidents.raise_value_error), "broken"), (bind, "already in use")):
        report = report_of(build)
        assert verdicts(report)["20 random steps"] == "wrong"
        assert text in str(report)


@pytest.mark.parametrize("act", [accidents.segfault, accidents.hold_the_gil])
def test_an_env_that_kills_its_process_or_hangs_beside_another_is_reported(act: Any, tmp_path: Path) -> None:
    def build(env: Any) -> None:
        if os.path.exists(tmp_path / str(os.getpid())):
            act()
        (tmp_path / str(os.getpid())).touch()

    report = report_of(partial(ContextEnv, build=build), timeout=5.0 if act is accidents.hold_the_gil else 600.0)
    found = verdicts(report)
    assert found["beside another env"] == "wrong"
    assert found["picture alone in a process"] == found["memory"] == "right"
    assert ("SIGSEGV" in str(report)) == (act is accidents.segfault)


def test_an_env_that_cannot_be_built_is_reported() -> None:
    def fail() -> Any:
        raise OSError("no licence")

    report = report_of(fail)
    assert set(verdicts(report).values()) == {"wrong"}
    assert "no licence" in str(report)


def test_an_env_with_leaking_resets_is_reported() -> None:
    kept: list[bytes] = []

    def leak(_: Any) -> None:
        kept.append(os.urandom(MIB))

    report = report_of(partial(HookedEnv, reset=leak, autoreset=leak))
    assert verdicts(report)["memory"] == "wrong"
    assert "max_worker_memory" in str(report.advice)


@pytest.mark.parametrize(
    ("sizes", "verdict"),
    [
        ([i * LEAK_BYTES for i in range(8)], "wrong"),
        ([i * (LEAK_BYTES - 1) for i in range(8)], "right"),
        ([0] * 4 + [900 * MIB] * 5, "right"),
        ([MIB * (i % 2) for i in range(20)], "right"),
        ([20 * MIB - i for i in range(20)], "right"),
        ([0] * 7, "unknown"),
    ],
)
def test_memory_is_judged_by_the_median_slope(sizes: list[int], verdict: str) -> None:
    assert judge_memory(sizes).verdict == verdict


@pytest.mark.parametrize(
    ("where", "text"),
    [
        ({"renderer": "llvmpipe (LLVM 15.0.6, 256 bits)"}, "the CPU, in software (llvmpipe (LLVM 15.0.6, 256 bits))"),
        ({"MUJOCO_EGL_DEVICE_ID": "1", "renderer": "NVIDIA H100"}, "NVIDIA H100 [MUJOCO_EGL_DEVICE_ID=1]"),
        ({}, "a renderer without a name"),
    ],
)
def test_the_renderer_is_named(where: dict[str, str], text: str) -> None:
    assert rendered_on(where) == text


# -- episodes: which are resumed exactly, and which envs are wrong without an error --------------------


OUTSIDE = "it depends on something outside of it (the clock, files"
GLOBAL = "it depends on the global random numbers of Python or NumPy"
EARLIER = "it depends on the episodes before it in the same env"


def findings_on(env_fn: Any, steps: int = 40) -> dict[str, Finding]:
    return {finding.what: finding for finding in report_of(env_fn, steps=steps).findings}


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
