"""The worker's side: adapts an env of ML-Agents, with its side channels, to the pool's loop."""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from gymnasium import Space
from mlagents.trainers.settings import EngineSettings, ParameterRandomizationSettings, RunOptions, TrainerSettings
from mlagents.trainers.subprocess_env_manager import EnvironmentCommand, StepResponse
from mlagents.trainers.training_analytics_side_channel import TrainingAnalyticsSideChannel
from mlagents_envs.side_channel.engine_configuration_channel import EngineConfig, EngineConfigurationChannel
from mlagents_envs.side_channel.environment_parameters_channel import EnvironmentParametersChannel
from mlagents_envs.side_channel.stats_side_channel import StatsSideChannel
from mlagents_envs.timers import TimerNode, get_timer_root, reset_timers

from remuda._faces.hosting import HostedEnv
from remuda.mlagents import wire

ANSWER = "answer"  # the key in an info for an answer that does not fit into a row

Request = tuple[EnvironmentCommand, Any]


class Answer(NamedTuple):
    """A worker's answer to the requests of one order.

    Attributes:
        payload: The result of the last request: a ``StepResponse`` for a step, the first observations for a reset.
        specs: The behaviours that are new or have changed.
    """

    payload: Any
    specs: dict[str, Any]


class Channels:
    """The side channels of one env.

    Attributes:
        parameters: Sends environment parameters.
        stats: Receives statistics.
        of_env: All channels, for the env factory.
    """

    def __init__(self, run_options: RunOptions, worker_id: int) -> None:
        self._run_options = run_options
        self.parameters = EnvironmentParametersChannel()
        self.stats = StatsSideChannel()
        self.of_env: list[Any] = [self.parameters, _engine_channel(run_options.engine_settings), self.stats]
        self._analytics: TrainingAnalyticsSideChannel | None = None
        if worker_id == 0:  # only the first env reports the training to Unity
            self._analytics = TrainingAnalyticsSideChannel()
            self.of_env.append(self._analytics)

    def introduce(self, env: Any) -> None:
        """Sends the run's options to the env, if the env supports training analytics."""
        capabilities = getattr(env, "academy_capabilities", None)
        if capabilities is None or not capabilities.trainingAnalytics:
            self._analytics = None
        elif self._analytics is not None:
            self._analytics.environment_initialized(self._run_options)

    def training_started(self, behavior_name: str, trainer_settings: TrainerSettings) -> None:
        if self._analytics is not None:
            self._analytics.training_started(behavior_name, trainer_settings)


def _engine_channel(settings: EngineSettings) -> EngineConfigurationChannel:
    channel = EngineConfigurationChannel()
    channel.set_configuration(EngineConfig(**{name: getattr(settings, name) for name in EngineConfig._fields}))
    return channel


class Worker(HostedEnv):
    """An adapter with Gymnasium's methods for an env of ML-Agents.

    For the pool, every operation of the env is a step. The action is an order, which is a list of requests, and its
    results and failures arrive like those of steps. The pool's own resets do nothing. An empty order builds the env if
    there is none, so that a failure to build it arrives in the same way, and returns the specs of all behaviours.

    An order other than a plain step is set by :func:`put`, before an empty row.

    Args:
        env_factory: Builds the env, from the worker's number and its side channels.
        worker_id: The worker's number.
        run_options: The settings for the side channels.
        caller: The process and the thread of the manager, in which timers are not reset.
    """

    observation_space: Space[Any] = wire.ANSWERS
    action_space: Space[Any] = wire.ORDERS

    def __init__(
        self,
        env_factory: Callable[[int, list[Any]], Any],
        worker_id: int,
        run_options: RunOptions,
        caller: tuple[int, int],
    ) -> None:
        self._env_factory, self._worker_id = env_factory, worker_id
        self._run_options, self._caller = run_options, caller
        self._channels: Channels
        self._sent_specs: dict[str, Any] = {}
        self._row = np.zeros(wire.ANSWERS.shape, np.uint8)
        self.order = b""  # pickled
        if self._has_own_timers:  # clears the manager's timers, which a forked worker inherits
            reset_timers()

    # -- methods that the worker's loop calls ------------------------------------------------------------

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Returns an empty row. The env itself is reset by a request."""
        self._row[0] = 0
        return self._row, {}

    def step(self, row: np.ndarray[Any, Any]) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Executes the actions in the row. If the row is empty, executes the order that :func:`put` has set."""
        if self.env is None:
            self._build()
        payload = self._follow(pickle.loads(self.order)) if wire.is_empty(row) else self._step(wire.load_actions(row))
        specs, info = self._new_specs(), {}
        if specs or not wire.fill_with_answer(self._row, payload):
            self._row[0] = 0
            info[ANSWER] = Answer(payload, specs)
        return self._row, 0.0, False, False, info

    # -- requests ----------------------------------------------------------------------------------------

    def _build(self) -> None:
        self._channels = Channels(self._run_options, self._worker_id)
        self.env = self._env_factory(self._worker_id, self._channels.of_env)
        self._channels.introduce(self.env)

    def _follow(self, order: Sequence[Request]) -> Any:
        if not order:
            self._sent_specs.clear()  # after an interrupt, the manager may have dropped the row that had the specs
        payload = None
        for command, argument in order:
            payload = self._do(command, argument)
        return payload

    def _do(self, command: EnvironmentCommand, argument: Any) -> Any:
        match command:
            case EnvironmentCommand.STEP:
                return self._step(argument)
            case EnvironmentCommand.RESET:
                self.env.reset()
                return self._results()
            case EnvironmentCommand.ENVIRONMENT_PARAMETERS:
                self._set_parameters(argument)
            case EnvironmentCommand.TRAINING_STARTED:
                self._channels.training_started(*argument)
        return None

    def _step(self, actions: Mapping[str, Any]) -> StepResponse:
        for behavior, action in actions.items():
            self.env.set_actions(behavior, action)
        self.env.step()
        return StepResponse(self._results(), self._take_timers(), self._channels.stats.get_and_reset_stats())

    def _results(self) -> dict[str, Any]:
        return {behavior: self.env.get_steps(behavior) for behavior in self.env.behavior_specs}

    def _set_parameters(self, parameters: Mapping[str, Any]) -> None:
        for key, value in parameters.items():
            if isinstance(value, ParameterRandomizationSettings):
                value.apply(key, self._channels.parameters)
            elif isinstance(value, Real):
                self._channels.parameters.set_float_parameter(key, float(value))

    @property
    def _has_own_timers(self) -> bool:
        return (os.getpid(), threading.get_ident()) != self._caller

    def _take_timers(self) -> TimerNode | None:
        """Returns ML-Agents' timers since the previous call; None if the manager's thread steps the env."""
        if not self._has_own_timers:
            return None
        root = get_timer_root()
        reset_timers()
        return root

    def _new_specs(self) -> dict[str, Any]:
        """Returns the specs of behaviours that were not sent yet, because new behaviours may appear with any step."""
        specs = self.env.behavior_specs
        new = {name: specs[name] for name in specs if self._sent_specs.get(name) != specs[name]}
        self._sent_specs.update(new)
        return new


def put(worker: Worker, order: bytes) -> None:
    """Sets the order that the next step executes, if its row is empty.

    Args:
        worker: The worker.
        order: The pickled requests. The step unpickles them, so that a failure arrives like those of the env.
    """
    worker.order = order
