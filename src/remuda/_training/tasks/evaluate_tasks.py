"""`evaluate_tasks`: checks the arguments, starts the pool, and collects the rows."""

from __future__ import annotations

import inspect
import logging
import os
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from remuda import EnvError, FaultPolicy, Pool, PoolOptions, Ray, StartTimeoutError, WorkerDiedError
from remuda._keywords import check_keywords
from remuda._progress.bar import Bar
from remuda._training.acting import Policy, check_policy
from remuda._training.arguments import check_count, check_progress, check_seed, check_videos
from remuda._training.evaluate import ClosingPool
from remuda._training.tasks.driver import Driver, Report
from remuda._training.tasks.fingerprint import Fingerprint
from remuda._training.tasks.results import TaskResults
from remuda._training.tasks.results_file import ResultsFile, describe_run
from remuda._training.tasks.task import Task, check_tasks
from remuda._training.tasks.task_env import Form, TaskEnv, without_choices
from remuda._training.tasks.unit import Schedule, Unit

if TYPE_CHECKING:
    from typing_extensions import Unpack  # `Unpack` is in `typing` since Python 3.11

_REFUSED = ("autoreset", "extras", "lazy", "seeding", "spares", "vector_size")
_T = TypeVar("_T")


def evaluate_tasks(
    policy: Policy,
    tasks: Iterable[Task],
    *,
    episodes: int,
    num_envs: int,
    seed: int = 0,
    results: str | os.PathLike[str] | None = None,
    label: str | None = None,
    retry_faulted: bool = False,
    attempts: int = 3,
    min_envs: int = 1,
    chunk: int | None = None,
    progress: bool | None = None,
    video_folder: str | os.PathLike[str] | None = None,
    video_episodes: Iterable[int] = (0,),
    **options: Unpack[PoolOptions],
) -> TaskResults:
    """Plays `episodes` episodes of each task, in parallel, and returns a row for each.

        >>> import gymnasium, remuda
        >>> def stay(obs):
        ...     return [0] * len(obs)
        >>> task = remuda.Task("lake", lambda: gymnasium.make("FrozenLake-v1"), success=lambda info: info["prob"] == 1)
        >>> results = remuda.evaluate_tasks(stay, [task], episodes=4, num_envs=2)
        >>> len(results), results.success_rate
        (4, 0.0)

    A *unit* is an episode of a task. An env that has ended its unit takes the next one at once; if that has another
    task, the worker closes the old env and makes the new one. Episode k of every task is reset with the seed
    `int(numpy.random.SeedSequence(seed, spawn_key=(k,)).generate_state(1)[0]) & 0x7FFFFFFF`, like in `evaluate`, and
    with `Task.init_states[k]`. The results depend neither on `num_envs`, nor on the times of steps, faults, or
    interruptions, if each env is deterministic given its reset, and the policy treats each row alone.

    An episode that a fault ends (the env raises, dies or misses a deadline, in a build, reset or step) is played again
    from its reset. After `attempts` faults of its own env it gets the status "fault", and the run continues.

    Args:
        policy: A function of the observations of k envs, batched like `Batch.obs`, that returns their actions. With a
            parameter `context` it receives a `PolicyContext`; its `units` and `state` belong to the episodes. See
            `collect` for tensors, `act` and `PolicyContext`.
        tasks: Tasks with different names, and spaces of the same structure, shapes and dtypes. Their bounds may differ.
        episodes: The number of episodes of each task.
        num_envs: The number of envs that play at the same time.
        seed: The seed, from 0 up.
        results: A file, to which each row is appended when its unit ends. If the file has rows of this run, these units
            are not played again, also if it has fewer episodes of each task; a log record has their number. A file with
            another label, seed, chunk or tasks is refused, but other code of their functions is not noticed. Only one
            run at a time can use a file. None: no file.
        label: A name for the policy, such as that of its checkpoint. None: the name of the policy's class or function;
            for a torch module or another object with a `state_dict`, also a digest of that. Give a label if several
            policies share this name.
        retry_faulted: Whether to play those units again that have the status "fault" in `results`.
        attempts: The most times to play one unit, if faults of its env end it.
        min_envs: The number of envs that the policy is called for, if as many play. More make larger batches, but envs
            wait for each other.
        chunk: The number K of actions that the policy returns for each env: arrays or lists (k, K, ...). It is called
            again for an env when the env has made them. None: one action, without that axis.
        progress: Whether to show a progress bar on stderr, with the rate so far. It needs rich. None: only if the run
            takes longer than two seconds, stderr is a terminal, and rich is installed.
        video_folder: A folder for videos, `<task>-episode-<k>.mp4`, made if needed. The envs must have
            `render_mode="rgb_array"`, and moviepy must be installed.
        video_episodes: The episodes of each task to record.
        **options: The options of the pool. By default each env has a worker, as envs that render need. Of a
            `FaultPolicy` in `faults`, the deadlines, backoff and renewals hold. Deadlines of threads need
            `abandon_hung_threads`, `reset_timeout` includes the build of a task's env, and `max_restarts` limits only
            failed starts of workers.

    Raises:
        ValueError, TypeError: An argument is wrong, or `results` has another run. Nothing was started.
        StateError: Another run uses the file `results`. Nothing was started.
        ValueError: The last info of an episode does not tell whether it was a success.
        InvalidActionError: The policy returned an action of another form, or one that its task does not have.
        InvalidEnvError, SpaceMismatchError: An env of a task is none, or does not fit the other tasks.
        EnvError, WorkerDiedError, StartTimeoutError: No env of any task could be built.
        RestartLimitError: A worker that died could not be started again.
        MissingFrameworkError: rich, for `progress`, or moviepy, for videos, is not installed.
        KeyboardInterrupt: Its text has the number of units in the file `results`, if there is a file.
        Exception: The policy or the pool raised it. Rows in `results` are kept. Errors of closing envs are logged.
    """
    check_policy(policy)
    chosen, count = check_tasks(tasks), check_count("episodes", episodes)
    num_envs, attempts = check_count("num_envs", num_envs), check_count("attempts", attempts)
    min_envs = check_count("min_envs", min_envs, num_envs)
    chunk = None if chunk is None else check_count("chunk", chunk)
    if (entropy := check_seed(seed)) is None:
        raise ValueError("expected seed to be an int from 0 up, got None: each run of the same episodes has one seed")
    if label is not None and (not isinstance(label, str) or not label):
        raise TypeError(f"expected label to be a text that is not empty, or None, got {label!r}")
    label = _label_of(policy) if label is None else label
    check_progress(progress)
    shown = check_videos(video_folder, video_episodes, count)
    _check_video_names(chosen if video_folder is not None and shown else ())
    names = [name for name in inspect.signature(evaluate_tasks).parameters if name != "options"]
    pool_options = _checked(options, names)
    run = describe_run(label, chosen, count, entropy, chunk)
    with closing(ResultsFile(results, run)) as file:
        rows = [row for row in file.rows if not retry_faulted or row["status"] != "fault"]
        if rows:
            file.note_taken(len(rows))
        schedule = Schedule(chosen, count, entropy, {(row["task"], row["episode"]) for row in rows})
        if len(schedule):
            report = Report(file, rows, Bar("units", len(chosen) * count, progress, stays=True))
            video_of = _video_of(video_folder, shown)
            try:
                with closing(report), ClosingPool(_pool(chosen, num_envs, attempts, pool_options)) as pool:
                    driver = Driver(policy, pool, chosen, schedule, report, attempts, min_envs, chunk, video_of)
                    driver.run()
            except KeyboardInterrupt:
                if results is None:
                    raise
                raise KeyboardInterrupt(f"{file.describe(len(rows))}; the same command continues") from None
    return TaskResults(rows, [task.name for task in chosen], count, entropy, label)


def _label_of(policy: Policy) -> str:
    """Returns the name of a policy's class or function, with a digest of its `state_dict` if it has one."""
    name: str = getattr(policy, "__qualname__", type(policy).__qualname__)
    state = getattr(getattr(policy, "__self__", policy), "state_dict", None)
    if not callable(state):
        return name
    fingerprint = Fingerprint()
    label = f"{name} {fingerprint.of([state()])}"
    if fingerprint.left_out:
        values = ", ".join(sorted(fingerprint.left_out))
        logging.getLogger("remuda").warning(
            "the label %r was made without the values of %s; give label=", label, values
        )
    return label


def _checked(options: PoolOptions, names: Iterable[str]) -> dict[str, Any]:
    """Returns the options of the pool: each env has a worker, and faults in steps and resets become rows."""
    check_keywords("evaluate_tasks", options, [*names, *PoolOptions.__annotations__])
    for name in _REFUSED:
        if name in options:
            raise ValueError(f"expected a pool without {name}=, since here each env plays the episodes that it takes")
    if (faults := options.get("faults", "restart")) == "raise":
        raise ValueError("expected faults to be a FaultPolicy or 'restart', got 'raise': a fault ends one episode here")
    policy = FaultPolicy.of(faults)._for_caller(resets="report")  # `attempts` limits other faults
    checked = {"num_workers": None, "log_advice": False, **options, "autoreset": "disabled", "faults": policy}
    if checked["num_workers"] == "auto":  # a trial would need a reset without a task
        checked["num_workers"] = None
    return checked


def _pool(tasks: tuple[Task, ...], num_envs: int, attempts: int, options: dict[str, Any]) -> Pool:
    stripped = tuple(  # workers need no init states, and often no success
        replace(task, init_states=None, success=task.success if task.until_success else "") for task in tasks
    )
    build = partial(TaskEnv, stripped, _form(stripped, attempts, options))
    return _first([partial(Pool, [build] * num_envs, **options)] * attempts)


def _form(tasks: tuple[Task, ...], attempts: int, options: dict[str, Any]) -> Form:
    """Builds an env of the first task that can be built, in a worker, and returns its form."""
    alone = {**options, "num_workers": 1}
    if isinstance(backend := options.get("backend"), Ray):
        alone["backend"] = replace(backend, shards=1)

    def form_of(index: int) -> Form:
        with ClosingPool(Pool([partial(TaskEnv, tasks, index)], **alone)) as pool:
            actions = without_choices(pool.single_action_space)  # `TaskEnv` checks the choices of its task
            return Form(pool.single_observation_space, actions, pool.render_mode)

    return _first([partial(form_of, index) for index in range(len(tasks))] * attempts)


def _first(starts: Sequence[Callable[[], _T]]) -> _T:
    """Returns the result of the first call in which the envs are built. Raises the error of the last if there is none.

    An env that raises, or the death of a worker, costs one call.
    """
    error: Exception | None = None
    for start in starts:
        try:
            return start()
        except (EnvError, WorkerDiedError, StartTimeoutError) as failed:
            logging.getLogger("remuda").warning("the start of evaluate_tasks failed: %s", failed)
            error = failed
    assert error is not None
    raise error


def _video_of(folder: str | os.PathLike[str] | None, episodes: frozenset[int]) -> Callable[[Unit], Path | None]:
    if folder is None or not episodes:
        return lambda unit: None
    absolute = Path(folder).absolute()
    absolute.mkdir(parents=True, exist_ok=True)
    return lambda unit: absolute / _video_name(unit) if unit.episode in episodes else None


def _video_name(unit: Unit) -> str:
    return f"{_in_file_names(unit.task)}-episode-{unit.episode}.mp4"


def _in_file_names(task: str) -> str:
    return re.sub(r"[^\w.-]+", "-", task)


def _check_video_names(tasks: Iterable[Task]) -> None:
    """Raises ValueError if two tasks would have the same files."""
    known = dict[str, str]()
    for task in tasks:
        if (other := known.setdefault(_in_file_names(task.name), task.name)) != task.name:
            raise ValueError(
                f"expected tasks with names that differ in letters or digits, for the files of their videos, got "
                f"{other!r} and {task.name!r}"
            )
