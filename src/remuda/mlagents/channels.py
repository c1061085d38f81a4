"""The side channels that each worker makes for its env."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlagents.trainers.settings import EngineSettings, RunOptions, TrainerSettings
from mlagents.trainers.training_analytics_side_channel import TrainingAnalyticsSideChannel
from mlagents_envs.side_channel.engine_configuration_channel import EngineConfig, EngineConfigurationChannel
from mlagents_envs.side_channel.environment_parameters_channel import EnvironmentParametersChannel
from mlagents_envs.side_channel.stats_side_channel import StatsSideChannel

_REPORTER = 0  # the worker whose env is told of the training


@dataclass(frozen=True)
class EngineOptions:
    """What of the run's options a worker needs.

    Attributes:
        engine: The engine's settings.
        run: All of them, for training analytics; ``None``: there are none.
    """

    engine: EngineSettings
    run: RunOptions | None

    @classmethod
    def of(cls, run_options: RunOptions, worker_id: int) -> EngineOptions:
        return cls(run_options.engine_settings, run_options if worker_id == _REPORTER else None)


class Channels:
    """Of one env.

    Attributes:
        parameters: To its environment parameters.
        stats: From its statistics.
        of_env: All, as the factory gets them.
    """

    def __init__(self, options: EngineOptions, worker_id: int) -> None:
        self._run = options.run
        self.parameters = EnvironmentParametersChannel()
        self.stats = StatsSideChannel()
        self._analytics = TrainingAnalyticsSideChannel() if worker_id == _REPORTER else None
        of_all = [self.parameters, _engine_channel(options.engine), self.stats]
        self.of_env: list[Any] = of_all if self._analytics is None else [*of_all, self._analytics]

    def introduce(self, env: Any) -> None:
        """Tell the env of the run, if it understands that: one that does not would be sent an unknown message."""
        capabilities = getattr(env, "academy_capabilities", None)
        if capabilities is None or not capabilities.trainingAnalytics:
            self._analytics = None
        elif self._analytics is not None:
            self._analytics.environment_initialized(self._run)

    def training_started(self, behavior_name: str, trainer_settings: TrainerSettings) -> None:
        if self._analytics is not None:
            self._analytics.training_started(behavior_name, trainer_settings)


def _engine_channel(settings: EngineSettings) -> EngineConfigurationChannel:
    channel = EngineConfigurationChannel()
    channel.set_configuration(EngineConfig(**{name: getattr(settings, name) for name in EngineConfig._fields}))
    return channel
