"""The programs in ``examples/``, cut short, do what they say."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def test_double_buffering(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)  # for the workers, too
    example = importlib.import_module("double_buffering")
    monkeypatch.setattr(example, "ROUNDS", 1)
    monkeypatch.setattr(example, "BATCHES", 3)
    thought_about: list[int] = []
    think = example.policy
    monkeypatch.setattr(example, "policy", lambda obs: (thought_about.append(len(obs)), think(obs))[1])
    example.main()
    assert thought_about == [16] * 3 + [8] * 6
    output = capsys.readouterr().out
    assert re.fullmatch(r"lockstep: \S+ env steps/s\nsplit:    \S+ env steps/s\nratio:    \d+\.\d\d\n", output)


def test_sb3_ppo(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    example = importlib.import_module("sb3_ppo")
    monkeypatch.setattr(example, "NUM_ENVS", 2)
    monkeypatch.setattr(example, "STEPS", 512)
    monkeypatch.setattr(example, "KILL_EVERY", 0.7)
    monkeypatch.setitem(example.SETTINGS, "batch_size", 64)
    monkeypatch.setitem(example.RUNS, "stable_baselines3", (example.Original, {"start_method": "fork"}))
    example.main(tmp_path / "curves.png")
    output = capsys.readouterr().out
    assert "the same episodes:  True" in output
    assert re.search(r"^workers killed: +\d+$", output, re.MULTILINE)
    assert (tmp_path / "curves.png").stat().st_size > 0
