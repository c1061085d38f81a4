"""``ParallelAlfEnvironment``: ALF's older batch of envs, on the same pool."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Literal

import alf

from remuda import FaultPolicy, Recording
from remuda._keywords import names_keywords
from remuda.alf.isinstance_shim import stand_in
from remuda.alf.parallel_environment import EnvConstructor, ParallelEnvironment


@alf.configurable("RemudaParallelAlfEnvironment")
@names_keywords
class ParallelAlfEnvironment(ParallelEnvironment):
    """Steps many envs in parallel, in worker processes: ALF's ``ParallelAlfEnvironment``.

    It is as fast as :class:`remuda.alf.FastParallelEnvironment`, whose description holds for it, too. It has no
    ``start_method``: workers are forked.

    Args:
        env_constructors: make the envs, each in its worker: ``constructor(env_id=i)``.
        start_serially: start a worker only when the one before has built its envs.
        blocking: step and reset one env after another.
        flatten: not used.
        num_spare_envs_for_reload: so many of the envs, the last ones, are spares. Not with ``blocking``.
        torch_num_threads_per_env: threads of PyTorch and other numeric libraries in a worker.
        num_workers, backend, faults, frames, start_timeout, pin_workers, record, worker_output, advise, name: as of
            :class:`remuda.alf.FastParallelEnvironment`.

    Raises:
        AssertionError: spares with ``blocking``.
        Exception: all that :class:`remuda.alf.FastParallelEnvironment` raises.
    """

    def __init__(
        self,
        env_constructors: Sequence[EnvConstructor],
        start_serially: bool = True,
        blocking: bool = False,
        flatten: bool = True,
        num_spare_envs_for_reload: int = 0,
        torch_num_threads_per_env: int | None = 1,
        *,
        num_workers: int | Literal["auto"] | None = None,
        backend: Literal["process", "thread", "serial"] = "process",
        faults: FaultPolicy | Literal["raise", "restart"] = "raise",
        frames: int = 4,
        start_timeout: float | None = None,
        pin_workers: bool = False,
        record: str | os.PathLike[str] | Recording | None = None,
        worker_output: str | os.PathLike[str] = "inherit",
        advise: bool = True,
        name: str | None = None,
    ) -> None:
        if num_spare_envs_for_reload > 0 and blocking:
            raise AssertionError("Spare envs only allowed in non-blocking mode")
        super().__init__(
            env_constructors,
            num_spares=num_spare_envs_for_reload,
            torch_threads=torch_num_threads_per_env,
            start_method="fork",
            max_concurrency=1 if blocking else None,
            starts_serially=start_serially,
            num_workers=num_workers,
            backend=backend,
            faults=faults,
            frames=frames,
            start_timeout=start_timeout,
            pin_workers=pin_workers,
            record=record,
            worker_output=worker_output,
            advise=advise,
            name=name or "ProcessEnvironment",
        )


stand_in(ParallelAlfEnvironment, "alf.environments.parallel_environment")
