"""Whether a fault counts against the episode that it ended."""

from __future__ import annotations

from remuda.errors import Fault, WorkerDiedError


def is_own(fault: Fault) -> bool:
    """Returns whether the episode's own env has caused the fault, rather than another env of the same worker.

    A death without a known culprit is shared by all envs of the worker, and counts.
    """
    return not fault.shared or (isinstance(fault.error, WorkerDiedError) and fault.error.where is None)
