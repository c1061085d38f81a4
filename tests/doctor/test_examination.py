"""The doctor's verdicts on fake envs that draw with a context of their process. No graphics library is needed."""

from __future__ import annotations

import json
import os
import socket
from functools import partial
from pathlib import Path
from typing import Any

import accidents
import numpy as np
import pytest
from drawing_envs import ContextEnv, OwnContextEnv, PixelEnv, TextEnv
from pool_envs import HookedEnv

from remuda._doctor.examination import Report, examine, rendered_on
from remuda._doctor.findings import LEAK_BYTES, judge_memory

MIB = 1 << 20
PLAYED = {"20 random steps": "right", "an episode played again": "note"}  # the envs observe how often they were reset


def report_of(env_fn: Any, other_fn: Any = None, num_resets: int = 8, timeout: float = 600.0) -> Report:
    return examine("it", env_fn, other_fn or env_fn, steps=20, num_resets=num_resets, timeout=timeout)


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
