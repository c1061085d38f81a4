"""Copies tensors to a CUDA device on a separate stream, and holds their memory until the copies are done."""

from __future__ import annotations

import os
import weakref
from collections import deque
from collections.abc import Sequence
from typing import Any

from remuda._system.forks import fork_safe_lock
from remuda.errors import MissingFrameworkError


def import_torch() -> Any:
    """Imports torch when it is needed. Raises MissingFrameworkError if it is not installed."""
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name != "torch":  # a package that torch needs is missing, and the original error names it
            raise
        text = "tensors need torch, which is not installed: pip install torch"
        raise MissingFrameworkError(text, name="torch") from error
    return torch


class CudaCopies:
    """Copies tensors to one CUDA device. Several threads may use this object.

    Copies run on a separate stream, in parallel with the work on the caller's stream. Later work on the caller's stream
    waits for them; the host does not. The source, and with it the lease of its frame, is held until the event after the
    copies has completed.

    New tensors are memory of the copies' stream from torch's allocator. It is reused when the tensor is gone and the
    caller's stream has finished with it (`record_stream`), so that a loop allocates nothing.
    """

    def __init__(self, device: Any) -> None:
        torch = import_torch()
        self._device, self._stream, self._owner = device, torch.cuda.Stream(device), os.getpid()
        self._held: deque[tuple[Any, Any]] = deque()  # the event after each copy, and the memory that the copy reads.
        self._lock = fork_safe_lock()  # reentrant, because a signal handler may also copy.
        self._constants: dict[int, Any] = {}  # the device's copies of constant arrays, by `id(array)`

    def copy(self, hosts: Sequence[Any], targets: Sequence[Any] | None, non_blocking: bool) -> Sequence[Any]:
        """Copies tensors on the CPU or this device to `targets`; None: to new tensors on this device."""
        torch = import_torch()
        self._release_copied()
        caller = torch.cuda.current_stream(self._device)
        # The stream that uses the targets, but did not allocate them.
        user = self._stream if targets is not None else caller
        with torch.cuda.stream(self._stream):
            if targets is None:
                targets = [torch.empty(host.shape, dtype=host.dtype, device=self._device) for host in hosts]
            else:
                self._stream.wait_stream(caller)  # the caller's stream may still read the targets
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
        finally:  # even if a copy fails, because earlier copies may still read the memory
            event.record(self._stream)
            with self._lock:
                self._held.append((event, hosts))
        return event

    def _release_copied(self) -> None:
        with self._lock:
            while self._held and self._held[0][0].query():  # copies complete in order, the oldest first
                self._held.popleft()

    def finish(self) -> None:
        """Waits for all copies, and releases the memory that they read."""
        if self._owner != os.getpid():  # a forked child has no copies, and may not call CUDA
            return
        with self._lock:
            while self._held:
                self._held[0][0].synchronize()
                self._held.popleft()

    def constant(self, array: Any, host: Any) -> Any:
        """Returns the device's copy of an array that never changes, such as all env ids. The copy is made once."""
        if id(array) not in self._constants:
            (copy,) = self.copy([host], None, non_blocking=False)
            # Removes the device's copy when the array is freed, before another array gets its id.
            forget = weakref.finalize(array, self._constants.pop, id(array), None)
            forget.atexit = False  # a forked child may not call CUDA
            self._constants[id(array)] = copy
        constant = self._constants[id(array)]
        constant.record_stream(import_torch().cuda.current_stream(self._device))
        return constant


_copies: dict[int, CudaCopies] = {}  # by device
_making = fork_safe_lock()


def copies_to(device: Any) -> CudaCopies:
    """Returns this process's `CudaCopies` for a device."""
    torch = import_torch()
    index = torch.cuda.current_device() if device.index is None else device.index
    with _making:
        if index not in _copies:
            _copies[index] = CudaCopies(torch.device("cuda", index))
        return _copies[index]


def finish_all() -> None:
    """Waits for all copies, and releases the memory that they read. Called before a pool's memory is freed."""
    for copies in list(_copies.values()):
        copies.finish()
