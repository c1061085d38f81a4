"""PPO of Unity ML-Agents learns to walk down a corridor, in four workers.

    python examples/mlagents_ppo.py

Needs mlagents and mlagents_envs 1.1.0: `make mlagents-test` sets up an environment with them. No game is needed,
because the env is written in Python.
"""

from __future__ import annotations

import tempfile
import warnings
from typing import Any

import numpy as np
import torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # from old packages
    from mlagents.plugins.trainer_type import register_trainer_plugins
    from mlagents.trainers.environment_parameter_manager import EnvironmentParameterManager
    from mlagents.trainers.ppo.optimizer_torch import PPOSettings
    from mlagents.trainers.settings import NetworkSettings, RunOptions, ScheduleType, TrainerSettings
    from mlagents.trainers.stats import StatsReporter, StatsWriter
    from mlagents.trainers.trainer import TrainerFactory
    from mlagents.trainers.trainer_controller import TrainerController
    from mlagents_envs.base_env import (
        ActionSpec,
        BaseEnv,
        BehaviorMapping,
        BehaviorSpec,
        DecisionSteps,
        DimensionProperty,
        ObservationSpec,
        ObservationType,
        TerminalSteps,
    )

    from remuda.mlagents import SubprocessEnvManager

MAX_STEPS = 4000
WALKER = "Walker"


class CorridorEnv(BaseEnv):
    """A corridor with a prize at one end and a hole at the other. The observation shows the end with the prize."""

    academy_capabilities = None

    def __init__(self, worker_id: int, side_channels: list[Any]) -> None:
        super().__init__()
        size = ObservationSpec((2,), (DimensionProperty.UNSPECIFIED,), ObservationType.DEFAULT, "place and prize")
        self._spec = BehaviorSpec([size], ActionSpec(0, (2,)))
        self._random = np.random.default_rng(worker_id)
        self._agent_id = 0
        self._steps: tuple[DecisionSteps, TerminalSteps]

    @property
    def behavior_specs(self) -> BehaviorMapping:
        return BehaviorMapping({WALKER: self._spec})

    def reset(self) -> None:
        self._agent_id += 1
        self._place, self._prize = 0.0, float(self._random.choice([-1.0, 1.0]))
        self._direction = 0.0
        self._steps = self._going(), TerminalSteps.empty(self._spec)

    def set_actions(self, behavior_name: str, action: Any) -> None:
        self._direction = 1.0 if action.discrete[0, 0] else -1.0

    def set_action_for_agent(self, behavior_name: str, agent_id: int, action: Any) -> None:
        self.set_actions(behavior_name, action)

    def step(self) -> None:
        self._place += 0.25 * self._direction
        if abs(self._place) < 1.0:
            self._steps = self._going(-0.01), TerminalSteps.empty(self._spec)
        else:
            over = self._over(1.0 if self._place == self._prize else -1.0)
            self.reset()
            self._steps = self._steps[0], over

    def get_steps(self, behavior_name: str) -> tuple[DecisionSteps, TerminalSteps]:
        return self._steps

    def close(self) -> None:
        pass

    def _going(self, reward: float = 0.0) -> DecisionSteps:
        return DecisionSteps(*self._told(reward), None, *self._alone())

    def _over(self, reward: float) -> TerminalSteps:
        obs, rewards, ids = self._told(reward)
        return TerminalSteps(obs, rewards, np.zeros(1, np.bool_), ids, *self._alone())

    def _told(self, reward: float) -> tuple[Any, ...]:
        obs = np.array([[self._place, self._prize]], np.float32)
        return [obs], np.array([reward], np.float32), np.array([self._agent_id], np.int32)

    def _alone(self) -> tuple[Any, ...]:
        return np.zeros(1, np.int32), np.zeros(1, np.float32)


class Curve(StatsWriter):
    """Stores (step, mean return of the episodes since the last summary) for each of ML-Agents' summaries."""

    def __init__(self) -> None:
        self.points: list[tuple[int, float]] = []

    def write_stats(self, category: str, values: Any, step: int) -> None:
        if summary := values.get("Environment/Cumulative Reward"):
            self.points.append((step, float(summary.aggregated_value)))


def settings(max_steps: int) -> TrainerSettings:
    return TrainerSettings(
        trainer_type="ppo",
        hyperparameters=PPOSettings(
            learning_rate=5e-3, learning_rate_schedule=ScheduleType.CONSTANT, batch_size=32, buffer_size=128
        ),
        network_settings=NetworkSettings(num_layers=1, hidden_units=32),
        summary_freq=500,
        max_steps=max_steps,
        checkpoint_interval=2 * max_steps,
        threaded=False,
    )


def train(manager: Any, max_steps: int = MAX_STEPS) -> list[tuple[int, float]]:
    """Trains PPO. Returns (step, mean return) of each summary."""
    register_trainer_plugins()
    curve = Curve()
    StatsReporter.writers.clear()
    StatsReporter.add_writer(curve)
    torch.onnx.export = export_nothing
    parameters = EnvironmentParameterManager()
    try:
        with tempfile.TemporaryDirectory() as folder:
            trainers = TrainerFactory(
                trainer_config={WALKER: settings(max_steps)},
                output_path=folder,
                train_model=True,
                load_model=False,
                seed=1,
                param_manager=parameters,
            )
            TrainerController(trainers, folder, "run", parameters, True, 1).start_learning(manager)
    finally:
        manager.close()
    return curve.points


def export_nothing(model: Any, args: Any, file: str, **options: Any) -> None:
    """Replaces the ONNX export, because PyTorch's exporter needs newer packages than ML-Agents supports."""
    with open(file, "wb"):
        pass


def main() -> list[tuple[int, float]]:
    curve = train(SubprocessEnvManager(CorridorEnv, RunOptions(), 4), MAX_STEPS)
    for step, value in curve:
        print(f"{step:6d} steps: mean return {value:5.2f}")
    return curve


if __name__ == "__main__":
    main()
