"""A stand-in for CUDA in this process's memory: torch's streams, events, allocator and runtime, as far as remuda uses
them.

Work on a stream waits until the test continues the stream or the host waits for it, which is counted. A test can hold a
stream as long as it likes, without a clock.
"""

from __future__ import annotations

import ctypes
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch

from remuda._tensors import cuda, page_locks

GPU = torch.device("cuda", 0)


class Stream:
    def __init__(self, device: Any = None, *, gpu: Gpu) -> None:
        self.gpu, self.work = gpu, deque[Callable[[], bool]]()  # each operation returns whether it could be executed
        gpu.streams.append(self)

    def add(self, operation: Callable[[], bool]) -> None:
        self.work.append(operation)

    def go_on(self) -> bool:
        """Executes the work that is possible. Returns whether anything was executed."""
        before = len(self.work)
        while self.work and self.work[0]():
            self.work.popleft()
        return len(self.work) < before

    def wait_event(self, event: Event) -> None:
        self.add(lambda: event.is_over)

    def wait_stream(self, other: Stream) -> None:
        event = Event(gpu=self.gpu)
        event.record(other)
        self.wait_event(event)

    def launch(self, kernel: Callable[[], object]) -> None:
        self.add(lambda: (kernel(), True)[1])

    def synchronize(self) -> None:
        event = Event(gpu=self.gpu)
        event.record(self)
        event.synchronize()


class Event:
    def __init__(self, *, gpu: Gpu) -> None:
        self.gpu, self.is_over = gpu, False

    def record(self, stream: Stream) -> None:
        stream.launch(lambda: setattr(self, "is_over", True))

    def query(self) -> bool:
        return self.is_over

    def synchronize(self) -> None:
        self.gpu.waits += not self.is_over
        while not self.is_over:
            assert self.gpu.go_on(), "the host waits for ever"


class Tensor(torch.Tensor):
    """A tensor of the GPU. The stream executes changes to it later."""

    gpu: Gpu
    block: Block

    __torch_function__ = torch._C._disabled_torch_function_impl

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return GPU

    def copy_(self, source: torch.Tensor, non_blocking: bool = False) -> Tensor:  # type: ignore[override]
        return self.gpu.enqueue_copy(self, source)

    def record_stream(self, stream: Any) -> None:
        self.block.users.append(stream)

    def values(self) -> Any:
        """Returns the current contents, without the work that is still queued."""
        return self.plain().numpy().copy()

    def reader(self) -> Callable[[], Any]:
        """Returns a kernel that reads the tensor's memory when it runs, even if the memory has been reused."""
        memory = self.plain()
        return lambda: memory.numpy().copy()

    def plain(self) -> torch.Tensor:
        """Returns the tensor's memory as a CPU tensor."""
        return self.block.memory.view(self.dtype).view(self.shape)


class Block:
    """A block of GPU memory from the allocator."""

    def __init__(self, stream: Stream, size: int) -> None:
        self.stream, self.memory = stream, torch.full((size,), 0xEE, dtype=torch.uint8)
        self.users: list[Stream] = []
        self.until: list[Event] = []  # recorded when the block was freed, on streams that still used it

    def free(self) -> None:
        for user in self.users:
            event = Event(gpu=self.stream.gpu)
            event.record(user)
            self.until.append(event)
        self.users = []
        self.stream.gpu.free.append(self)


class Runtime:
    """`torch.cuda.cudart()`. Its errors are ints; torch's can be converted to ints."""

    def __init__(self) -> None:
        self.locked: dict[int, int] = {}  # sizes in bytes by address
        self.refuses = False
        self.calls = 0

    def cudaHostRegister(self, address: int, size: int, flags: int) -> int:  # noqa: N802
        self.calls += 1
        meets = any(at < address + size and address < at + held for at, held in self.locked.items())
        if self.refuses or meets:
            return 712
        self.locked[address] = size
        return 0

    def cudaHostUnregister(self, address: int) -> int:  # noqa: N802
        self.calls += 1
        return 0 if self.locked.pop(address, None) else 713

    def cudaGetErrorString(self, error: int) -> str:  # noqa: N802
        return f"error {error}"

    def has(self, array: np.ndarray[Any, Any]) -> bool:
        first = array.__array_interface__["data"][0]
        return any(at <= first and first + array.nbytes <= at + size for at, size in self.locked.items())


class Gpu:
    """The GPU, as a test controls it.

    Attributes:
        streams: The caller's, and those that were made.
        runtime: Which memory is page-locked.
        waits: How often the host had to wait for a stream.
        blocks: How many pieces of memory were allocated, other than by using some again.
    """

    def __init__(self) -> None:
        self.streams: list[Stream] = []
        self.current = self.callers = Stream(gpu=self)
        self.runtime, self.free, self.made = Runtime(), list[Block](), list[Block]()
        self.waits = self.blocks = 0

    def go_on(self) -> bool:
        """Continues all streams as far as possible. Returns whether anything was executed."""
        done = False
        while sum(stream.go_on() for stream in self.streams):
            done = True
        return done

    def empty(self, shape: Any, dtype: Any) -> Tensor:
        size = int(np.prod(shape)) * dtype.itemsize
        block = next((one for one in self.free if self._fits(one, size)), None)
        if block is None:
            block, self.blocks = Block(self.current, size), self.blocks + 1
            self.made.append(block)  # blocks are never freed
        else:
            self.free.remove(block)
        tensor = block.memory.view(dtype).view(tuple(shape)).as_subclass(Tensor)
        tensor.gpu, tensor.block = self, block
        weakref.finalize(tensor, block.free)
        return tensor

    def _fits(self, block: Block, size: int) -> bool:
        return block.stream is self.current and len(block.memory) == size and all(e.is_over for e in block.until)

    def enqueue_copy(self, target: Tensor, source: torch.Tensor) -> Tensor:
        """Queues a copy. Memory that is not page-locked is read before the call returns."""
        stream = self.current
        plain = source.plain() if isinstance(source, Tensor) else source
        to, come_from, size = target.plain().data_ptr(), plain.data_ptr(), plain.numel() * plain.element_size()
        stream.launch(lambda: ctypes.memmove(to, come_from, size))  # the operation holds no reference to the tensors
        if not isinstance(source, Tensor) and not self.runtime.has(plain.numpy()):
            stream.synchronize()
        return target

    @contextmanager
    def stream(self, stream: Stream) -> Iterator[None]:
        before, self.current = self.current, stream
        try:
            yield
        finally:
            self.current = before


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gpu]:
    """A process with one GPU and no earlier copies."""
    gpu, empty = Gpu(), torch.empty

    def empty_anywhere(shape: Any, *, dtype: Any, device: Any = None) -> Any:
        return gpu.empty(shape, dtype) if device == GPU else empty(shape, dtype=dtype, device=device)

    monkeypatch.setattr(torch, "empty", empty_anywhere)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device=None: Stream(device, gpu=gpu))
    monkeypatch.setattr(torch.cuda, "Event", lambda: Event(gpu=gpu))
    monkeypatch.setattr(torch.cuda, "stream", gpu.stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: gpu.current)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "cudart", lambda: gpu.runtime)
    monkeypatch.setattr(cuda, "_copies", {})
    monkeypatch.setattr(page_locks, "_forget_error", lambda: None)
    yield gpu
    cuda.finish_all()
