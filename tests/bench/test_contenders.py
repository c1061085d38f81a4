"""Workloads from names, the actions for their envs, and the contenders: each steps, also with a policy."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from bench_fakes import COUNTING, NotedEnv, entry, result
from gymnasium import spaces
from harness import envs, policies
from harness.parts import dones, parts_of
from peers import PEERS, UNEVEN_PEERS, available
from peers.plain import GymnasiumSync, IdealLoops
from peers.remuda_pools import RemudaGymnasiumSplit, RemudaPartial, RemudaSplit, UnevenPlan

from remuda._bench.contenders import Contender, PlainLoop, Plan, Remuda, line_up
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


# -- workloads -----------------------------------------------------------------------------------------


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


# -- a policy in the loop ------------------------------------------------------------------------------


class Echo(gymnasium.Env[Any, Any]):
    """Observes its last action, or its seed after a reset."""

    observation_space = spaces.Box(-1, 99, (1,), np.float32)
    action_space = spaces.Discrete(100)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return np.array([seed], np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.array([action], np.float32), 1.0, False, False, {}


@pytest.mark.parametrize(("kind", "turns"), [(GymnasiumSync, 1), (RemudaSplit, 2), (RemudaGymnasiumSplit, 2)])
def test_the_policy_receives_the_observations_after_its_actions(kind: Any, turns: int) -> None:
    received: list[list[int]] = []

    def policy(obs: Any) -> Any:
        received.append(obs[:, 0].astype(int).tolist())
        return obs[:, 0].astype(np.int64) + 10

    contender = policies.with_policy(kind, lambda plan: policy)(Plan(Workload("echo", Echo), 4, num_workers=2))
    with closing(contender):
        contender.reset(seed=0)
        assert contender.step(None) == contender.step(None) == 4
    by_turn = [sorted(env for part in received[i : i + turns] for env in part) for i in range(0, len(received), turns)]
    assert by_turn == [[10 * i + env for env in range(4)] for i in range(3)]


def test_the_lockstep_bound_adds_envs_and_policy() -> None:
    """A step takes 1/2 us in two parallel loops and 1/2 us in the policy, so 1 us in total."""
    found = result(entry("plain loop", [1_000_000]), entry("remuda"), entry("policy alone", [2_000_000]))
    assert policies.lockstep_bound(found, found.entries[2]) == [pytest.approx(1_000_000)]
