"""Copies tensors to a CUDA device on a stream of its own, and holds their memory until that has happened."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from functools import partial
from typing import Any

from remuda._system.forks import fork_safe_lock
from remuda._tensors.framework import import_torch
from remuda._tensors.under_way import UnderWay


class CudaCopies:
    """Copies to one device.

    They run on a stream of their own, beside whatever the caller's stream is doing. The caller's stream waits for them
    before it does anything that it is given later; the host does not wait. What is copied, and so the lease of its
    frame, is held until the event behind the copies has completed.

    New tensors come from torch's allocator, as memory of the copies' stream. It is used again once nobody has the
    tensor and the caller's stream is through with it (`record_stream`), so in a loop nothing is allocated.
    """

    def __init__(self, device: Any) -> None:
        torch = import_torch()
        self._device, self._stream, self._under_way = device, torch.cuda.Stream(device), UnderWay()
        self._constants: dict[int, tuple[weakref.ref[Any], Any]] = {}

    def copy(self, hosts: Sequence[Any], targets: Sequence[Any] | None, non_blocking: bool) -> Sequence[Any]:
        """Copies tensors of the CPU, or of this device, into new ones of the device, or into `targets`."""
        torch = import_torch()
        self._under_way.let_go()
        caller = torch.cuda.current_stream(self._device)
        user = self._stream if targets is not None else caller  # who uses memory that is not its own
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
            self._under_way.let_go()
        return targets

    def _enqueue(self, hosts: Sequence[Any], targets: Sequence[Any], event: Any) -> Any:
        try:
            for host, target in zip(hosts, targets, strict=True):
                target.copy_(host, non_blocking=True)
        finally:  # where one fails, those before it are under way
            event.record(self._stream)
            self._under_way.hold(hosts, event)
        return event

    def constant(self, array: Any, host: Any) -> Any:
        """The device's copy of an array that never changes, such as the ids of all envs: made once."""
        if id(array) not in self._constants:
            (copy,) = self.copy([host], None, non_blocking=False)
            forget = partial(self._constants.pop, id(array), None)
            self._constants[id(array)] = (weakref.ref(array, lambda _: forget()), copy)
        constant = self._constants[id(array)][1]
        constant.record_stream(import_torch().cuda.current_stream(self._device))
        return constant


_copies: dict[int, CudaCopies] = {}  # by device
_making = fork_safe_lock()


def copies_to(device: Any) -> CudaCopies:
    """Who copies to a CUDA device of this process."""
    torch = import_torch()
    index = torch.cuda.current_device() if device.index is None else device.index
    with _making:
        if index not in _copies:
            _copies[index] = CudaCopies(torch.device("cuda", index))
        return _copies[index]
