"""``ParallelAlfEnvironment``: ALF's older batch of envs, on the same pool."""

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


@alf.configurable("RemudaParallelAlfEnvironment")
@configured_by_name
@names_keywords(PoolOptions.__annotations__, REFUSED)
class ParallelAlfEnvironment(ParallelEnvironment):
    """Steps many envs in parallel, in worker processes: ALF's ``ParallelAlfEnvironment``.

    It is as fast as :class:`remuda.alf.FastParallelEnvironment`, whose description holds for it, too.

    Args:
        env_constructors: make the envs, each in its worker: ``constructor(env_id=i)``.
        start_serially: start a worker only when the one before has built its envs.
        blocking: step and reset one env after another.
        flatten: not used.
        num_spare_envs_for_reload: so many of the envs, the last ones, are spares. Not with ``blocking``.
        torch_num_threads_per_env: threads of PyTorch and other numeric libraries in a worker.
        start_method: how workers start: "fork", "spawn" or "forkserver".
        max_concurrency: as of :class:`remuda.alf.FastParallelEnvironment`.
        **options: the same.

    Raises:
        AssertionError: spares with ``blocking``.
        ValueError: ``max_concurrency`` with ``blocking``.
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
            num_spares=num_spare_envs_for_reload,
            torch_threads=torch_num_threads_per_env,
            start_method=start_method,
            start_serially=start_serially,
            max_concurrency=1 if blocking else max_concurrency,
            **options,
        )


stand_in(ParallelAlfEnvironment, "alf.environments.parallel_environment")
