"""``remuda doctor`` as a command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import Outcome, command

ENVS = """
from functools import partial
from drawing_envs import ContextEnv, OwnContextEnv
def wrong(): return ContextEnv(1)
def other(): return ContextEnv(2)
def right(): return OwnContextEnv(1)
"""


def invoke(*arguments: str) -> Outcome:
    return command("doctor", *arguments)


@pytest.fixture(autouse=True)
def my_envs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_drawings.py").write_text(ENVS)
    monkeypatch.chdir(tmp_path)


def test_an_env_that_draws_wrong_beside_another_is_reported() -> None:
    run = invoke("my_drawings:wrong", "--beside", "my_drawings:other", "--resets", "8")
    assert run.exit_code == 1, run.output
    assert "wrong   picture when another env draws: 192 of 192 values differ, by up to" in run.stdout
    assert "advice: num_workers=num_envs (or None)" in run.stdout


def test_json_reports_an_env_that_draws_right() -> None:
    run = invoke("my_drawings:right", "--resets", "8", "--json")
    assert run.exit_code == 0, run.output
    report = json.loads(run.stdout)
    assert not report["wrong"]
    assert {finding["verdict"] for finding in report["findings"]} == {"right"}
    assert len(report["workers"]) == 2


def test_an_env_made_from_an_id_can_render() -> None:
    run = invoke("CartPole-v1", "--resets", "8")
    assert run.exit_code == 0, run.output
    assert "right   picture when another env is closed" in run.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere:make"], "error: nowhere:make: No module named 'nowhere'"),
        (["my_drawings:right", "--beside", "my_drawings:none"], "error: my_drawings:none: "),
        (["my_drawings:right", "--resets", "3"], "expected an int from 8 up"),
    ],
)
def test_envs_that_cannot_be_made_are_refused(arguments: list[str], message: str) -> None:
    run = invoke(*arguments)
    assert run.exit_code == 2
    assert message in run.stderr
