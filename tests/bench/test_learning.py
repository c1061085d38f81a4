"""The benchmarks with a policy or a learner in the loop, shortened. Times are not checked."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import collect
import gymnasium
import numpy as np
import pytest
import torch
import torchrl_published
import train
from bench_fakes import COUNTING, FakeClock, entry, fakes, result, session
from gymnasium import spaces
from harness import policies, ppo, trainers
from peers import PEERS

from remuda._bench import registry
from remuda._bench.contenders import Plan, Remuda, RemudaSplit
from remuda._bench.faces import RemudaGymnasiumSplit
from remuda._bench.peers import GymnasiumSync
from remuda._bench.rounds import race
from remuda._bench.workloads import Workload

TINY = session(0.02, torch_threads=1)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """With other work on the machine, several threads of PyTorch mostly wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


# -- a policy in the loop ------------------------------------------------------------------------------------


class Echo(gymnasium.Env[Any, Any]):
    """Observes its last action, or its seed after a reset."""

    observation_space = spaces.Box(-1, 99, (1,), np.float32)
    action_space = spaces.Discrete(100)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return np.array([seed], np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.array([action], np.float32), 1.0, False, False, {}


ECHO = Workload("echo", Echo)


@pytest.mark.parametrize("kind", [GymnasiumSync, Remuda, RemudaSplit, RemudaGymnasiumSplit])
def test_the_policy_receives_the_observations_after_its_actions(kind: Any) -> None:
    received: list[list[int]] = []

    def policy(obs: Any) -> Any:
        received.append(obs[:, 0].astype(int).tolist())
        return obs[:, 0].astype(np.int64) + 10

    contender = policies.with_policy(kind, lambda plan: policy)(Plan(ECHO, num_envs=4, num_workers=2))
    with closing(contender):
        contender.reset(seed=0)
        assert len(contender.step(None)) == 4
        assert len(contender.step(None)) == 4
    turns = 1 if kind in (GymnasiumSync, Remuda) else 2
    by_turn = [sorted(env for part in received[i : i + turns] for env in part) for i in range(0, len(received), turns)]
    assert by_turn == [[10 * i + env for env in range(4)] for i in range(3)]


def test_half_of_the_policys_time_is_independent_of_the_batch() -> None:
    shares: list[float] = []
    policy = policies.Thinking(Plan(COUNTING, num_envs=8, num_workers=2), spend=shares.append)
    assert policy(np.zeros((8, 2))).shape == (8,)
    assert policy(np.zeros((4, 2))).shape == (4,)
    assert shares == [1.0, 0.75]


def test_the_lockstep_bound_adds_envs_and_policy() -> None:
    """A step takes 1/4 us in four parallel loops and 3/4 us in the policy, so 1 us in total."""
    found = result(entry("plain loop", [1_000_000]), entry("remuda", [600_000]), entry("policy alone", [1_333_333]))
    object.__setattr__(found, "loops", 4)
    (bound,) = policies.lockstep_bound(found, found.entries[2])
    assert bound == pytest.approx(1_000_000, rel=1e-4)
    assert collect.of_bound(found, found.remuda) == pytest.approx(0.6, rel=1e-4)


@pytest.mark.parametrize("policy", ["core-100", "sleep-100", "net"])
def test_collecting_is_measured_and_shown(policy: str) -> None:
    tiny = session(0.02, torch_threads=1, against=["gymnasium-sync", "remuda-gymnasium-split", "no-such"])
    case = collect.Case("cartpole", 4, policy)
    result = collect.measure(case, tiny)
    assert [(found.name, found.error) for found in result.entries] == [
        (name, None) for name in ("plain loop", "remuda", "policy alone", "gymnasium-sync", "remuda-gymnasium-split")
    ]
    text = "\n".join([*collect.markdown([(case, result)]), *tiny.notes()])
    assert f"| CartPole-v1 | 4 | {policy} |" in text
    assert "unknown peer 'no-such'" in text
    assert "failed" not in text
    report = collect.to_json(case, result)
    assert set(report["of_lockstep_bound"]) == {"remuda", "gymnasium-sync", "remuda-gymnasium-split"}
    assert all(ratio > 0 for ratio in report["of_lockstep_bound"].values())


def test_the_learners_time_is_separate_from_the_parents() -> None:
    clock = FakeClock()
    (kind,) = fakes(clock, {"learner": 0.5})
    step = kind.step

    def learn(self: Any, actions: Any) -> Any:
        self.learning_seconds += 0.25
        return step(self, actions)

    kind.step = learn  # type: ignore[method-assign]
    found = race([kind], Plan(COUNTING, 2, 1), seconds=2.0, rounds=1, clock=clock)
    assert found.plain.learning_share == 0.5
    assert found.plain.turns[0].batches == 4
    assert found.plain.parent_us_a_batch is not None


# -- a learner in the loop -----------------------------------------------------------------------------------


class Guess(gymnasium.Env[Any, Any]):
    """Observes the right action. Its episodes have five steps."""

    observation_space = spaces.Box(0, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self._show(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        reward = float(action == self.right)
        return self._show(), reward, self.steps == 5, False, {}

    def _show(self) -> Any:
        self.right = int(self.np_random.integers(2))
        return np.eye(2, dtype=np.float32)[self.right]


GUESS = Workload("guess", Guess)


@pytest.mark.parametrize("kind", [Remuda, RemudaGymnasiumSplit, GymnasiumSync])
def test_the_ppo_of_the_benchmarks_learns(kind: Any) -> None:
    plan = Plan(GUESS, num_envs=8, num_workers=2)
    settings = ppo.Settings(num_steps=24, learning_rate=5e-3)
    with closing(kind(plan)) as envs:
        envs.reset(seed=0)
        learner = ppo.Ppo(envs, plan, settings)
        returns = []
        for _ in range(20):
            assert learner.iterate() == 24 * 8
            returns.append(learner.mean_episode_return)
        assert learner.learning_seconds > 0
    assert 1.0 < returns[0] < 4.0  # the maximum is 5, and random guesses reach half of it
    assert returns[-1] > 4.5


def test_advantages_stop_at_the_end_of_an_episode() -> None:
    plan = Plan(GUESS, num_envs=1, num_workers=1)
    with closing(GymnasiumSync(plan)) as envs:
        envs.reset(seed=0)
        learner = ppo.Ppo(envs, plan, ppo.Settings(num_steps=3, gamma=0.5, gae_lambda=1.0))
    rollout = learner._rollout
    rollout.rewards[:, 0], rollout.dones[:, 0] = [1, 2, 4], [False, False, True, False]
    rollout.values[:, 0], rollout.next_values[:] = torch.tensor([0.0, 10.0, 20.0]), 8.0
    advantages, returns = learner._advantages()
    assert returns[:, 0].tolist() == [1 + 0.5 * 2, 2, 4 + 0.5 * 8]
    assert advantages[:, 0].tolist() == [2 - 0, 2 - 10, 8 - 20]


@pytest.mark.parametrize(
    ("observations", "actions"),
    [
        (spaces.Box(-1, 1, (5,)), spaces.Box(-1, 1, (3,))),
        (spaces.Box(-1, 1, (5,), np.float64), spaces.Discrete(4)),
        (spaces.Box(0, 255, (4, 84, 84), np.uint8), spaces.Discrete(6)),
    ],
)
def test_an_agent_acts_within_its_spaces(observations: Any, actions: Any) -> None:
    agent = ppo.Agent(observations, actions)
    obs = np.stack([observations.sample() for _ in range(3)])
    chosen, log_probs, values = agent.act(obs)
    assert chosen.shape == (3, *actions.shape)
    assert log_probs.shape == values.shape == (3,)
    if isinstance(actions, spaces.Discrete):
        assert all(action in actions for action in chosen)


def test_an_agent_refuses_spaces_without_a_network() -> None:
    with pytest.raises(TypeError, match="expected observations of a Box"):
        ppo.Agent(spaces.Discrete(3), spaces.Discrete(3))


@pytest.mark.parametrize(
    ("trainer", "against"),
    [
        ("own", ["gymnasium-sync", "remuda-gymnasium-auto"]),
        ("sb3", ["sb3-dummy", "remuda-sb3", "gymnasium-sync"]),
    ],
)
def test_training_is_measured_and_shown(trainer: str, against: list[str]) -> None:
    case = train.Case("cartpole", 2, trainer, ppo.Settings(num_steps=4, num_epochs=1, num_minibatches=2))
    workload = train.WORKLOADS["cartpole"]()
    kinds, _ = registry.available(against, PEERS, workload)
    found = train.measure(case, workload, kinds, TINY)
    names = ["plain loop", "remuda", *against, "loops at once"]
    assert [(measured.name, measured.error) for measured in found.entries] == [(name, None) for name in names]
    for measured in train.learners(found):
        turn = measured.turns[0]
        assert turn.env_steps == turn.batches * 4 * 2
        assert 0 < measured.learning_share < 1
    assert "failed" not in "\n".join(train.markdown([(case, found)]))
    report = train.to_json(case, found)["training"]
    assert set(report) == {"remuda", *against}


@pytest.mark.parametrize("name", torchrl_published.PLANS)
def test_torchrls_workloads_are_measured_and_shown(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    short = replace(torchrl_published.RESETS, steps=(1e-3,) * 4, reset=0.004, episode_steps=4)
    monkeypatch.setattr(torchrl_published, "RESETS", short)
    found = torchrl_published.measure(name, [PEERS["remuda-per-env"]], TINY)
    assert [measured.error for measured in found.entries] == [None] * 3
    text = "\n".join(torchrl_published.markdown({name: found}))
    assert f"| {found.env} | {8 if name == 'free' else 32} |" in text


def test_quick_trainings_are_fewer_and_shorter() -> None:
    options = Namespace(only=["cartpole"], num_envs=None, trainers=["own", "sb3"], is_quick=True)
    assert [(case.num_envs, case.trainer) for case in train.choose(options)] == [(8, "own"), (8, "sb3"), (64, "own")]
    assert {case.settings.num_steps for case in train.choose(options)} == {32}
    few, _, many = train.choose(options)
    assert "torchrl-async" in train.contenders(few, options)
    assert "torchrl-async" not in train.contenders(many, options)
    options.is_quick = False
    assert len(list(train.choose(options))) == 4
    assert "torchrl-async" in train.contenders(many, options)


def test_a_trained_contender_keeps_its_name() -> None:
    kind = trainers.trained(PEERS["gymnasium"], trainers.OwnPpo, ppo.Settings())
    assert (kind.name, kind.package) == ("gymnasium", "gymnasium")
