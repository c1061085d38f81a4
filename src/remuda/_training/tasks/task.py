"""Task: an env in which `evaluate_tasks` plays episodes, and the sign of their success."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

from remuda._training.arguments import check_count
from remuda._training.success import Success, check_success


@dataclass(frozen=True, eq=False)
class Task:
    """A task for `evaluate_tasks`::

        remuda.Task("reach", lambda: gymnasium.make("Reacher-v5"), success=lambda info: info["reward_dist"] > -0.05)

    Attributes:
        name: The name in results; different tasks need different names.
        make: A function without arguments that returns a new env. It runs in the workers.
        max_steps: The number of steps after which an episode is truncated, from 1 up; None: the env decides alone.
        instruction: The instruction that policies find in `Unit.instruction`.
        init_states: The states in which episodes begin, or None. Episode k begins with number k, or k modulo their
            number: `env.reset(seed=..., options={"init_state": init_states[k]})`. They must be picklable.
        success: The key of the last info that tells whether the episode was a success (a bool, or 0 or 1), or a
            function of the last info that returns this. The function runs in the caller's process.
        until_success: Whether an episode ends, as terminated, at the first step whose info tells of success. A step
            without the key is none. A function also runs in the workers, after each step.

    Raises:
        TypeError: `make`, `init_states` or `success` has another type.
        ValueError: The name or the sequence of states is empty, or `max_steps` is below 1.
    """

    name: str
    make: Callable[[], Any]
    _: KW_ONLY
    max_steps: int | None = None
    instruction: str = ""
    init_states: Sequence[Any] | None = None
    success: Success = "is_success"
    until_success: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise ValueError(f"expected the name of a task to be a text that is not empty, got {self.name!r}")
        if not callable(self.make):
            raise TypeError(
                f"expected make of task {self.name!r} to be a function that returns an env, got {self.make!r}"
            )
        check_success(self.success, f" of task {self.name!r}")
        if self.max_steps is not None:
            check_count(f"max_steps of task {self.name!r}", self.max_steps)
        if self.init_states is not None and not _is_sequence(self.init_states):
            raise TypeError(
                f"expected init_states of task {self.name!r} to be a sequence of states, or None, got "
                f"{self.init_states!r}; write a list of the states"
            )
        if self.init_states is not None and not len(self.init_states):
            raise ValueError(f"expected at least one of init_states of task {self.name!r}, or None, got none")

    def _init_state_of(self, episode: int) -> int | None:
        """Returns the index of the state in which an episode begins."""
        return None if self.init_states is None else episode % len(self.init_states)


def _is_sequence(states: Any) -> bool:
    """Returns whether states can be counted and taken by their index. Arrays and tensors are no `Sequence`."""
    try:
        len(states)
    except TypeError:
        return False
    return hasattr(states, "__getitem__") and not isinstance(states, (str, bytes, Mapping))


def check_tasks(tasks: Any) -> tuple[Task, ...]:
    """Returns the tasks as a tuple, after checking that they are tasks with different names."""
    found = tuple(tasks) if not isinstance(tasks, Task) else (tasks,)
    for task in found:
        if not isinstance(task, Task):
            raise TypeError(f"expected tasks to be a sequence of remuda.Task, got {task!r} in it")
    names = [task.name for task in found]
    if not names or len(set(names)) < len(names):
        raise ValueError(f"expected at least one task, and different names, got the names {names}")
    return found
