"""Requests besides steps and resets, which are sent again to an env that is rebuilt."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mlagents.trainers.settings import ConstantSettings, TrainerSettings
from mlagents.trainers.subprocess_env_manager import EnvironmentCommand


class LastingRequests:
    """The environment parameters that were set, and the trainings that have begun."""

    def __init__(self) -> None:
        self._parameters: dict[str, Any] = {}
        self._trainings: dict[str, TrainerSettings] = {}

    def set_parameters(self, parameters: Mapping[str, Any] | None) -> None:
        self._parameters.update(parameters or {})

    def begin_training(self, behavior_name: str, trainer_settings: TrainerSettings) -> None:
        self._trainings[behavior_name] = trainer_settings

    def requests(self) -> Iterator[tuple[EnvironmentCommand, Any]]:
        """All of them, for an env that has received none."""
        if self._parameters:
            yield EnvironmentCommand.ENVIRONMENT_PARAMETERS, self._parameters
        for training in self._trainings.items():
            yield EnvironmentCommand.TRAINING_STARTED, training

    def floats(self) -> dict[str, float]:
        """The parameters that are numbers, and not drawn by the env."""
        numbers = {
            key: value.value if isinstance(value, ConstantSettings) else value
            for key, value in self._parameters.items()
        }
        return {key: float(number) for key, number in numbers.items() if isinstance(number, (int, float))}
