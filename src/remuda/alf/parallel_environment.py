"""What both of ALF's parallel envs are here: an ``AlfEnvironment`` on a pool."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from alf.environments.alf_environment import AlfEnvironment
from alf.utils.schedulers import get_all_progresses

from remuda import Call, FaceOptions, Fault, Pool, PoolOptions, SpaceMismatchError
from remuda._faces.closing import closed_on_error, log_close_errors
from remuda._faces.no_pool import HasNoPool
from remuda._faces.stats import SuggestedCode
from remuda._faces.worker_defaults import set_local_defaults
from remuda._factories import check_env_fns
from remuda.alf import worker
from remuda.alf.arguments import REFUSED, action_reader
from remuda.alf.configuration import Configuration
from remuda.alf.errors import translated
from remuda.alf.remote_environment import RemoteEnvironment
from remuda.alf.space_checks import check_same, told_by_alf
from remuda.alf.time_steps import TimeSteps

if TYPE_CHECKING:
    from typing_extensions import Unpack  # in `typing` since Python 3.11

EnvConstructor = Callable[..., Any]


class ParallelEnvironment(HasNoPool, AlfEnvironment):  # type: ignore[misc]  # ALF has no types
    """Envs in workers, stepped together. See those that derive from it."""

    _suggested_code = SuggestedCode(
        make="env = remuda.alf.FastParallelEnvironment({env_fns}, {options})",
        spare=(
            "env = remuda.alf.FastParallelEnvironment(\n"
            "    env_fns + env_fns[:1] * {spares}, num_spare_envs_for_reload={spares}, {options})"
        ),
        split="",
        partial="",
        slim="",
        refused=REFUSED,
        renamed={
            "spares": ("num_spare_envs_for_reload", {}),
            "starts_serially": ("start_serially", {}),
            "threads_per_worker": ("torch_num_threads_per_env", {}),
        },
    )
    _why_no_pool = "ALF's unrolls collect its time steps, and what was changed behind them would go on without a FIRST"

    def __init__(
        self,
        env_constructors: Sequence[EnvConstructor],
        *,
        num_spares: int,
        torch_threads: int | None,
        start_method: Literal["fork", "spawn", "forkserver"],
        start_serially: bool,
        max_concurrency: int | None,
        **options: Unpack[FaceOptions],
    ) -> None:
        """`options`: for the pool."""
        constructors = check_env_fns(env_constructors, "env_constructors", are_gymnasiums=False)
        super().__init__()
        self._closed = False
        options.setdefault("start_timeout", None)
        options["spares"], options["starts_serially"] = num_spares, start_serially
        options["threads_per_worker"], options["resets_ahead"] = torch_threads, max_concurrency is None
        set_local_defaults(options, "ProcessEnvironment")
        is_process = options["backend"] == "process"
        inherits = not is_process or start_method == "fork"
        setting = worker.Setting(
            is_process=is_process,
            resets_ahead=options["resets_ahead"],
            torch_threads=torch_threads,
            configuration=None if inherits else Configuration.current(),
        )
        self._num_spares = num_spares
        self._pool = _start_pool(
            [functools.partial(worker.build, ctor, env_id, setting) for env_id, ctor in enumerate(constructors)],
            start_method=start_method,
            max_concurrency=max_concurrency,
            **options,
        )
        with closed_on_error(self._pool):
            self._adopt(self._pool)

    def _adopt(self, pool: Pool) -> None:
        """Take over what the workers report."""
        envs = pool.apply(worker.describe)
        check_same(envs)
        first: worker.Description = envs[0]
        if self._num_spares and first.batch_size > 1:
            raise RuntimeError(
                f"expected num_spare_envs_for_reload=0 with envs that are batched, got {self._num_spares} and a "
                f"batch_size of {first.batch_size}: their rows do not end together"
            )
        self._description = first
        outer = worker.outer_shape(first)
        self._batch_size = pool.num_envs * first.batch_size
        spec = first.time_step_spec._replace(env_info=first.env_info_spec)
        self._time_steps = TimeSteps(spec, pool.num_envs, outer)
        self._read_actions = action_reader(first.action_spec, pool.num_envs, outer)
        self._envs = [RemoteEnvironment(functools.partial(_ask, pool, i)) for i in range(pool.num_envs)]

    # -- what it is --------------------------------------------------------------------------------------

    @property
    def envs(self) -> list[RemoteEnvironment]:
        """The env of each slot, to be called. With spares it is whoever backs the slot now."""
        return self._envs

    @property
    def processes(self) -> list[Any]:
        """The workers; each has ``name``, ``pid``, ``exitcode``, ``is_alive()`` and its envs' ``env_ids``."""
        return list(self._pool.workers)

    @property
    def faults(self) -> Mapping[int, Fault]:
        """With ``faults="restart"``: why envs read LAST in the latest time step that were lost, by env."""
        return self._time_steps.faults

    @property
    def num_spare_envs_for_reload(self) -> int:
        """How many of the envs are spares."""
        return self._num_spares

    @property
    def is_tensor_based(self) -> bool:
        """True: actions and time steps are tensors."""
        return True

    @property
    def batched(self) -> bool:
        """True."""
        return True

    @property
    def batch_size(self) -> int:
        """How many rows the tensors have: of each env that is not a spare, as many as it is batched."""
        return self._batch_size

    @property
    def num_tasks(self) -> int:
        """The first env's."""
        return self._description.num_tasks

    @property
    def task_names(self) -> Any:
        """The first env's."""
        return self._description.task_names

    @property
    def metadata(self) -> Any:
        """The first env's."""
        return self._envs[0].metadata

    def observation_spec(self) -> Any:
        """Of one row, as all specs are."""
        return self._description.observation_spec

    def action_spec(self) -> Any:
        """Of one row."""
        return self._description.action_spec

    def reward_spec(self) -> Any:
        """Of one row."""
        return self._description.reward_spec

    def time_step_spec(self) -> Any:
        """Of one row, without the env info."""
        return self._description.time_step_spec

    def env_info_spec(self) -> Any:
        """Of one row."""
        return self._description.env_info_spec

    # -- reset and step ----------------------------------------------------------------------------------

    @translated
    def _reset(self) -> Any:
        """As ``reset()``, which is ALF's own: reset all envs, also those that have just been reset, and spares.

        Raises:
            EnvError: an env raised.
            WorkerDiedError: a worker process died. (EnvTimeoutError is one of its kinds.)
            RestartLimitError: an env failed more often than ``faults`` bears.
            BrokenPoolError: an env was lost to an earlier fault.
            ClosedError: after :meth:`close`.
        """
        self._drop_what_is_under_way()
        # With options, which envs never see, for such a reset is not answered by one that was made in advance: envs may
        # have been seeded since.
        self._pool.send_reset(options={}, reseat=True)
        return self._time_steps.read(self._pool.recv(), None)

    @translated
    def _step(self, action: Any) -> Any:
        """As ``step(action)``: an env whose last step was LAST ignores its action, and is FIRST.

        Raises: as :meth:`_reset`, and
            InvalidActionError: a ValueError and a RuntimeError: another structure, number, shape or dtype; nothing was
                sent.
            remuda.StateError: a RuntimeError: an env has raised, and not been reset.
        """
        self._drop_what_is_under_way()
        actions = self._read_actions(action)
        return self._time_steps.read(self._pool.step(actions), actions)

    def _drop_what_is_under_way(self) -> None:
        """What an error or an interruption has left of a step or a reset."""
        if self._pool.pending:
            self._pool.discard()

    # -- calls -------------------------------------------------------------------------------------------

    @translated
    def call_envs_with_same_args(self, func_name: str, *args: Any, **kwargs: Any) -> list[Any]:
        """Call a method of each env, side by side, but not of the spares.

        Args:
            func_name: its name.
            *args: for the method.
            **kwargs: for the method.

        Returns:
            What each env's method returned.

        Raises:
            EnvError: one raised; its episode goes on.
            WorkerDiedError, BrokenPoolError, ClosedError: it cannot answer.
        """
        return self._pool.apply(worker.call_method, func_name, args, kwargs)

    @translated
    def seed(self, seeds: Sequence[int]) -> list[Any]:
        """Call the ``seed`` of each env, spares included. One that is built anew gets a seed derived from its own.

        Args:
            seeds: one for each of the constructors, in their order.

        Returns:
            What the ``seed`` of each env returned that is no spare now.

        Raises:
            ValueError: another number of seeds.
            EnvError, WorkerDiedError, BrokenPoolError, ClosedError: as of other calls.
        """
        expected = self._pool.num_envs + self._num_spares
        if len(seeds) != expected:
            raise ValueError(
                f"Number of seeds should match the number of parallel_envs: expected {expected}, got {len(seeds)}"
            )
        return self._pool.apply_async(
            worker.seed, (list(seeds),), with_spares=True, about="seed", again=worker.seed_again
        ).result()

    @translated
    def sync_progress(self) -> None:
        """Tell the schedulers of all envs, spares included, how far the training is. It does not wait for them."""
        self._pool.apply_async(worker.update_progress, (get_all_progresses(),), with_spares=True, about="progress")

    def render(self, mode: str = "rgb_array") -> Any:
        """What the first env's ``render`` returns."""
        return self._envs[0].render(mode)

    # -- closing -----------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the envs and stop the workers, after what is under way. Closing again does nothing.

        What envs raise in their ``close`` is logged, and not raised. They get 10 seconds, then workers are killed.

        Raises:
            remuda.CloseTimeoutError: a worker would not die; everything else was released.
        """
        if self._closed:
            return
        self._closed = True
        with log_close_errors():
            self._pool.close()


@translated
def _start_pool(env_fns: Sequence[Callable[[], Any]], **options: Unpack[PoolOptions]) -> Pool:
    try:
        return Pool(env_fns, **options)
    except SpaceMismatchError as error:
        raise told_by_alf(error) from error


def _ask(pool: Pool, env: int, function: Callable[..., Any], args: tuple[Any, ...]) -> Call:
    return pool.apply_async(function, args, env_ids=[env])
