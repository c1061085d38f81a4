"""The units of an evaluation, pairs of a task and an episode, and the order in which envs take them."""

from __future__ import annotations

from collections import deque
from collections.abc import Set
from dataclasses import dataclass, field
from zlib import crc32

import numpy as np

from remuda._seeds import derive_seed
from remuda._training.tasks.task import Task


@dataclass(frozen=True)
class Unit:
    """The episode of a task that an env plays for `evaluate_tasks`, in `PolicyContext.units`.

    Attributes:
        task: The name of the task.
        episode: The number of the episode in its task, from 0.
        seed: The seed of its reset.
        init_state: The index of its state in `Task.init_states`; None without such states.
        instruction: The instruction of the task.
        rng: A random generator of this episode, for policies that draw. It gives the same numbers in every run of the
            episode, with any number of envs.
    """

    task: str
    episode: int
    seed: int
    init_state: int | None
    instruction: str
    rng: np.random.Generator = field(compare=False, repr=False)


class Schedule:
    """The units that no env has taken yet.

    An env stays with its task while the task has units, because a change of the task builds an env. Otherwise it
    takes the task with the most units left.
    """

    def __init__(self, tasks: tuple[Task, ...], episodes: int, seed: int, done: Set[tuple[str, int]]) -> None:
        """`done`: the (task, episode) of units that are not played."""
        self._tasks, self._seed = tasks, seed
        self._left = [deque(k for k in range(episodes) if (task.name, k) not in done) for task in tasks]

    def __len__(self) -> int:
        return sum(map(len, self._left))

    def take(self, current: int | None) -> tuple[int, Unit] | None:
        """Returns the index of a task and a unit of it, for an env with the task `current`; None if no unit is left."""
        if current is None or not self._left[current]:
            current = max(range(len(self._left)), key=lambda index: len(self._left[index]))
        return (current, self._unit(current, self._left[current].popleft())) if self._left[current] else None

    def put_back(self, index: int, episode: int) -> None:
        """Makes an episode of the task with this index the next one to be taken."""
        self._left[index].appendleft(episode)

    def _unit(self, index: int, episode: int) -> Unit:
        task = self._tasks[index]
        # The key has the name, not the index: an episode has the same numbers beside other tasks.
        stream = np.random.SeedSequence(self._seed, spawn_key=(episode, crc32(task.name.encode())))
        seed = derive_seed(self._seed, episode)
        rng = np.random.default_rng(stream)
        return Unit(task.name, episode, seed, task._init_state_of(episode), task.instruction, rng)
