"""``remuda doctor`` as a command."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
from command import command

ENVS = """
from drawing_envs import ContextEnv
def wrong(): return ContextEnv(1)
def other(): return ContextEnv(2)
"""

doctor = partial(command, "doctor")


@pytest.fixture(autouse=True)
def my_envs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_drawings.py").write_text(ENVS)
    monkeypatch.chdir(tmp_path)


def test_an_env_that_draws_wrong_beside_another_is_reported() -> None:
    run = doctor("my_drawings:wrong", "--beside", "my_drawings:other", "--resets", "8")
    assert run.exit_code == 1, run.output
    assert "wrong   picture when another env draws: 192 of 192 values differ, by up to" in run.stdout
    assert "advice: num_workers=num_envs (or None)" in run.stdout
    assert run.stdout.splitlines()[-1].startswith("something is wrong: 3 wrong, ")


def test_json_reports_an_env_made_from_an_id() -> None:
    run = doctor("CartPole-v1", "--resets", "8", "--json")
    assert run.exit_code == 0, run.output
    report = json.loads(run.stdout)
    assert not report["wrong"]
    verdicts = {finding["what"]: finding["verdict"] for finding in report["findings"]}
    assert set(verdicts.values()) == {"right"} and "picture when another env is closed" in verdicts
    assert len(report["workers"]) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["my_drawings:wrong", "--beside", "my_drawings:none"], "error: my_drawings:none: "),
        (["my_drawings:wrong", "--resets", "3"], "expected an int from 8 up"),
    ],
)
def test_envs_that_cannot_be_made_are_refused(arguments: list[str], message: str) -> None:
    run = doctor(*arguments)
    assert run.exit_code == 2
    assert message in run.stderr
