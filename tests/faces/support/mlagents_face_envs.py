"""Envs, policies and helpers for the tests of the ML-Agents face, which need ML-Agents."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest
from accidents import once
from odd_exceptions import raising
from pool_envs import Gate

pytest.importorskip("mlagents", reason="ML-Agents has an environment of its own: make mlagents-test")

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from mlagents.plugins.trainer_type import register_trainer_plugins
    from mlagents.trainers import subprocess_env_manager as original
    from mlagents.trainers.action_info import ActionInfo
    from mlagents.trainers.settings import EnvironmentSettings, RunOptions
    from mlagents_envs.base_env import (
        ActionSpec,
        ActionTuple,
        BaseEnv,
        BehaviorMapping,
        BehaviorSpec,
        DecisionSteps,
        DimensionProperty,
        ObservationSpec,
        ObservationType,
        TerminalSteps,
    )
    from mlagents_envs.environment import UnityEnvironment
    from mlagents_envs.mock_communicator import MockCommunicator
    from mlagents_envs.side_channel import IncomingMessage, OutgoingMessage
    from mlagents_envs.timers import hierarchical_timer

    from remuda.mlagents import SubprocessEnvManager

    register_trainer_plugins()  # mlagents-learn does this before it reads settings

Hook = Callable[..., Any]


def spec(size: tuple[int, ...] = (4,), continuous: int = 1, discrete: tuple[int, ...] = ()) -> BehaviorSpec:
    observation = ObservationSpec(size, (DimensionProperty.UNSPECIFIED,) * len(size), ObservationType.DEFAULT, "obs")
    return BehaviorSpec([observation], ActionSpec(continuous, discrete))


def decisions(obs: Any, agent_ids: Any, rewards: Any = 0.0, groups: Any = 0, masks: Any = None) -> DecisionSteps:
    n = len(agent_ids)
    return DecisionSteps(
        [np.asarray(obs, np.float32)],
        np.full(n, rewards, np.float32),
        np.array(agent_ids, np.int32),
        masks,
        np.full(n, groups, np.int32),
        np.full(n, rewards, np.float32) * 10,
    )


def ends(obs: Any, agent_ids: Any, rewards: Any, groups: Any = 0) -> TerminalSteps:
    last = decisions(obs, agent_ids, rewards, groups)
    interrupted = np.zeros(len(agent_ids), np.bool_)
    return TerminalSteps(last.obs, last.reward, interrupted, last.agent_id, last.group_id, last.group_reward)


class TestEnv(BaseEnv):
    """The base of the envs. Its only behaviour "b" has one agent that never ends.

    Args:
        worker_id, channels: ML-Agents' arguments.
        hooks: Functions that are called with the env in the phases build, reset, step and close.
    """

    __test__ = False
    academy_capabilities: Any = None

    def __init__(self, worker_id: int, channels: list[Any], **hooks: Hook) -> None:
        super().__init__()
        self.worker_id, self.channels, self._hooks = worker_id, channels, hooks
        self.actions: dict[str, Any] = {}
        self.resets = self.steps = 0
        self.calls: Counter[str] = Counter()
        self._run("build")

    def _run(self, phase: str) -> None:
        self.calls[phase] += 1
        if phase in self._hooks:
            self._hooks[phase](self)

    @property
    def behavior_specs(self) -> BehaviorMapping:
        return BehaviorMapping({"b": spec()})

    def reset(self) -> None:
        self._run("reset")
        self.resets += 1
        self.steps = 0

    def step(self) -> None:
        self._run("step")
        self.steps += 1

    def get_steps(self, behavior_name: str) -> Any:
        action = self.actions.get(behavior_name)
        done = 0.0 if action is None else float(action.continuous[0, 0])
        obs = [[self.worker_id, self.resets, self.steps, done]]
        return decisions(obs, [0], self.steps), TerminalSteps.empty(spec())

    def set_actions(self, behavior_name: str, action: Any) -> None:
        self.actions[behavior_name] = action

    def set_action_for_agent(self, behavior_name: str, agent_id: int, action: Any) -> None:
        raise NotImplementedError

    def close(self) -> None:
        self._run("close")


class CrowdEnv(TestEnv):
    """Has two teams. Blue agents exist from the first step and end one by one; every third step has a red agent."""

    def __init__(self, worker_id: int, channels: list[Any], **hooks: Hook) -> None:
        super().__init__(worker_id, channels, **hooks)
        self._specs = {"blue": spec((3,), 2, (3, 2))}
        self._ended: list[int] = []

    @property
    def behavior_specs(self) -> BehaviorMapping:
        return BehaviorMapping(self._specs)

    def step(self) -> None:
        super().step()
        self.stat("crowd/steps", self.steps)
        with hierarchical_timer("crowd"), hierarchical_timer("walks"):
            if self.steps == 3:
                self._specs["red"] = spec((2, 2), 1)
        self._ended = [self.steps // 2] if self.steps % 2 == 0 else []

    def stat(self, key: str, value: float) -> None:
        message = OutgoingMessage()
        message.write_string(key)
        message.write_float32(value)
        message.write_int32(0)
        self.channels[2].on_message_received(IncomingMessage(message.buffer))

    def get_steps(self, behavior_name: str) -> Any:
        if behavior_name == "red":
            ids = [self.steps] if self.steps % 3 == 0 else []
            return decisions(self._obs(ids, (2, 2)), ids), TerminalSteps.empty(self._specs["red"])
        there = range(self.steps // 2 + 1, self.steps // 2 + 5)
        masks = [np.ones((4, 3), np.bool_), np.zeros((4, 2), np.bool_)]
        return (
            decisions(self._obs(there, (3,)), there, self.steps / 2, 7, masks),
            ends(self._obs(self._ended, (3,)), self._ended, self.steps, groups=7),
        )

    def _obs(self, ids: Any, shape: tuple[int, ...]) -> Any:
        sums = [float(action.continuous.sum() + action.discrete.sum()) for action in self.actions.values()]
        return np.array([np.full(shape, 1000 * self.worker_id + i + sum(sums)) for i in ids], np.float32).reshape(
            len(ids), *shape
        )


class PictureEnv(TestEnv):
    """Has observations that do not fit into a row."""

    @property
    def behavior_specs(self) -> BehaviorMapping:
        return BehaviorMapping({"b": spec((64, 64, 3))})

    def get_steps(self, behavior_name: str) -> Any:
        picture = np.full((2, 64, 64, 3), self.steps / 100 + self.worker_id, np.float32)
        return decisions(picture, [0, 1], self.steps), TerminalSteps.empty(spec((64, 64, 3)))


def unity_env(worker_id: int, channels: list[Any]) -> Any:
    """Returns ML-Agents' own env with a mock in place of the game."""
    with (
        mock.patch("mlagents_envs.env_utils.launch_executable"),
        mock.patch.object(UnityEnvironment, "_get_communicator", return_value=MockCommunicator()),
    ):
        return UnityEnvironment("a game", worker_id=worker_id, side_channels=channels)


class EchoEnv(TestEnv):
    """Observes the bytes from its side channels. Training analytics, which contain a hash, are cut at 60 bytes."""

    academy_capabilities = SimpleNamespace(trainingAnalytics=True)
    size = 1 << 14

    @property
    def behavior_specs(self) -> BehaviorMapping:
        return BehaviorMapping({"b": spec((self.size,))})

    def get_steps(self, behavior_name: str) -> Any:
        messages = [(i, bytes(message)) for i, each in enumerate(self.channels) for message in each.message_queue]
        received_bytes = b"".join(message[:60] if i == 3 else message for i, message in messages)
        obs = np.zeros((1, self.size), np.float32)
        obs[0, : len(received_bytes)] = np.frombuffer(received_bytes, np.uint8)
        obs[0, -1] = len(self.channels)
        return decisions(obs, [0]), TerminalSteps.empty(spec((self.size,)))


def faulty(
    accident: Hook, where: str = "step", at: int = 2, path: Path | None = None, kind: Any = TestEnv, worker: int = 0
) -> Any:
    """Returns a factory of envs of this kind. One worker's env has an accident in its n-th call of a phase.

    Args:
        accident: A function that the env calls.
        where: The phase.
        at: The n-th call, from 1.
        path: A place for files by which the accident happens only once; None: also in rebuilt envs.
        kind: The class of the envs.
        worker: The worker's number.
    """
    act = accident if path is None else once(path, accident)
    return partial(kind, **{where: lambda env: act(env) if (env.worker_id, env.calls[where]) == (worker, at) else None})


def gated(gate: Gate, kind: Any = TestEnv) -> Any:
    """Returns a factory of envs. The second step of env 0 waits at the gate."""
    return faulty(lambda _: gate.wait(), kind=kind)


def unity(error: type[BaseException]) -> Hook:
    return raising(lambda: error("an accident"))


class Policy:
    """Derives actions from the observations."""

    def __init__(self, continuous: int = 1, discrete: tuple[int, ...] = ()) -> None:
        self._spec = ActionSpec(continuous, discrete)

    def get_action(self, steps: DecisionSteps, worker_id: int) -> ActionInfo:
        seen = np.array([float(obs.sum()) for obs in steps.obs[0]], np.float32).reshape(-1, 1)
        action = ActionTuple(
            np.repeat(seen % 5, self._spec.continuous_size, axis=1),
            np.repeat(seen.astype(np.int32) % 2, self._spec.discrete_size, axis=1),
        )
        return ActionInfo(action, action, {"action": action}, steps.agent_id.tolist())


def limits(lifetime: int = 10, at_once: int = 1, period: int = 60) -> RunOptions:
    settings = EnvironmentSettings(
        max_lifetime_restarts=lifetime, restarts_rate_limit_n=at_once, restarts_rate_limit_period_s=period
    )
    return RunOptions(env_settings=settings)


def manager(
    env_factory: Any, n_env: int = 2, options: Any = None, manager_cls: Any = SubprocessEnvManager, **more: Any
) -> Any:
    if manager_cls is SubprocessEnvManager:
        more.setdefault("preload", (__name__,))  # otherwise each worker would import ML-Agents, which takes seconds
    made = manager_cls(env_factory, options or RunOptions(), n_env, **more)
    made.set_policy("b", Policy())
    return made


def close_and_join(made: Any) -> None:
    """Closes the manager and joins the processes of ML-Agents', which does not."""
    made.close()
    if isinstance(made, original.SubprocessEnvManager):
        for worker in made.env_workers:
            worker.process.join()


def steps_of(made: Any, worker_id: int, count: int) -> list[Any]:
    """Steps the manager until this worker has returned ``count`` steps, and returns them."""
    found: list[Any] = []
    while len(found) < count:
        found += [step for step in made.get_steps() if step.worker_id == worker_id]
    return found


def plain(value: Any) -> Any:
    """Converts steps and all their contents to values that can be compared."""
    if isinstance(value, (DecisionSteps, TerminalSteps)):
        names = [name for name in vars(value) if not name.startswith("_")]
        return type(value).__name__, {name: plain(getattr(value, name)) for name in names}
    if isinstance(value, ActionTuple):
        return plain(value.continuous), plain(value.discrete)
    if isinstance(value, np.ndarray):
        return value.shape, value.dtype.str, value.tolist()
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return value


def obs_of(step: Any, behavior: str = "b") -> list[float]:
    """Returns the observation of the step's first agent: worker, resets, steps, last action."""
    return step.current_all_step_result[behavior][0].obs[0][0].tolist()  # type: ignore[no-any-return]


def step_until_it_fails(made: Any) -> None:
    while True:
        made.get_steps()
