"""The driver of `evaluate_tasks`: each env takes the next unit when it has ended one. No env waits for another."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from remuda import (
    Batch,
    Fault,
    InvalidActionError,
    InvalidEnvError,
    Pool,
    SpaceMismatchError,
    StateError,
)
from remuda._error_frames import holds_nothing
from remuda._progress.bar import Bar
from remuda._training.acting import Actor, Policy, _map
from remuda._training.evaluation import is_own
from remuda._training.success import is_success
from remuda._training.tasks.results_file import ResultsFile
from remuda._training.tasks.task import Task
from remuda._training.tasks.task_env import RETURN
from remuda._training.tasks.unit import Schedule, Unit
from remuda._wire.codec import SpaceCodec
from remuda._wording import in_brief

_MISTAKES = (InvalidActionError, InvalidEnvError, SpaceMismatchError)  # of the caller: another attempt would not help


@dataclass(slots=True)
class _Play:
    """A unit that an env plays.

    Attributes:
        task: The index of its task.
        unit: The unit.
        planned: The next actions, if the policy returns several at once.
        length: The number of its steps; -1 until the reset is done.
        total: The sum of the rewards that are numbers.
    """

    task: int
    unit: Unit
    planned: deque[Any] = field(default_factory=deque)
    length: int = -1
    total: float = 0.0


class Driver:
    """Plays the units of a schedule in a pool of `TaskEnv`, and reports the row of each."""

    def __init__(
        self,
        policy: Policy,
        pool: Pool,
        tasks: tuple[Task, ...],
        schedule: Schedule,
        report: Report,
        attempts: int,
        min_envs: int,
        chunk: int | None,
        video_of: Callable[[Unit], Path | None],
    ) -> None:
        """For `attempts`, `min_envs` and `chunk` see `evaluate_tasks`. `video_of`: returns the file for a video."""
        self._actor = Actor(policy, pool.num_envs, _no_rng)
        self._pool, self._tasks, self._schedule = pool, tasks, schedule
        self._attempts, self._min_envs, self._chunk, self._video_of = attempts, min_envs, chunk, video_of
        self._rows = report
        self._obs, self._actions = SpaceCodec(pool.single_observation_space), SpaceCodec(pool.single_action_space)
        self._plays: dict[int, _Play] = {}  # by env: the unit that it plays
        self._waiting: list[int] = []  # the envs whose observations the policy has not seen, as they arrived
        self._unseen: list[tuple[Any, list[int] | None]] = []  # these observations: rows of batches; None: all
        self._tasks_of: list[int | None] = [None] * pool.num_envs  # by env: the index of its latest task
        self._faults: dict[tuple[int, int], list[str]] = {}  # by task and episode
        self._own_faults = Counter[tuple[int, int]]()  # the number of those that the unit's own env has caused

    @holds_nothing
    def run(self) -> None:
        """Plays all units. If the policy raises, all units that have ended were reported."""
        self._begin(range(self._pool.num_envs))
        try:
            while self._plays:
                in_flight, missing = len(self._plays) - len(self._waiting), self._min_envs - len(self._waiting)
                if in_flight and missing > 0:
                    self._take(self._pool.recv(min(missing, in_flight)))
                else:
                    self._act()
                self._rows.show()
        finally:
            self._unseen.clear()  # a traceback that the program keeps would keep the memory of the pool

    def _begin(self, envs: Iterable[int]) -> None:
        """Makes idle envs begin their next units, if there are any."""
        begun, seeds, options = list[int](), list[int](), list[dict[str, Any]]()
        for env in envs:
            if (taken := self._schedule.take(self._tasks_of[env])) is None:
                continue
            task, unit = taken
            self._plays[env], self._tasks_of[env] = _Play(task, unit), task
            states = self._tasks[task].init_states
            of_env = None if unit.init_state is None or states is None else {"init_state": states[unit.init_state]}
            begun.append(env)
            seeds.append(unit.seed)
            options.append({"task": task, "options": of_env, "video": self._video_of(unit)})
        if begun:
            self._pool.send_reset(seed=seeds, options=options, env_ids=begun)

    def _take(self, batch: Batch) -> None:
        """Handles results: ends units, sends planned actions, and notes the observations that need the policy."""
        ended, planned, unseen = list[tuple[int, int]](), list[int](), list[int]()
        plays, waiting = self._plays, self._waiting
        results = zip(batch.env_ids.tolist(), batch.rewards.tolist(), batch.dones.tolist(), strict=True)
        for row, (env, reward, is_over) in enumerate(results):
            play = plays[env]
            play.length += 1
            play.total += reward
            if is_over:
                ended.append((row, env))
            elif play.planned:
                planned.append(env)
            else:
                unseen.append(row)
                waiting.append(env)
        if unseen:
            self._unseen.append((batch.obs, None if len(unseen) == len(batch) else unseen))
        if ended:
            self._end(batch, ended)
        self._send_planned(planned)

    def _end(self, batch: Batch, ended: Sequence[tuple[int, int]]) -> None:
        """Ends units, and begins the next ones in their envs. `ended`: the row and the env of each."""
        for row, env in ended:
            play, info = self._plays.pop(env), batch.infos[row]
            if isinstance(fault := info.get("fault"), Fault):  # else the key is the env's own
                self._fail(play, fault)
            else:
                self._finish(play, bool(batch.terminations[row]), info)
        self._begin(env for _, env in ended)

    def _act(self) -> None:
        """Calls the policy for the envs that wait, and sends their actions."""
        envs, self._waiting = self._waiting, []
        plays, ids = [self._plays[env] for env in envs], np.array(envs, np.int64)
        obs = self._obs.gather(self._unseen)
        self._unseen.clear()  # no local variable: the traceback of an error of the policy would keep the pool's memory
        context = self._actor.context_for(ids, lambda: np.array([play.length == 0 for play in plays]))
        if "context" in context:  # the policy takes it
            context["context"].units = tuple(play.unit for play in plays)
        actions, _ = self._actor.finish(self._actor.policy(obs, **context), **context)
        if self._chunk is None:
            self._pool.send(actions, ids)
            return
        actions = _map(lambda leaf: self._checked_chunk(leaf, len(envs)), actions)
        for row, play in enumerate(plays):
            play.planned.extend(_map(lambda leaf: leaf[row, step], actions) for step in range(self._chunk))  # noqa: B023
        self._send_planned(envs)

    def _checked_chunk(self, actions: Any, envs: int) -> Any:
        """Checks the shape of actions for several steps, and returns a copy: the policy may use its array again."""
        wanted = f"expected actions of shape ({envs}, {self._chunk}, ...), with chunk={self._chunk}, got"
        try:
            rows = np.array(actions)
        except Exception as error:  # such as that of a tensor which requires gradients
            what = "lists of different lengths, " if isinstance(actions, list) else ""
            raise InvalidActionError(f"{wanted} {what}{in_brief(actions)} ({error})") from error
        if (shape := np.shape(rows))[:2] != (envs, self._chunk):
            raise InvalidActionError(f"{wanted} {shape}")
        return rows

    def _send_planned(self, envs: Sequence[int]) -> None:
        if envs:
            planned = [self._plays[env].planned.popleft() for env in envs]
            actions = [self._actions.flatten(action, "actions", InvalidActionError) for action in planned]
            arrays, objects = zip(*actions, strict=True)
            columns = [np.stack(column) for column in zip(*arrays, strict=True)]
            self._pool.send(self._actions.build_batch(columns, objects), envs)

    def _finish(self, play: _Play, terminated: bool, info: dict[str, Any]) -> None:
        task, where = self._tasks[play.task], f"episode {play.unit.episode} of task {play.unit.task!r}"
        total = info.pop(RETURN, play.total)
        self._report(play, "done", is_success(task.success, info, where), total, play.length, terminated)

    def _fail(self, play: _Play, fault: Fault) -> None:
        """Notes a fault. The unit is played again, unless its own env has caused too many faults."""
        if isinstance(fault.error.__cause__, _MISTAKES):
            raise fault.error.__cause__
        key = (play.task, play.unit.episode)
        self._faults.setdefault(key, []).append(f"{fault.kind} in {fault.operation}: {fault}")
        if is_own(fault):
            self._own_faults[key] += 1
        if self._own_faults[key] < self._attempts:
            self._schedule.put_back(*key)
        else:
            self._report(play, "fault", None, None, None, None)

    def _report(self, play: _Play, status: str, success: Any, total: Any, length: Any, terminated: Any) -> None:
        unit, faults = play.unit, self._faults.pop((play.task, play.unit.episode), [])
        row = {"task": unit.task, "episode": unit.episode, "seed": unit.seed, "init_state": unit.init_state}
        row |= {"status": status, "success": success, "return": total, "length": length, "terminated": terminated}
        self._rows.add(row | {"attempts": len(faults) + (status == "done"), "faults": faults})


class _NoRng:
    """Stands in for `PolicyContext.rng`, as its numbers would depend on the order in which envs need actions."""

    def __getattr__(self, name: str) -> NoReturn:
        raise StateError("expected a policy that draws from context.units[i].rng in evaluate_tasks, got context.rng")


_no_rng: Any = _NoRng()


class Report:
    """Takes rows of units, in the order of their ends."""

    def __init__(self, file: ResultsFile, rows: list[dict[str, Any]], bar: Bar) -> None:
        """`rows`: those of units that ended before, to which further ones are added. `bar`: the bar to show."""
        self._file, self._rows, self._bar = file, rows, bar

    def add(self, row: dict[str, Any]) -> None:
        """Takes a row. It is in the file when this returns."""
        self._file.write(row)
        self._rows.append(row)

    def show(self) -> None:
        """Shows the bar, if a drawing is due."""
        self._bar.show(len(self._rows), self._note)

    def close(self) -> None:
        """Hides the bar; it stays in the terminal."""
        self._bar.show(len(self._rows), self._note, at_once=True)
        self._bar.hide()

    def _note(self) -> str:
        done = [row["success"] for row in self._rows if row["status"] == "done"]
        faulted = len(self._rows) - len(done)
        rate = f"{100 * sum(done) / len(done):.0f} % success" if done else ""
        return f"{rate}, {faulted} by faults" if faulted else rate
