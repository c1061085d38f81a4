"""Workloads from names, the actions for their envs, and the contenders: each steps, and leaves nothing behind."""

from __future__ import annotations

import pickle
from contextlib import closing
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from bench_fakes import COUNTING, NotedEnv
from gymnasium import spaces
from harness import envs
from harness.parts import dones, parts_of
from peers import PEERS, UNEVEN_PEERS, available
from peers.plain import IdealLoops
from peers.remuda_pools import RemudaPartial, UnevenPlan

from remuda._bench.contenders import Contender, PlainLoop, Plan, Remuda, UnavailableError, line_up
from remuda._bench.workloads import Workload, WorkloadError, probe_spaces, resolve, sample_actions

NUM_ENVS = 3
CARTPOLE = envs.WORKLOADS["cartpole"]()
PLAN = UnevenPlan(CARTPOLE, NUM_ENVS, num_workers=1, start_method="fork", min_envs=NUM_ENVS)
PARTIAL = [UNEVEN_PEERS[name] for name in ("tianshou", "torchrl-queue", "torchrl-shm")]
WITHOUT_ROWS = (PlainLoop, IdealLoops, RemudaPartial, *PARTIAL)  # these return no rows for a policy
ALL = [PlainLoop, Remuda, RemudaPartial, *dict.fromkeys([*PEERS.values(), *UNEVEN_PEERS.values()])]


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_every_contender_steps(kind: type[Contender]) -> None:
    """The action is constant, so the pole falls in every env and episodes end."""
    if not kind.is_installed() or available([kind.name], {kind.name: kind}, CARTPOLE)[1]:
        pytest.skip(f"{kind.package} is not installed, or has no CartPole")
    with closing(kind(PLAN)) as contender:
        contender.reset(seed=0)
        contender.begin_turn()
        parts = parts_of(contender)
        ended = np.zeros(NUM_ENVS, int)
        for _ in range(30):
            if kind in WITHOUT_ROWS:
                assert contender.step(np.ones(NUM_ENVS, np.int64)) >= 1
                continue
            first = 0
            for part in parts:
                assert np.isfinite(part.obs).all()
                part.send(np.ones(len(part.obs), np.int64))
            for part in parts:
                rows = slice(first, first := first + part.finish())
                assert set(np.asarray(part.rewards, float).reshape(-1)) <= {0.0, 1.0}
                ended[rows] += dones(part)
        assert kind in WITHOUT_ROWS or (ended >= 2).all()


@pytest.mark.parametrize(
    ("name", "workers"),
    [("remuda-1-per-env", 3), ("remuda-sb3", 1), ("remuda-gymnasium-auto", 0), ("gymnasium", 3), ("ideal-loops", 1)],
)
def test_contenders_report_their_workers(name: str, workers: int) -> None:
    with closing(PEERS[name](Plan(COUNTING, NUM_ENVS, num_workers=1))) as contender:
        contender.reset(seed=0)
        assert len(set(contender.worker_pids())) == workers


def test_the_plain_loop_resets_instead_of_stepping() -> None:
    made = [NotedEnv() for _ in range(NUM_ENVS)]
    loop = PlainLoop(Plan(Workload("counting", iter(made).__next__), NUM_ENVS, num_workers=1))
    loop.reset(seed=0)
    assert [loop.step(actions) for actions in ([0, 0, 0], [0, 0])] == [3, 2]
    assert made[0].calls == ["reset", "step", "step", "step", "reset", "step"]


def test_the_line_up_has_each_contender_once_and_leaves_out_those_that_cannot_race() -> None:
    kinds = line_up(["sb3", "gymnasium", "sb3"])
    assert [kind.name for kind in kinds] == ["plain loop", "remuda", "sb3", "gymnasium"]
    kinds, left_out = available(["gymnasium-sync", "ale-vector", "no-such"], PEERS, COUNTING)
    assert [kind.name for kind in kinds] == ["gymnasium-sync"] and len(left_out) == 2


@pytest.mark.parametrize(
    ("name", "message"),
    [("gym", "unknown peer 'gym': expected one of gymnasium, sb3"), ("sb3", 'pip install "stable-baselines3"')],
)
def test_unavailable_peers_are_named(name: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PEERS["sb3"], "module", "no_such_module.at_all")
    with pytest.raises(UnavailableError, match=message):
        line_up([name])


# -- workloads -----------------------------------------------------------------------------------------


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
