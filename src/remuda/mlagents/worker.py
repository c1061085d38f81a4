"""What runs in a worker: an env of ML-Agents, as the pool's loop expects one."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium import Space
from mlagents.trainers.settings import ParameterRandomizationSettings
from mlagents.trainers.subprocess_env_manager import EnvironmentCommand, StepResponse
from mlagents_envs.timers import TimerNode, get_timer_root, reset_timers

from remuda.mlagents import wire
from remuda.mlagents.channels import Channels, EngineOptions
from remuda.mlagents.errors import unity_exceptions_that_travel

ANSWER = "answer"  # the key of the infos that carries one that does not fit into a row

Request = tuple[EnvironmentCommand, Any]


class Answer(NamedTuple):
    """What a worker says to the requests of one order.

    Attributes:
        payload: To the last of them: of a step a ``StepResponse``, of a reset the first observations.
        specs: The behaviours that are new, or other than before.
    """

    payload: Any
    specs: dict[str, Any]


class Worker:
    """An env of ML-Agents behind Gymnasium's methods.

    To the pool all is a step: its action is an order, a list of requests, and what becomes of it is told as it is of
    steps, in the order of arrival and failures included. The pool's own resets touch nothing. The env is made by an
    order, too, which is empty, so that one that cannot be made is told in the same way.

    An order that is no mere step comes by :func:`put`, ahead of an empty row.

    Args:
        env_factory: Makes the env, out of the worker's number and its side channels.
        worker_id: The number.
        options: What the side channels are set to.
        caller: The process and the thread of the manager, whose timers are its own affair.
    """

    observation_space: Space[Any] = wire.ANSWERS
    action_space: Space[Any] = wire.ORDERS

    def __init__(
        self,
        env_factory: Callable[[int, list[Any]], Any],
        worker_id: int,
        options: EngineOptions,
        caller: tuple[int, int],
    ) -> None:
        self._env_factory, self._worker_id = env_factory, worker_id
        self._options, self._caller = options, caller
        self._env: Any = None
        self._channels: Channels
        self._told: dict[str, Any] = {}  # the specs that the manager knows
        self._row = np.zeros(wire.ANSWERS.shape, np.uint8)
        self.order: Sequence[Request] = ()
        if self._has_own_timers:  # a worker that was forked has a copy of the manager's
            reset_timers()

    # -- what the loop calls -----------------------------------------------------------------------------

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Of a pool's env it is expected; the env itself is reset by request."""
        self._row[0] = 0
        return self._row, {}

    def step(self, row: np.ndarray[Any, Any]) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Do what is asked. What the env raises is the pool's to tell."""
        with unity_exceptions_that_travel():
            if self._env is None:
                self._build()
            payload = self._obey(self.order) if wire.is_empty(row) else self._step(wire.load_actions(row))
        specs, info = self._new_specs(), {}
        if specs or not wire.fill_with_answer(self._row, payload):
            self._row[0] = 0
            info[ANSWER] = Answer(payload, specs)
        return self._row, 0.0, False, False, info

    def close(self) -> None:
        env, self._env = self._env, None
        if env is not None:
            env.close()

    # -- requests ----------------------------------------------------------------------------------------

    def _build(self) -> None:
        self._channels = Channels(self._options, self._worker_id)
        self._env = self._env_factory(self._worker_id, self._channels.of_env)
        self._channels.introduce(self._env)

    def _obey(self, order: Sequence[Request]) -> Any:
        payload = None
        for command, argument in order:
            payload = self._do(command, argument)
        return payload

    def _do(self, command: EnvironmentCommand, argument: Any) -> Any:
        match command:
            case EnvironmentCommand.STEP:
                return self._step(argument)
            case EnvironmentCommand.RESET:
                self._env.reset()
                return self._results()
            case EnvironmentCommand.ENVIRONMENT_PARAMETERS:
                self._set_parameters(argument)
            case EnvironmentCommand.TRAINING_STARTED:
                self._channels.training_started(*argument)
        return None

    def _step(self, actions: Mapping[str, Any]) -> StepResponse:
        for behavior, action in actions.items():
            self._env.set_actions(behavior, action)
        self._env.step()
        return StepResponse(self._results(), self._take_timers(), self._channels.stats.get_and_reset_stats())

    def _results(self) -> dict[str, Any]:
        return {behavior: self._env.get_steps(behavior) for behavior in self._env.behavior_specs}

    def _set_parameters(self, parameters: Mapping[str, Any]) -> None:
        for key, value in parameters.items():
            if isinstance(value, ParameterRandomizationSettings):
                value.apply(key, self._channels.parameters)
            elif isinstance(value, (int, float)):
                self._channels.parameters.set_float_parameter(key, value)

    @property
    def _has_own_timers(self) -> bool:
        return (os.getpid(), threading.get_ident()) != self._caller

    def _take_timers(self) -> TimerNode | None:
        """Those of this thread since the last time; where the manager steps the env itself, they are in its tree."""
        if not self._has_own_timers:
            return None
        root = get_timer_root()
        reset_timers()
        return root

    def _new_specs(self) -> dict[str, Any]:
        """Behaviours come up as their first agents do."""
        specs = self._env.behavior_specs
        new = {name: specs[name] for name in specs if name not in self._told or self._told[name] != specs[name]}
        self._told.update(new)
        return new


def put(worker: Worker, order: Sequence[Request]) -> None:
    """The order that the next step is to follow."""
    worker.order = order
