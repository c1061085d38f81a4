"""What the host of a worker's envs is told of them when it is made."""

from __future__ import annotations

from dataclasses import dataclass

from remuda._worker.worker_info import WorkerInfo


@dataclass(frozen=True)
class HostSpec:
    """The same for a worker and all its successors.

    Attributes:
        info: Of the worker.
        vector_size: Each env is a vector env of so many; None: a single env.
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
