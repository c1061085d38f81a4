"""ALF's parallel envs, ``FastParallelEnvironment`` and ``ParallelAlfEnvironment``, on a pool."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import alf
from alf.environments.alf_environment import AlfEnvironment
from alf.utils.schedulers import get_all_progresses

from remuda import FaceOptions, Fault, Pool, PoolOptions, SpaceMismatchError
from remuda._faces.hosting import call_method
from remuda._faces.pool_beneath import HasNoPool, closed_on_error, drop_pending, log_close_errors
from remuda._faces.translation import in_words_of
from remuda._faces.worker_defaults import set_local_defaults
from remuda._factories import check_env_fns
from remuda._keywords import names_keywords
from remuda.alf import worker
from remuda.alf.configuration import Configuration
from remuda.alf.errors import translated
from remuda.alf.remote_environment import HasSpecs, RemoteEnvironment
from remuda.alf.space_checks import check_same, in_alfs_words
from remuda.alf.time_steps import TimeSteps, action_reader

if TYPE_CHECKING:
    from typing_extensions import Unpack  # `Unpack` is in `typing` since Python 3.11

T = TypeVar("T", bound=type[Any])

REFUSED = {
    "autoreset": "in ALF an env whose episode is over is reset by the next step, which is FIRST",
    "extras": "in ALF what is computed of an env is in its time steps: put it into the observation or env_info",
    "observation_space": "rows are laid out for the envs' specs",
    "resets_ahead": "envs always reset ahead, unless max_concurrency= or blocking= holds them back",
    "seeding": "call seed(), which gives each env's own seed() what it was given",
    "spares": "use num_spare_envs_for_reload=",
    "starts_serially": "use start_serially=",
    "threads_per_worker": "use torch_num_threads_per_env=",
    "vector_size": "envs that are batched themselves say so by their batch_size",
}
"""Options of the pool with another name in ALF, or without meaning there."""

_WORDS = {
    "env_fns": "env_constructors",
    "spares": "num_spare_envs_for_reload",
    "starts_serially": "start_serially",
    "threads_per_worker": "torch_num_threads_per_env",
}
"""ALF's words for arguments of the pool, for `in_words_of`."""


def in_place_of_alfs(module: str) -> Callable[[T], T]:
    """A decorator: the decorated class replaces ALF's class of the same name in `module`.

    ALF's configuration has the class under the name ``Remuda...``. It finds parameters in the constructor's signature,
    which therefore lists each option of the pool. Instances count as instances of ALF's class, because ALF's trainer
    checks the type. That class may be missing: it needs a compiled part of ALF, which is not used here.
    """

    def decorate(cls: T) -> T:
        names_keywords(PoolOptions.__annotations__, REFUSED)(cls)
        constructor: Any = cls.__init__
        signature = inspect.signature(constructor)
        own = [parameter for parameter in signature.parameters.values() if parameter.kind is not parameter.VAR_KEYWORD]
        names = PoolOptions.__annotations__.keys() - REFUSED.keys() - signature.parameters.keys()
        options = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in sorted(names)]
        constructor.__signature__ = signature.replace(parameters=[*own, *options])
        decorated: T = alf.configurable(f"Remuda{cls.__name__}")(cls)
        try:
            original = getattr(import_module(module), cls.__name__)
        except ImportError:
            return decorated
        if original is not decorated:
            original.register(decorated)
        return decorated

    return decorate


class ParallelEnvironment(HasNoPool, HasSpecs, AlfEnvironment):  # type: ignore[misc]  # ALF has no types
    """The base of both classes of parallel envs: envs in workers, which are stepped together."""

    _why_no_pool = (
        "ALF's unrolls collect its time steps, and an env that changes otherwise would continue without a FIRST"
    )

    is_tensor_based = True
    batched = True

    @translated
    def __init__(
        self,
        env_constructors: Sequence[Callable[..., Any]],
        start_serially: bool = True,
        blocking: bool = False,
        flatten: bool = True,
        num_spare_envs_for_reload: int = 0,
        torch_num_threads_per_env: int | None = 1,
        start_method: Literal["fork", "spawn", "forkserver"] = "fork",
        *,
        max_concurrency: int | None = None,
        **options: Unpack[FaceOptions],
    ) -> None:
        constructors = check_env_fns(env_constructors, "env_constructors", are_gymnasiums=False)
        super().__init__()
        self.num_spare_envs_for_reload = num_spare_envs_for_reload
        resets_ahead = max_concurrency is None
        options.setdefault("start_timeout", None)
        options["spares"], options["starts_serially"] = num_spare_envs_for_reload, start_serially
        options["threads_per_worker"], options["resets_ahead"] = torch_num_threads_per_env, resets_ahead
        set_local_defaults(options, "ProcessEnvironment")
        setting = worker.Setting(
            is_process=options["backend"] == "process",
            resets_ahead=resets_ahead,
            torch_threads=torch_num_threads_per_env,
            configuration=Configuration.for_workers(start_method) if options["backend"] == "process" else None,
        )
        builders = [functools.partial(worker.build, ctor, env_id, setting) for env_id, ctor in enumerate(constructors)]
        try:
            with in_words_of(_WORDS):
                self._pool = Pool(builders, start_method=start_method, max_concurrency=max_concurrency, **options)
        except SpaceMismatchError as error:
            raise in_alfs_words(error) from error
        with closed_on_error(self._pool):
            described = self._pool.apply(worker.describe)
            check_same(described)
            self._description = first = described[0]
            if num_spare_envs_for_reload and first.batch_size > 1:
                raise RuntimeError(
                    f"expected num_spare_envs_for_reload=0 with envs that are batched, got {num_spare_envs_for_reload} "
                    f"and a batch_size of {first.batch_size}: their rows do not end together"
                )
            outer, num_envs = worker.outer_shape(first), self._pool.num_envs
            spec = first.time_step_spec._replace(env_info=first.env_info_spec)
            self._time_steps = TimeSteps(spec, num_envs, outer)
            self._read_actions = action_reader(first.action_spec, num_envs, outer)
            ask = self._pool.apply_async
            self._envs = [RemoteEnvironment(functools.partial(ask, env_ids=[i])) for i in range(num_envs)]

    # -- properties --------------------------------------------------------------------------------------

    @property
    def envs(self) -> list[RemoteEnvironment]:
        """The env of each slot, for calls. With spares it is the env that is in the slot now."""
        return self._envs

    @property
    def processes(self) -> list[Any]:
        """The workers; each has ``name``, ``pid``, ``exitcode``, ``is_alive()`` and ``env_ids``."""
        return list(self._pool.workers)

    @property
    def faults(self) -> Mapping[int, Fault]:
        """The faults that ended episodes in the latest time step, by the env's number. Needs ``faults="restart"``."""
        return self._time_steps.faults

    @property
    def batch_size(self) -> int:
        """The number of rows of the tensors: the sum of the envs' batch sizes. Spares do not count."""
        return len(self._envs) * int(self._description.batch_size)

    @property
    def num_tasks(self) -> int:
        """The number of tasks of the first env."""
        return self._description.num_tasks  # type: ignore[no-any-return]

    @property
    def task_names(self) -> Any:
        """The names of the first env's tasks."""
        return self._description.task_names

    @property
    def metadata(self) -> Any:
        """The metadata of the first env."""
        return self._envs[0].metadata

    def _spec(self, name: str) -> Any:
        return getattr(self._description, name)

    # -- reset and step ----------------------------------------------------------------------------------

    @translated
    def _reset(self) -> Any:
        """Resets all envs for ALF's ``reset()``, including spares and envs that have just been reset.

        Raises:
            EnvError: an env raised.
            WorkerDiedError: a worker process died. (EnvTimeoutError is one of its kinds.)
            RestartLimitError: an env failed more often than ``faults`` allows.
            BrokenPoolError: an env was lost to an earlier fault.
            ClosedError: after :meth:`close`.
        """
        drop_pending(self._pool)  # of a step or reset that failed or was interrupted
        # `options` prevents the pool from using a reset in advance, which may precede a call of `seed`. Empty options
        # are not passed to the envs.
        self._pool.send_reset(options={}, reset_slots=True)
        return self._time_steps.read(self._pool.recv(), None)

    @translated
    def _step(self, action: Any) -> Any:
        """Steps all envs for ALF's ``step(action)``. After LAST an env ignores its action, resets, and returns FIRST.

        Raises: see :meth:`_reset`, and
            InvalidActionError: a ValueError and a RuntimeError: the structure, number, shape or dtype of the actions is
                wrong; nothing was sent.
            remuda.StateError: a RuntimeError: an env has raised and must be reset.
        """
        drop_pending(self._pool)  # of a step or reset that failed or was interrupted
        actions = self._read_actions(action)
        return self._time_steps.read(self._pool.step(actions), actions)

    # -- calls -------------------------------------------------------------------------------------------

    @translated
    def call_envs_with_same_args(self, func_name: str, *args: Any, **kwargs: Any) -> list[Any]:
        """Call a method of each env in parallel. Spares are not called.

        Args:
            func_name: the name of the method.
            *args: arguments of the method.
            **kwargs: keywords of the method.

        Returns:
            The result of each env's method.

        Raises:
            EnvError: the method of an env raised; its episode continues.
            WorkerDiedError, BrokenPoolError, ClosedError: an env cannot answer.
        """
        return self._pool.apply(call_method, func_name, args, kwargs)

    @translated
    def seed(self, seeds: Sequence[int]) -> list[Any]:
        """Call the ``seed`` of each env, spares included. An env that is rebuilt later gets a derived seed.

        Args:
            seeds: a seed for each of the constructors, in their order.

        Returns:
            The results of ``seed`` of all envs, spares included, in the order of their constructors.

        Raises:
            ValueError: the number of seeds is wrong.
            EnvError, WorkerDiedError, BrokenPoolError, ClosedError: see :meth:`call_envs_with_same_args`.
        """
        expected = self._pool.num_envs + self.num_spare_envs_for_reload
        if len(seeds) != expected:
            raise ValueError(
                f"Number of seeds should match the number of parallel_envs: expected {expected}, got {len(seeds)}"
            )
        call = self._pool.apply_async(
            worker.seed, (list(seeds),), with_spares=True, about="seed", on_rebuild=worker.seed_again
        )
        return [result for _, result in sorted(call.result(), key=itemgetter(0))]

    @translated
    def sync_progress(self) -> None:
        """Send the progress of the training to the schedulers of all envs, spares included, and return at once."""
        self._pool.apply_async(worker.update_progress, (get_all_progresses(),), with_spares=True, about="progress")

    def render(self, mode: str = "rgb_array") -> Any:
        """Return the result of the first env's ``render``."""
        return self._envs[0].render(mode)

    # -- closing -----------------------------------------------------------------------------------------

    def close(self) -> None:
        """Wait for commands under way, close the envs and stop the workers. Closing again does nothing.

        Exceptions that envs raise in their ``close`` are logged. Workers are killed after 10 seconds.

        Raises:
            remuda.CloseTimeoutError: a worker did not end when it was killed; everything else was released.
        """
        with log_close_errors():
            self._pool.close()


@in_place_of_alfs("alf.environments.fast_parallel_environment")
class FastParallelEnvironment(ParallelEnvironment, AlfEnvironment):  # type: ignore[misc]
    """Steps many envs in parallel, in worker processes: ALF's ``FastParallelEnvironment``.

    ``reset()`` and ``step(action)`` return a ``TimeStep`` of tensors with a row for each env, on ALF's default device.
    If this is a GPU, the time step's ``cpu()`` returns the original tensors without another copy. On the CPU, tensors
    are writable views of memory shared with the workers. You lease them: no tensor is overwritten while you hold it or
    a view of it. ``env_id`` is the number of the row.

    An env resets as soon as its step was LAST; its next step ignores the action and is FIRST.

    Args:
        env_constructors: make the envs, each in its worker: ``constructor(env_id=i)``. A batched env has
            ``batch_size`` neighbouring rows.
        start_serially: start each worker after the previous one has built its envs.
        blocking: not used.
        flatten: not used.
        num_spare_envs_for_reload: the number of spares: the last envs, which are reset in advance, and replace envs
            that end their episodes. They need one worker for each env.
        torch_num_threads_per_env: the number of threads of PyTorch and other numeric libraries in a worker; ``None``
            does not change it.
        start_method: the start method of workers: "fork", "spawn" or "forkserver". Only workers of "fork" see methods
            and globals of modules that the program has patched.
        max_concurrency: the largest number of workers that step or reset at once; resets then wait for the next step.
        **options: the other options of :class:`remuda.PoolOptions`: ``num_workers``, ``faults``, ``frames`` and so on.
            With ``faults="restart"`` a fault ends the episode: the step is LAST, with reward 0 and the env's last
            discount and observation. :attr:`faults` has the fault, and the next step is the FIRST of the
            rebuilt env. ``start_timeout`` defaults to ``None`` (no limit), and ``name`` to "ProcessEnvironment".

    Attributes:
        num_spare_envs_for_reload: the number of spares.
        is_tensor_based, batched: True: actions and time steps are tensors with a row for each env.

    Raises:
        ValueError: the envs differ in a spec, in ``batched`` or ``batch_size``, or are based on tensors; or an option
            is not possible.
        RuntimeError: there are spares although the envs are batched.
        EnvError: a constructor raised; its exception is the cause.
        WorkerDiedError, remuda.StartTimeoutError: a worker died or was late while it built its envs.
    """


@in_place_of_alfs("alf.environments.parallel_environment")
class ParallelAlfEnvironment(ParallelEnvironment, AlfEnvironment):  # type: ignore[misc]
    """Steps many envs in parallel, in worker processes: ALF's ``ParallelAlfEnvironment``.

    It behaves like :class:`remuda.alf.FastParallelEnvironment`, and is as fast, except that ``start_method`` is
    keyword-only and ``blocking`` has an effect.

    Args:
        env_constructors: make the envs, each in its worker: ``constructor(env_id=i)``.
        blocking: step and reset one env after another. Not possible with spares or ``max_concurrency``.
        start_serially, flatten, num_spare_envs_for_reload, torch_num_threads_per_env, start_method: see there.
        max_concurrency: see there.
        **options: see there.

    Raises:
        AssertionError: there are spares with ``blocking``.
        ValueError: ``max_concurrency`` is set with ``blocking``.
        Exception: see :class:`remuda.alf.FastParallelEnvironment`.
    """

    def __init__(
        self,
        env_constructors: Sequence[Callable[..., Any]],
        start_serially: bool = True,
        blocking: bool = False,
        flatten: bool = True,
        num_spare_envs_for_reload: int = 0,
        torch_num_threads_per_env: int | None = 1,
        *,
        start_method: Literal["fork", "spawn", "forkserver"] = "fork",
        max_concurrency: int | None = None,
        **options: Unpack[FaceOptions],
    ) -> None:
        if num_spare_envs_for_reload > 0 and blocking:
            raise AssertionError("Spare envs only allowed in non-blocking mode")
        if max_concurrency is not None and blocking:
            raise ValueError(f"expected max_concurrency=None with blocking=True, which is 1, got {max_concurrency}")
        super().__init__(
            env_constructors,
            start_serially,
            num_spare_envs_for_reload=num_spare_envs_for_reload,
            torch_num_threads_per_env=torch_num_threads_per_env,
            start_method=start_method,
            max_concurrency=1 if blocking else max_concurrency,
            **options,
        )
