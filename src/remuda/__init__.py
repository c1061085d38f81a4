"""remuda: runs many reinforcement-learning environments in parallel, in worker processes."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from remuda import stats as stats
from remuda._crash.file import load_record
from remuda._crash.record import CrashRecord, EpisodeStart, RecordedFault
from remuda._engine.batches.batch import Batch
from remuda._engine.batches.infos import Infos
from remuda._engine.calls import Call
from remuda._engine.options.crash_dir import CrashDir
from remuda._engine.options.fault_policy import FaultPolicy
from remuda._engine.options.pool_options import FaceOptions, PoolOptions
from remuda._engine.pool.part import Part
from remuda._engine.pool.pool import Pool
from remuda._engine.rollouts.advantages import gae
from remuda._engine.rollouts.columns import ColumnType as ColumnType
from remuda._engine.rollouts.rollout import Rollout, RolloutStep
from remuda._engine.rollouts.shard_rollout import ShardRollout, ShardRollouts
from remuda._engine.tracing.spans import span
from remuda._engine.tracing.trace import Trace, trace
from remuda._wire.computed import StepColumn
from remuda._wire.env_state import EnvState
from remuda._worker.worker_info import WorkerInfo, worker_info
from remuda.errors import (
    BrokenPoolError,
    ClosedError,
    CloseTimeoutError,
    CorruptReplyError,
    EnvError,
    EnvProgress,
    EnvTimeoutError,
    Failure,
    Fault,
    InvalidActionError,
    InvalidEnvError,
    MissingFrameworkError,
    RecordError,
    RemoteTraceback,
    RemudaError,
    ResourceError,
    RestartLimitError,
    ShardDiedError,
    SpaceMismatchError,
    StartTimeoutError,
    StateError,
    WorkerDiedError,
)

if TYPE_CHECKING:
    from remuda import alf as alf
    from remuda import ding as ding
    from remuda import gymnasium as gymnasium
    from remuda import mlagents as mlagents
    from remuda import pettingzoo as pettingzoo
    from remuda import sb3 as sb3
    from remuda._cluster.backend_option import Ray
    from remuda._cluster.pool import ClusterPool
    from remuda._tensors.moving import to_torch
    from remuda._tensors.tensors import TensorBatch, TensorRollout
    from remuda._training.acting import PolicyContext
    from remuda._training.collect import Collector, collect
    from remuda._training.evaluate import evaluate
    from remuda._training.evaluate_async import evaluate_async
    from remuda._training.evaluation import Evaluation
    from remuda._training.tasks.compare import Comparison, Comparisons, compare, compare_all
    from remuda._training.tasks.evaluate_tasks import evaluate_tasks
    from remuda._training.tasks.results import TaskResults
    from remuda._training.tasks.task import Task
    from remuda._training.tasks.unit import Unit
    from remuda._videos.recording import record_video
    from remuda.gymnasium import make_vec

__version__ = "0.1.0"

__all__ = [
    "Batch",
    "BrokenPoolError",
    "Call",
    "CloseTimeoutError",
    "ClosedError",
    "ClusterPool",
    "Collector",
    "Comparison",
    "Comparisons",
    "CorruptReplyError",
    "CrashDir",
    "CrashRecord",
    "EnvError",
    "EnvProgress",
    "EnvState",
    "EnvTimeoutError",
    "EpisodeStart",
    "Evaluation",
    "FaceOptions",
    "Failure",
    "Fault",
    "FaultPolicy",
    "Infos",
    "InvalidActionError",
    "InvalidEnvError",
    "MissingFrameworkError",
    "Part",
    "PolicyContext",
    "Pool",
    "PoolOptions",
    "Ray",
    "RecordError",
    "RecordedFault",
    "RemoteTraceback",
    "RemudaError",
    "ResourceError",
    "RestartLimitError",
    "Rollout",
    "RolloutStep",
    "ShardDiedError",
    "ShardRollout",
    "ShardRollouts",
    "SpaceMismatchError",
    "StartTimeoutError",
    "StateError",
    "StepColumn",
    "Task",
    "TaskResults",
    "TensorBatch",
    "TensorRollout",
    "Trace",
    "Unit",
    "WorkerDiedError",
    "WorkerInfo",
    "collect",
    "compare",
    "compare_all",
    "evaluate",
    "evaluate_async",
    "evaluate_tasks",
    "gae",
    "load_record",
    "make_vec",
    "record_video",
    "span",
    "to_torch",
    "trace",
    "worker_info",
]


_FACES = ("alf", "ding", "gymnasium", "mlagents", "pettingzoo", "sb3")
_LATER = {  # the module that defines each public name
    "ClusterPool": "remuda._cluster.pool",
    "Collector": "remuda._training.collect",
    "Comparison": "remuda._training.tasks.compare",
    "Comparisons": "remuda._training.tasks.compare",
    "Evaluation": "remuda._training.evaluation",
    "Ray": "remuda._cluster.backend_option",
    "Task": "remuda._training.tasks.task",
    "TaskResults": "remuda._training.tasks.results",
    "TensorBatch": "remuda._tensors.tensors",
    "TensorRollout": "remuda._tensors.tensors",
    "PolicyContext": "remuda._training.acting",
    "Unit": "remuda._training.tasks.unit",
    "collect": "remuda._training.collect",
    "compare": "remuda._training.tasks.compare",
    "compare_all": "remuda._training.tasks.compare",
    "evaluate": "remuda._training.evaluate",
    "evaluate_async": "remuda._training.evaluate_async",
    "evaluate_tasks": "remuda._training.tasks.evaluate_tasks",
    "make_vec": "remuda.gymnasium",
    "record_video": "remuda._videos.recording",
    "to_torch": "remuda._tensors.moving",
}

if not TYPE_CHECKING:  # hidden from type checkers, which would otherwise accept any name

    def __getattr__(name: str) -> Any:
        """Imports a public name when it is first used, because a worker needs only some of the names."""
        if name in _LATER:
            return getattr(import_module(_LATER[name]), name)
        if name in _FACES:
            return import_module(f"remuda.{name}")
        raise AttributeError(f"module 'remuda' has no attribute {name!r}")

    def __dir__() -> list[str]:
        """Returns only the public names that can be imported: tools such as ``help()`` import each listed name."""
        from remuda._faces.frameworks import FRAMEWORKS

        missing = {face for face, framework in FRAMEWORKS.items() if not framework.is_installed}
        faces = [face for face in _FACES if f"remuda.{face}" not in missing]
        return sorted({*globals(), *__all__, *faces})
