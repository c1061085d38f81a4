"""``FastParallelEnvironment``: ALF's batch of envs, on a pool."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Literal

import alf

from remuda import FaultPolicy, Recording
from remuda._keywords import names_keywords
from remuda.alf.isinstance_shim import stand_in
from remuda.alf.parallel_environment import EnvConstructor, ParallelEnvironment


@alf.configurable("RemudaFastParallelEnvironment")
@names_keywords
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
        num_workers: how many workers share the envs; ``None``: one each; "auto": as many as measuring says.
        backend: "process", "thread" or "serial".
        faults: "raise", "restart" or a :class:`remuda.FaultPolicy`: what becomes of an env that raises, dies or hangs.
            With "restart" its episode ends: LAST, reward 0, the discount and the observation that it had last; the
            reason is in :attr:`faults` by its number, and the next step is the FIRST of the env that was built anew.
        frames: time steps whose tensors can be held at once without a copy.
        preload: modules that the forkserver imports once for all workers.
        start_timeout: seconds for all envs to be built; ``None``: no limit.
        max_concurrency: at most so many workers step or reset at the same time; resets then wait for the next step.
        pin_workers: keep each worker process to a core.
        record: a directory for crash records, or a :class:`remuda.Recording`.
        worker_output: where stdout and stderr of workers go: "inherit", "capture", or a directory.
        advise: log once when another number of workers would be several times faster.
        name: of the workers, as `ps` and logs show them.

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
        num_workers: int | Literal["auto"] | None = None,
        backend: Literal["process", "thread", "serial"] = "process",
        faults: FaultPolicy | Literal["raise", "restart"] = "raise",
        frames: int = 4,
        preload: Sequence[str] = (),
        start_timeout: float | None = None,
        max_concurrency: int | None = None,
        pin_workers: bool = False,
        record: str | os.PathLike[str] | Recording | None = None,
        worker_output: str | os.PathLike[str] = "inherit",
        advise: bool = True,
        name: str | None = None,
    ) -> None:
        super().__init__(
            env_constructors,
            num_spares=num_spare_envs_for_reload,
            torch_threads=torch_num_threads_per_env,
            start_method=start_method,
            max_concurrency=max_concurrency,
            starts_serially=start_serially,
            num_workers=num_workers,
            backend=backend,
            faults=faults,
            frames=frames,
            preload=preload,
            start_timeout=start_timeout,
            pin_workers=pin_workers,
            record=record,
            worker_output=worker_output,
            advise=advise,
            name=name or "ProcessEnvironment",
        )


stand_in(FastParallelEnvironment, "alf.environments.fast_parallel_environment")
