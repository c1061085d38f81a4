"""Runs short versions of the programs in ``examples/`` and checks their output."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, TypeAlias

import cloudpickle
import pytest

import remuda

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Returns a function that imports an example, and changes its settings. Workers inherit the path.

    Envs are pickled by value, as those of a program are, so that workers do not import PyTorch.
    """
    monkeypatch.syspath_prepend(EXAMPLES)
    modules = []

    def imported(name: str, **settings: Any) -> Any:
        module = importlib.import_module(name)
        cloudpickle.register_pickle_by_value(module)
        modules.append(module)
        for setting, value in settings.items():
            monkeypatch.setattr(module, setting, value)
        return module

    yield imported
    for module in modules:
        cloudpickle.unregister_pickle_by_value(module)


Example: TypeAlias = Callable[..., Any]
Output: TypeAlias = pytest.CaptureFixture[str]


def test_double_buffering(example: Example, monkeypatch: pytest.MonkeyPatch, capsys: Output) -> None:
    buffering = example("double_buffering", ROUNDS=1, BATCHES=3)
    thought_about: list[int] = []
    think = buffering.policy
    monkeypatch.setattr(buffering, "policy", lambda obs: (thought_about.append(len(obs)), think(obs))[1])
    buffering.main()
    assert thought_about == [16] * 3 + [8] * 6
    output = capsys.readouterr().out
    assert re.fullmatch(r"lockstep: \S+ env steps/s\nsplit:    \S+ env steps/s\nratio:    \d+\.\d\d\n", output)


def test_two_halves(example: Example, capsys: Output) -> None:
    example("two_halves", SIZES=(4,), ROUNDS=1, NUM_STEPS=3, FIXED_SECONDS=0.0).main()
    output = capsys.readouterr().out
    assert re.fullmatch(r"(4 CartPoles, (lockstep|split), \d+ workers: \S+ env steps/s\n){2}", output)


def test_two_halves_collect_the_same_results_as_lockstep(example: Example) -> None:
    halves = example("two_halves")
    collected = []
    for parts, num_workers in ((1, 2), (2, 2), (3, 1)):
        calls: list[int] = []
        envs = remuda.make_vec("CartPole-v1", 6, num_workers=num_workers, max_episode_steps=9)
        with closing(envs):
            policy = lambda obs: (calls.append(len(obs)), halves.policy(obs))[1]  # noqa: B023, E731
            collector = halves.Collector(envs, policy, num_steps=20, seed=3, parts=parts)
            collected.append([collector.collect() for _ in range(2)])
        assert calls == [6 // parts] * parts * 40
    lockstep, *others = collected
    for split in others:
        for one, other in zip(lockstep, split, strict=True):
            for name, array in vars(one).items():
                assert array.tobytes() == vars(other)[name].tobytes(), name
    assert lockstep[0].dones.any()


@pytest.mark.parametrize("on", ["remuda", "gymnasium"])
def test_torch_ppo(on: str, example: Example, capsys: Output, tmp_path: Path) -> None:
    ppo = example("torch_ppo")
    short = ["--on", on, "--num-envs", "4", "--rollout", "32", "--device", "cpu", "--dir", str(tmp_path)]
    assert len(ppo.main([*short, "--steps", "512"])) == 4
    resumed = ["--steps", "640", "--resume", str(tmp_path / "checkpoint.pt"), "--profile"]
    assert len(ppo.main([*short, *resumed])) == 1
    output = capsys.readouterr().out
    found = dict(re.findall(r"^\| (\w+) \| (\S+) \|", output, re.MULTILINE))
    assert list(found) == ["policy", "envs", "update", "other", "total"]
    *parts, total = map(float, found.values())
    assert min(parts) >= 0 and sum(parts) == pytest.approx(total, abs=0.03)  # each value is rounded
    ends = re.findall(r"^collecting took \S+ s, learning \S+ s; the last return is \S+$", output, re.MULTILINE)
    assert len(ends) == 2


def test_multi_agent_ppo(example: Example, capsys: Output) -> None:
    pytest.importorskip("mpe2")
    curve = example("multi_agent_ppo").main(["--num-envs", "4", "--rollout", "30", "--updates", "3"])
    assert len(curve) == 3 and max(curve) < 0  # rewards are distances to the landmarks
    output = capsys.readouterr().out
    assert re.match(r"update 1: the mean reward of an agent in a step is -\d+\.\d\d\nupdate 3: ", output)


def test_sb3_ppo(example: Example, monkeypatch: pytest.MonkeyPatch, capsys: Output, tmp_path: Path) -> None:
    ppo = example("sb3_ppo", NUM_ENVS=2, STEPS=512, KILL_EVERY=0.7)
    monkeypatch.setitem(ppo.SETTINGS, "batch_size", 64)
    monkeypatch.setitem(ppo.RUNS, "stable_baselines3", (ppo.Original, {"start_method": "fork"}))
    ppo.main(tmp_path / "curves.png")
    output = capsys.readouterr().out
    assert "the same episodes:  True" in output
    assert re.search(r"^workers killed: +\d+$", output, re.MULTILINE)
    assert (tmp_path / "curves.png").stat().st_size > 0


def test_resume() -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(EXAMPLES)!r}); import resume\n"
        "resume.NUM_ENVS, resume.STEPS, resume.ACCIDENT_EVERY = 2, 768, 0.5\nresume.main()"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    undisturbed, disturbed, *_, equal = run.stdout.splitlines()
    assert undisturbed == "0 kills, 0 hangs, 0 restarts"
    assert re.fullmatch(r"[1-9]\d* kills, \d+ hangs, [1-9]\d* restarts", disturbed)
    assert equal == "equal weights: True"
