"""Copies tensors to a CUDA device on a stream of its own, and holds their memory until that has happened."""

from __future__ import annotations

import os
import weakref
from collections import deque
from collections.abc import Sequence
from typing import Any

from remuda._system.forks import fork_safe_lock
from remuda.errors import MissingFrameworkError


def import_torch() -> Any:
    """Imports torch where it is needed. Raises MissingFrameworkError if it is not installed."""
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name != "torch":  # a package that torch needs: its own error names it
            raise
        text = "tensors need torch, which is not installed: pip install torch"
        raise MissingFrameworkError(text, name="torch") from error
    return torch


class CudaCopies:
    """Copies to one device. May be used by several threads.

    They run on a stream of their own, beside whatever the caller's stream is doing. The caller's stream waits for them
    before it does anything that it is given later; the host does not wait. What is copied, and so the lease of its
    frame, is held until the event behind the copies has completed.

    New tensors come from torch's allocator, as memory of the copies' stream. It is used again when the tensor is gone
    and the caller's stream has finished with it (`record_stream`), so in a loop nothing is allocated.
    """

    def __init__(self, device: Any) -> None:
        torch = import_torch()
        self._device, self._stream, self._owner = device, torch.cuda.Stream(device), os.getpid()
        self._held: deque[tuple[Any, Any]] = deque()  # the event behind each copy, and the memory that it reads
        self._lock = fork_safe_lock()  # a signal handler may copy something, too
        self._constants: dict[int, Any] = {}  # copies, by the identity of the array

    def copy(self, hosts: Sequence[Any], targets: Sequence[Any] | None, non_blocking: bool) -> Sequence[Any]:
        """Copies tensors of the CPU, or of this device, into new ones of the device, or into `targets`."""
        torch = import_torch()
        self._release_copied()
        caller = torch.cuda.current_stream(self._device)
        user = self._stream if targets is not None else caller  # the one that uses memory of the other
        with torch.cuda.stream(self._stream):
            if targets is None:
                targets = [torch.empty(host.shape, dtype=host.dtype, device=self._device) for host in hosts]
            else:
                self._stream.wait_stream(caller)  # it may still be reading them
            event = self._enqueue(hosts, targets, torch.cuda.Event())
        caller.wait_event(event)
        for target in targets:
            target.record_stream(user)
        if not non_blocking:
            event.synchronize()
            self._release_copied()
        return targets

    def _enqueue(self, hosts: Sequence[Any], targets: Sequence[Any], event: Any) -> Any:
        try:
            for host, target in zip(hosts, targets, strict=True):
                target.copy_(host, non_blocking=True)
        finally:  # if one fails, those before it are under way
            event.record(self._stream)
            with self._lock:
                self._held.append((event, hosts))
        return event

    def _release_copied(self) -> None:
        with self._lock:
            while self._held and self._held[0][0].query():  # copies of one stream complete in their order
                self._held.popleft()

    def finish(self) -> None:
        """Waits for all copies, and releases the memory that they read."""
        if self._owner != os.getpid():  # the copies are the parent's, and a forked child may not call CUDA
            return
        with self._lock:
            while self._held:
                self._held[0][0].synchronize()
                self._held.popleft()

    def constant(self, array: Any, host: Any) -> Any:
        """The device's copy of an array that never changes, such as the ids of all envs: made once."""
        if id(array) not in self._constants:
            (copy,) = self.copy([host], None, non_blocking=False)
            forget = weakref.finalize(array, self._constants.pop, id(array), None)  # before another has its identity
            forget.atexit = False  # a forked child may not call CUDA
            self._constants[id(array)] = copy
        constant = self._constants[id(array)]
        constant.record_stream(import_torch().cuda.current_stream(self._device))
        return constant


_copies: dict[int, CudaCopies] = {}  # by device
_making = fork_safe_lock()


def copies_to(device: Any) -> CudaCopies:
    """Returns the copies to a CUDA device of this process."""
    torch = import_torch()
    index = torch.cuda.current_device() if device.index is None else device.index
    with _making:
        if index not in _copies:
            _copies[index] = CudaCopies(torch.device("cuda", index))
        return _copies[index]


def finish_all() -> None:
    """Waits for all copies, and releases the memory that they read: before the memory of a pool goes."""
    for copies in list(_copies.values()):
        copies.finish()
