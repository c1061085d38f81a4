"""Describes a worker: to its envs by `worker_info()`, and to the host of its envs by a `HostSpec`."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class WorkerInfo:
    """The worker that the calling code runs in.

    Attributes:
        index: 0, 1, ... num_workers - 1. In worker processes also the environment variable
            REMUDA_WORKER_INDEX, for simulators that pick a device or a port by it.
        num_workers: How many workers the pool has.
        env_ids: The envs that this worker hosts.
        device: The GPU that it was given by `devices=`, as that names it; CUDA sees it alone here, as "cuda:0". None
            where there is no such option.
    """

    index: int
    num_workers: int
    env_ids: tuple[int, ...]
    device: str | None = None


@dataclass(frozen=True)
class HostSpec:
    """How a worker hosts its envs; its successors host them alike.

    Attributes:
        info: The worker.
        vector_size: The number of envs in each vector env; None: the envs are single.
        rebuilds: Whether an env may have to be built again.
        is_lazy: Whether each env but env 0 is built by its first reset, or a call.
    """

    info: WorkerInfo
    vector_size: int | None = None
    rebuilds: bool = False
    is_lazy: bool = False

    @property
    def width(self) -> int:
        """How many neighbouring slots an env has."""
        return self.vector_size or 1


class _Current(threading.local):
    info: WorkerInfo | None = None  # the class's own is every thread's


_current = _Current()


def worker_info() -> WorkerInfo | None:
    """Returns the worker that is building the env from whose constructor this is called; None elsewhere.

    In a worker process it returns that worker at any time and in all threads, so `reset` and `step` may call it, too.
    """
    return _current.info


@contextmanager
def worker_context(info: WorkerInfo) -> Iterator[None]:
    before = worker_info()
    _current.info = info
    try:
        yield
    finally:
        _current.info = before


def settle_in_process(info: WorkerInfo) -> None:
    """Makes this whole process that worker."""
    _Current.info = _current.info = info
    os.environ["REMUDA_WORKER_INDEX"] = str(info.index)
