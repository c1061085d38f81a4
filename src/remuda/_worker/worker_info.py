"""Describes a worker to its envs (`worker_info()`) and to the host of its envs (`HostSpec`)."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from remuda._worker.forked_children import OneProcess
from remuda._worker.unique_number import UniqueNumber

_NUMBER = "_unique_number"  # the attribute of a `WorkerInfo` for its number
_numbers_lock = threading.Lock()


@dataclass(frozen=True)
class WorkerInfo:
    """The worker that the calling code runs in.

    Attributes:
        index: int, 0 to num_workers - 1. Worker processes also have it in the environment variable
            REMUDA_WORKER_INDEX. Workers of two pools have the same indices: ports need `unique`.
        num_workers: The number of workers of the pool.
        env_ids: The envs that this worker hosts.
        device: The worker's GPU as the option `devices` names it; None without that option. It is the only GPU that
            CUDA shows in this process, as "cuda:0".
    """

    index: int
    num_workers: int
    env_ids: tuple[int, ...]
    device: str | None = None

    @property
    def unique(self) -> int:
        """A number from 0 up that no other live worker on this machine has, of this pool or of any other.

        The worker takes the smallest free number when it first reads this, keeps it to its end, and then releases it,
        also if it is killed. Its successor takes a free number, which may be another one. Containers that do not share
        a network do not share numbers. An env can derive a port or a display from it::

            port = 5000 + remuda.worker_info().unique  # the worker has one env

        Raises:
            OSError: The system has no file descriptor left.
            ImportError: On Windows.
        """
        with _numbers_lock:
            if (number := self.__dict__.get(_NUMBER)) is None:
                self.__dict__[_NUMBER] = number = UniqueNumber()
        return number.value

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != _NUMBER}


def release_unique(info: WorkerInfo) -> None:
    """Releases the number `unique` of a worker that ends without the end of its process."""
    if (number := info.__dict__.pop(_NUMBER, None)) is not None:
        number.release()


@dataclass(frozen=True)
class HostSpec:
    """The settings of a worker's host, also those of its successors' hosts.

    Attributes:
        info: The worker.
        vector_size: The number of envs in each vector env; None: the envs are single.
        rebuilds: Whether an env may have to be built again.
        is_lazy: Whether each env except env 0 is built by its first reset or call.
        rebuilt_by_reset: Whether the envs of a successor are built by their first reset or call.
    """

    info: WorkerInfo
    vector_size: int | None = None
    rebuilds: bool = False
    is_lazy: bool = False
    rebuilt_by_reset: bool = False

    @property
    def width(self) -> int:
        """The number of slots that each env has: the envs in a vector env, or 1."""
        return self.vector_size or 1

    @property
    def first_slots(self) -> tuple[int, ...]:
        """The first slot of each env."""
        return self.info.env_ids[:: self.width]


class _Current(threading.local):
    info: WorkerInfo | None = None  # the value in threads that have set no other


_current = _Current()


def worker_info() -> WorkerInfo | None:
    """Returns the worker that builds the env, if an env's constructor or factory calls this; None elsewhere.

    In a worker process it always returns that worker, in all threads, so `reset` and `step` may call it, too.
    """
    return _current.info


@contextmanager
def worker_context(info: WorkerInfo) -> Iterator[None]:
    """A context for the build of an env of this worker."""
    before = worker_info()
    _current.info = info
    try:
        with OneProcess():
            yield
    finally:
        _current.info = before


def settle_in_process(info: WorkerInfo) -> None:
    """Makes `worker_info` return this worker in all threads of this process."""
    _Current.info = _current.info = info
    os.environ["REMUDA_WORKER_INDEX"] = str(info.index)
