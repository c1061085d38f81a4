"""Hosts ALF's envs in a worker, and runs the calls that the parallel envs send them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from types import SimpleNamespace
from typing import Any, ClassVar, NoReturn

import numpy as np
from gymnasium import spaces

from remuda._faces import hosting
from remuda._faces.hosting import reading
from remuda.alf.configuration import Configuration
from remuda.alf.nests import check_nest, from_plain, is_empty, space_of, to_plain

LAST = 2  # ALF's StepType.LAST


@dataclass(frozen=True)
class Setting:
    """The settings with which a worker makes its envs.

    Attributes:
        is_process: Whether the worker is a process of its own, which is set up like ALF's.
        resets_ahead: Whether envs reset when their episodes end, before the command to reset.
        torch_threads: The number of PyTorch's threads in it; None does not change it.
        configuration: The program's configuration, if the worker has not inherited it.
    """

    is_process: bool
    resets_ahead: bool = False
    torch_threads: int | None = None
    configuration: Configuration | None = None

    def make_env(self, constructor: Callable[..., Any], env_id: int | None) -> Any:
        """Makes an env. If the worker is a process of its own, this first sets up the process."""
        if not self.is_process:
            return constructor(env_id=env_id)
        import alf
        import torch
        from alf.utils.schedulers import disallow_scheduler

        alf.set_default_device("cpu")
        if self.torch_threads is not None:
            torch.set_num_threads(self.torch_threads)
        env = self.configuration.make_first_env(constructor, env_id) if self.configuration is not None else None
        if env is None:
            env = constructor(env_id=env_id)
        if not alf.get_config_value("TrainerConfig.sync_progress_to_envs"):
            disallow_scheduler()
        return env


class HostedEnv(hosting.HostedEnv):
    """Gives an ALF env Gymnasium's methods. The time step without the env id is the observation; infos are empty.

    A batched env resets its rows itself. For the engine it is one env with a single endless episode.
    """

    def __init__(self, env: Any, env_id: int, *, resets_ahead: bool) -> None:
        self.env, self.env_id = env, env_id
        self._resets_ahead = resets_ahead
        self._is_over = False  # whether the episode has ended and no reset has followed.
        self._fresh: Any = None  # the time step of a reset in advance, until it is used
        self.metadata: dict[str, Any] = {}
        self._outer = outer_shape(env)
        self._spec = time_step_spec(env)
        fields = columns_of(self._spec)
        self._take = itemgetter(*fields)
        self._to_plain = to_plain(self._take(self._spec))
        self._action_from_plain = from_plain(env.action_spec())
        self.observation_space = spaces.Tuple([space_of(self._spec[i], self._outer) for i in fields])
        self.action_space = space_of(env.action_spec(), self._outer, bounded=True)
        self._was_stepped = False

    def reset(self, **of_the_caller: Any) -> tuple[Any, dict[str, Any]]:
        """Returns the first time step of an episode, perhaps from a reset in advance.

        `of_the_caller`: the arguments of a reset by the caller, which uses no reset in advance; empty for other resets.
        """
        if of_the_caller:
            self.before_call()
            self._fresh = None
        time_step, self._fresh = self._fresh, None
        if time_step is None:
            time_step = self._reset()
        return self._plain(time_step), {}

    def _reset(self) -> Any:
        self._is_over = False
        time_step = self.env.reset()
        self._check(time_step)
        return time_step

    def before_call(self) -> None:
        """Resets the env in advance, if its episode has ended, so that its random numbers do not depend on timing."""
        if self._is_over and self._resets_ahead:
            self._fresh = self._reset()

    def step(self, action: Any) -> Any:
        convert = self._action_from_plain
        time_step = self.env.step(action if convert is None else convert(action))
        if not self._was_stepped:
            self._check(time_step)
            self._was_stepped = True
        self._is_over = not self._outer and time_step.step_type == LAST
        return self._plain(time_step), 0.0, self._is_over, False, {}

    def _plain(self, time_step: Any) -> Any:
        fields = self._take(time_step)
        return fields if self._to_plain is None else self._to_plain(fields)

    def _check(self, time_step: Any) -> None:
        """Checks a time step, because errors of the engine's own checks would not name the field."""
        for name, spec, value in zip(self._spec._fields, self._spec, time_step, strict=True):
            if name != "env_id":
                check_nest(spec, value, self._outer, f"time_step.{name}")


def time_step_spec(env: Any) -> Any:
    """Returns the spec of time steps with their env info."""
    return env.time_step_spec()._replace(env_info=env.env_info_spec())


def outer_shape(env: Any) -> tuple[int, ...]:
    """Returns the axes that precede those of the specs in an env's arrays: (batch size,), or ()."""
    return (env.batch_size,) if env.batched or env.batch_size > 1 else ()


def columns_of(spec: Any) -> list[int]:
    """Returns the indices of a time step's fields that are sent: all except the env id and empty fields."""
    return [i for i, name in enumerate(spec._fields) if name != "env_id" and not is_empty(spec[i])]


def build(constructor: Callable[..., Any], env_id: int, setting: Setting) -> HostedEnv:
    """Makes an env and returns its host."""
    env = setting.make_env(constructor, env_id)
    return HostedEnv(env, env_id, resets_ahead=setting.resets_ahead)


class CalledEnv(hosting.HostedEnv):
    """An env that the engine never steps. Calls run its methods, and the first call makes it."""

    metadata: ClassVar[dict[str, Any]] = {}
    observation_space = action_space = spaces.Discrete(1)

    def __init__(self, constructor: Callable[..., Any], env_id: int | None, setting: Setting) -> None:
        self._make = functools.partial(setting.make_env, constructor, env_id)

    def make(self) -> None:
        self.env = self._make()

    def reset(self, **_: Any) -> NoReturn:
        raise NotImplementedError("it is called")

    def step(self, _: Any) -> NoReturn:
        self.reset()


# -- calls -----------------------------------------------------------------------------------------------


_ATTRIBUTES = ("is_tensor_based", "batched", "batch_size", "num_tasks", "task_names")
_SPECS = ("action_spec", "observation_spec", "reward_spec", "time_step_spec", "env_info_spec")


@reading
def describe(hosted: HostedEnv) -> SimpleNamespace:
    """Returns the attributes and specs of an env, which the parallel env reports as its own."""
    env = hosted.env
    attributes = {name: getattr(env, name) for name in _ATTRIBUTES}
    return SimpleNamespace(**attributes, **{name: getattr(env, name)() for name in _SPECS})


def call_with_leaves(called: CalledEnv, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Calls a method. Actions and time steps are sent as lists of their leaves, in ALF's order."""
    from alf import nest

    if name == "step":
        args = (nest.pack_sequence_as(called.env.action_spec(), list(args[0])),)
    result = hosting.call_method(called, name, args, kwargs)
    return nest.flatten(result) if name in {"step", "reset"} else result


def seed(hosted: HostedEnv, seeds: Sequence[Any]) -> tuple[int, Any]:
    """Seeds an env, and returns its number and the result. `seeds`: the seeds of all envs, by their numbers."""
    return hosted.env_id, hosting.called_env(hosted).seed(seeds[hosted.env_id])


def seed_again(hosted: HostedEnv, derive: Callable[[int], int], seeds: Sequence[Any]) -> None:
    """Seeds a rebuilt env with a derived seed, because the old seed could repeat the failure of its predecessor.

    `derive`: see ``Pool.apply_async``. A seed that is not a number is passed unchanged.
    """
    given = seeds[hosted.env_id]
    if isinstance(given, (int, np.integer)) and given >= 0:
        given = derive(int(given))
    hosted.env.seed(given)


def update_progress(_: HostedEnv | CalledEnv, progress: dict[str, float]) -> None:
    """Passes the progress of the training to ALF's schedulers in this process."""
    from alf.utils.schedulers import update_all_progresses

    update_all_progresses(progress)
