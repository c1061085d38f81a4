"""``FastParallelEnvironment``: ALF's batch of envs, on a pool."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import alf

from remuda import FaceOptions, PoolOptions
from remuda._keywords import names_keywords
from remuda.alf.arguments import REFUSED, configured_by_name
from remuda.alf.isinstance_shim import stand_in
from remuda.alf.parallel_environment import EnvConstructor, ParallelEnvironment

if TYPE_CHECKING:
    from typing_extensions import Unpack  # in `typing` since Python 3.11


@alf.configurable("RemudaFastParallelEnvironment")
@configured_by_name
@names_keywords(PoolOptions.__annotations__, REFUSED)
class FastParallelEnvironment(ParallelEnvironment):
    """Steps many envs in parallel, in worker processes: ALF's ``FastParallelEnvironment``.

    ``reset()`` and ``step(action)`` return a ``TimeStep`` of tensors with a row for each env, on ALF's default device;
    where that is a GPU, what was copied from the CPU is kept for its ``cpu()``. On the CPU tensors are views of memory
    shared with the workers, leased to you: nothing overwrites them while you hold them or a view of them, and you may
    write to them. ``env_id`` is the row's number.

    An env whose last step was LAST has been resetting since; the next step ignores its action and is FIRST.

    Args:
        env_constructors: make the envs, each in its worker: ``constructor(env_id=i)``. An env may be batched itself,
            and takes as many neighbouring rows then.
        start_serially: start a worker only when the one before has built its envs.
        blocking: not used.
        flatten: not used.
        num_spare_envs_for_reload: so many of the envs, the last ones, are spares, reset in advance, that take the
            place of those whose episode is over. With one worker for each env only.
        torch_num_threads_per_env: threads of PyTorch and other numeric libraries in a worker; ``None`` leaves them
            alone.
        start_method: how workers start: "fork", "spawn" or "forkserver".
        max_concurrency: at most so many workers step or reset at the same time; resets then wait for the next step.
        **options: the others of :class:`remuda.PoolOptions`: ``num_workers``, ``faults``, ``frames`` and so on. With
            ``faults="restart"`` an episode that is cut off ends: LAST, reward 0, the discount and the observation that
            the env had last; the reason is in :attr:`faults` by its number, and the next step is the FIRST of the env
            that was built anew. ``start_timeout`` is ``None``, no limit, and ``name`` "ProcessEnvironment".

    Raises:
        ValueError: the envs differ in a spec, in ``batched`` or ``batch_size``, or are based on tensors; an option that
            cannot be.
        RuntimeError: spares of envs that are batched.
        EnvError: a constructor raised; its exception is the cause.
        WorkerDiedError, remuda.StartTimeoutError: a worker died or was late while it built its envs.
    """

    def __init__(
        self,
        env_constructors: Sequence[EnvConstructor],
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
        super().__init__(
            env_constructors,
            num_spares=num_spare_envs_for_reload,
            torch_threads=torch_num_threads_per_env,
            start_method=start_method,
            start_serially=start_serially,
            max_concurrency=max_concurrency,
            **options,
        )


stand_in(FastParallelEnvironment, "alf.environments.fast_parallel_environment")
