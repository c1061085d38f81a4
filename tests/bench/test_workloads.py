"""Workloads from names, and the actions for their envs."""

from __future__ import annotations

import pickle
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from remuda._bench.workloads import WorkloadError, probe_spaces, resolve, sample_actions


def test_the_factory_of_a_gymnasium_id_reaches_the_workers() -> None:
    workload = resolve("CartPole-v1")
    assert workload.name == "CartPole-v1"
    assert pickle.loads(pickle.dumps(workload.make_env))().spec == gymnasium.spec("CartPole-v1")


def test_a_factory_in_the_working_directory_is_resolved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_ranch.py").write_text("import gymnasium\ndef make():\n    return gymnasium.make('CartPole-v1')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", ["elsewhere"])
    assert probe_spaces(resolve("my_ranch:make")).action_space == spaces.Discrete(2)


def test_an_id_with_a_module_imports_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_stable.py").write_text(
        "import gymnasium\ngymnasium.register('Pony-v3', 'gymnasium.envs.classic_control.cartpole:CartPoleEnv')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert resolve("my_stable:Pony-v3").make_env().spec is not None


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("no_such_module:make", "no_such_module:make: No module named 'no_such_module'"),
        ("math:no_such_name", "no_such_name"),
        ("math:pi", "math:pi: expected a callable that returns an env, got 3.14"),
        ("CartPol-v1", "CartPol-v1: .*CartPole"),
        ("builtins:dict", "builtins:dict: TypeError: expected a gymnasium.Env, got dict"),
        ("math:sqrt", "math:sqrt: "),
    ],
)
def test_envs_that_cannot_be_built_are_refused(target: str, message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        probe_spaces(resolve(target))


def test_actions_are_the_same_for_the_same_seed() -> None:
    space = spaces.Box(-1.0, 1.0, (3,), np.float32)
    first, again, other = (sample_actions(space, num_envs=4, count=2, seed=seed) for seed in (7, 7, 8))
    assert first.space.shape == (4, 3)
    assert len(first.batches) == 2
    np.testing.assert_array_equal(first.batches, again.batches)
    assert not np.array_equal(first.batches, other.batches)
