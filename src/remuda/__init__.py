"""remuda: many reinforcement-learning environments in parallel, and the learner's next batch first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from remuda._backends.worker_info import WorkerInfo, worker_info
from remuda._engine.batch import Batch
from remuda._engine.calls import Call
from remuda._engine.infos import Infos
from remuda._engine.policy import FaultPolicy
from remuda._engine.pool import Pool
from remuda._engine.record import Beginning, Record, RecordedFault
from remuda._engine.record_file import load_record
from remuda._engine.recording import Recording
from remuda._engine.stats import PoolStats
from remuda.errors import (
    BrokenPoolError,
    ClosedError,
    CloseTimeoutError,
    CorruptReplyError,
    EnvError,
    EnvTimeoutError,
    Failure,
    Fault,
    InvalidActionError,
    InvalidEnvError,
    RecordError,
    RemoteTraceback,
    RemudaError,
    ResourceError,
    RestartLimitError,
    SpaceMismatchError,
    StartTimeoutError,
    StateError,
    Whereabouts,
    WorkerDiedError,
)

if TYPE_CHECKING:
    from remuda.gymnasium import make_vec

__version__ = "0.1.0"

__all__ = [
    "Batch",
    "Beginning",
    "BrokenPoolError",
    "Call",
    "CloseTimeoutError",
    "ClosedError",
    "CorruptReplyError",
    "EnvError",
    "EnvTimeoutError",
    "Failure",
    "Fault",
    "FaultPolicy",
    "Infos",
    "InvalidActionError",
    "InvalidEnvError",
    "Pool",
    "PoolStats",
    "Record",
    "RecordError",
    "RecordedFault",
    "Recording",
    "RemoteTraceback",
    "RemudaError",
    "ResourceError",
    "RestartLimitError",
    "SpaceMismatchError",
    "StartTimeoutError",
    "StateError",
    "Whereabouts",
    "WorkerDiedError",
    "WorkerInfo",
    "load_record",
    "make_vec",
    "worker_info",
]


def __getattr__(name: str) -> Any:
    """The faces are imported when first asked for: a worker has no need of them."""
    if name == "make_vec":
        from remuda.gymnasium import make_vec

        return make_vec
    raise AttributeError(f"module 'remuda' has no attribute {name!r}")
