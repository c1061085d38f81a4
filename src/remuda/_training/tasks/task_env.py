"""TaskEnv: a slot in the pool of `evaluate_tasks`, which changes its env with its task. It runs in the workers."""

from __future__ import annotations

import logging
import operator
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import gymnasium
import numpy as np
from gymnasium import Space, spaces

from remuda import InvalidActionError, InvalidEnvError, SpaceMismatchError
from remuda._training.success import is_success
from remuda._training.tasks.task import Task
from remuda._videos.video_recorder import VideoRecorder
from remuda._wire.codec import SpaceCodec
from remuda._worker.env_report import check_single, core_of, free_closed_env
from remuda._worker.old_gym import converted

RETURN = "_remuda_return"  # the key of the last info for the sum of rewards that are vectors


class Form(NamedTuple):
    """The spaces and the render mode of the envs of all tasks. Tasks may have other numbers of discrete actions."""

    observation_space: Space[Any]
    action_space: Space[Any]
    render_mode: str | None


class TaskEnv(gymnasium.Env[Any, Any]):
    """Hosts the env of one task after another. Its resets get the task, so a build is part of a reset.

    Attributes:
        env: The env of the current task; None before the first reset.
    """

    env: Any

    def __init__(self, tasks: tuple[Task, ...], like: Form | int) -> None:
        """`like`: what all tasks have in common; or the index of a task to build at once, which shows it."""
        self._tasks, self._task, self.env = tasks, -1, None
        if isinstance(like, int):
            self._build(like)
            like = Form(self.env.observation_space, self.env.action_space, getattr(self.env, "render_mode", None))
        self.observation_space, self.action_space, self.render_mode = like

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """`options`: the index of the task as "task", the options of its env as "options", and the "video" or None."""
        assert options is not None
        if options["task"] != self._task:
            self._change(options["task"])
        self._steps, self._return = 0, np.zeros(())
        given = {} if options["options"] is None else {"options": options["options"]}
        begun: tuple[Any, dict[str, Any]] = self.env.reset(seed=seed, **given)
        self._recorder.expected = self._video(options["video"])
        self._is_recorded = options["video"] is not None
        self._recorder.begin()
        return begun

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        bounds = self._bounds
        if bounds is None or not bounds[0] <= operator.index(action) <= bounds[1]:
            self._check(action)
        try:
            obs, reward, terminated, truncated, info = self.env.step(action)
        except BaseException:
            self._recorder.end()  # the video shows the episode up to the fault
            raise
        task = self._tasks[self._task]
        self._steps += 1
        if not isinstance(reward, float) and _is_vector(reward):  # the pool takes a number from all tasks
            self._return = self._return + np.asarray(reward, np.float64)
            reward = float(np.sum(reward))
        truncated = truncated or self._steps == task.max_steps
        terminated = terminated or (task.until_success and _has_succeeded(task, info))
        if (terminated or truncated) and np.ndim(self._return):
            info = {**info, RETURN: self._return.tolist()}
        if self._is_recorded:
            self._recorder.step(terminated or truncated)
        return obs, reward, terminated, truncated, info

    def close(self) -> None:
        """Closes the env of the current task, if there is one."""
        env, self.env, self._task = self.env, None, -1
        if env is not None:
            _in_use.pop(id(core_of(env)), None)
            self._recorder.drop()
            env.close()

    def _change(self, index: int) -> None:
        is_first = self.env is None
        try:
            self.close()  # first, because two simulators that render in one process disturb each other
        except Exception as error:  # the episodes of this env have ended, and the next ones are of another env
            logging.getLogger("remuda").error("an env of another task raised in close: %r", error, exc_info=error)
        if not is_first:
            free_closed_env()
        self._build(index)
        name = self._tasks[index].name
        for kind in ("observation", "action"):
            own, found = getattr(self, f"{kind}_space"), getattr(self.env, f"{kind}_space")
            if own != found and (difference := SpaceCodec(own).difference(SpaceCodec(found))):
                self.close()
                text = f"expected the {kind} space of task {name!r} to be like that of the other tasks, {own}; got "
                raise SpaceMismatchError(f"{text}{difference} ({found})", kind, [found])

    def _build(self, index: int) -> None:
        task = self._tasks[index]
        env = converted(task.make(), f"make of task {task.name!r}")
        check_single(env, f"make of task {task.name!r}")
        actions = SpaceCodec(env.action_space)
        self._actions = actions if any(column.choices is not None for column in actions.columns) else None
        # The bounds of the choice if the action is only one number, which is checked much faster than others.
        self._bounds: tuple[int, int] | None = None
        if actions.is_single_column and (column := actions.columns[0]).shape == () and column.choices is not None:
            self._bounds = int(column.choices[0]), int(column.choices[1])
        metadata = getattr(env, "metadata", None) or {}
        self._recorder = VideoRecorder(getattr(env, "render", None), metadata.get("render_fps"))
        if _in_use.setdefault(id(core_of(env)), self) is not self:
            raise InvalidEnvError(
                f"expected make of task {task.name!r} to return an env of its own, got one that is in use; create the "
                "env inside the function"
            )
        self.env, self._task = env, index

    def _check(self, action: Any) -> None:
        """Raises InvalidActionError for a discrete choice that the env of this task does not have."""
        if self._actions is None:
            return
        try:
            self._actions.check_choices(self._actions.flatten(action, "actions")[0], "actions")
        except InvalidActionError as error:
            raise InvalidActionError(f"{error}; the policy acts in task {self._tasks[self._task].name!r}") from None

    def _video(self, path: Path | None) -> Path | None:
        mode = getattr(self.env, "render_mode", None)
        if path is not None and mode != "rgb_array":
            name = self._tasks[self._task].name
            raise InvalidEnvError(f"expected an env with render_mode='rgb_array' for videos of {name!r}, got {mode!r}")
        return path


_in_use = WeakValueDictionary[int, TaskEnv]()  # by id of the innermost env, in this process


def _has_succeeded(task: Task, info: dict[str, Any]) -> bool:
    """Returns whether an episode ends because it is a success."""
    if isinstance(task.success, str) and task.success not in info:
        return False
    try:
        return is_success(task.success, info, task.name)
    except Exception:  # the episode ends, and the caller, which reads the same info, raises the error
        return True


def _is_vector(reward: Any) -> bool:
    """Returns whether a reward has several numbers. An array of one number is a number for the pool."""
    return isinstance(reward, (list, tuple)) or (getattr(reward, "ndim", 0) == 1 and len(reward) != 1)


def without_choices(space: Space[Any]) -> Space[Any]:
    """Returns a space with the same columns, in which discrete numbers have no bounds."""
    if isinstance(space, spaces.Dict):
        return spaces.Dict([(key, without_choices(child)) for key, child in space.spaces.items()])
    if isinstance(space, spaces.Tuple):
        return spaces.Tuple(map(without_choices, space.spaces))
    if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)):
        assert space.dtype is not None and space.shape is not None  # never None in these classes
        bounds = np.iinfo(space.dtype)
        return spaces.Box(bounds.min, bounds.max, space.shape, space.dtype)
    return space
