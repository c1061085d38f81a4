"""Renumbers envs and workers in errors, from the numbers of a shard to those of the whole pool."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from remuda._engine.batches.infos import MadeEnd, MadeRow, RawRow
from remuda._wire.codec import check_agreement
from remuda._wire.failures import pickled_exception
from remuda.errors import (
    EnvError,
    EnvProgress,
    Failure,
    Fault,
    InvalidEnvError,
    PickledException,
    RemudaError,
    RestartLimitError,
    SpaceMismatchError,
    WorkerDiedError,
)


@dataclass
class Renumbering:
    """Replaces a shard's env and worker numbers in errors by those of the whole pool. Makes the errors picklable.

    Attributes:
        first_env: The shard's first env.
        shard, node: The index of the shard, and its machine.
        first_worker: The shard's first worker. It is known once all shards have built their envs.
    """

    first_env: int
    shard: int
    node: str
    first_worker: int = 0

    def portable(self, error: Exception) -> Exception:
        """Returns an exception of any class, renumbered, in a form that can be pickled."""
        if isinstance(error, RemudaError):
            return self.error(error)
        return type(error)(str(error)) if type(error) in (ValueError, TypeError) else InvalidEnvError(str(error))

    def error(self, error: RemudaError) -> RemudaError:
        """Returns an error of remuda with the pool's numbers and without a traceback."""
        if isinstance(error, EnvError):
            return EnvError([self.failure(failure) for failure in error.failures])
        if isinstance(error, RestartLimitError):
            return RestartLimitError(error.limit, self.faults(error.faults))
        if isinstance(error, WorkerDiedError):
            return self._death(error)
        if isinstance(error, SpaceMismatchError):  # of `build`, where the shard's first env is the reference
            try:
                check_agreement(error.kind, error.spaces[0], f"env {self.first_env}", error.spaces, self.first_env)
            except SpaceMismatchError as renumbered:
                error = renumbered
        error.__traceback__ = error.__cause__ = error.__context__ = None
        return error

    def _death(self, error: WorkerDiedError) -> WorkerDiedError:
        copy: WorkerDiedError = type(error).__new__(type(error))
        copy.__dict__.update(error.__dict__)
        copy.env_ids = tuple(self._env(env) for env in error.env_ids)
        copy.worker = self._worker(error.worker)
        copy.where = self._where(error.where)
        copy.others = tuple(self.error(other) for other in error.others)
        return copy

    def failure(self, failure: Failure) -> Failure:
        """Returns a failure with the pool's numbers. Drops an exception that cannot be pickled, but keeps its text."""
        pickled = pickled_exception(failure)
        exception = None if pickled is None else PickledException(pickled, failure.traceback)
        env = None if failure.env_id is None else self._env(failure.env_id)
        where, worker = self._where(failure.where), self._worker(failure.worker)
        return replace(failure, env_id=env, worker=worker, where=where, _exception=exception)

    def faults(self, faults: Sequence[Fault]) -> list[Fault]:
        """Renumbers faults. The faults of one death share its error, by which messages recognize them."""
        errors = {id(fault.error): self.error(fault.error) for fault in faults}
        return [self.fault(fault, errors[id(fault.error)]) for fault in faults]

    def fault(self, fault: Fault, error: RemudaError | None = None) -> Fault:
        """Returns a fault with the pool's numbers. `error`: its renumbered error, if that exists already."""
        where = self._where(fault.where)
        assert where is not None  # every fault has a `where`
        env, worker, error = self._env(fault.env_id), self._worker(fault.worker), error or self.error(fault.error)
        return replace(fault, env_id=env, worker=worker, where=where, error=error, shard=self.shard, node=self.node)

    def extras(self, extras: dict[int, RawRow]) -> dict[int, RawRow]:
        """Renumbers the faults in the data that rows have outside the columns."""
        return {row: (flags, self._made(parts), self._made(end)) for row, (flags, parts, end) in extras.items()}

    def _made(self, data: Any) -> Any:
        if isinstance(data, (MadeRow, MadeEnd)):  # only the shard's pool adds faults, never a worker
            return data._replace(info=self._info(data.info))
        return tuple(map(self._made, data)) if isinstance(data, tuple) else _frozen(data)  # a tuple: of a vector env

    def _info(self, info: dict[str, Any]) -> dict[str, Any]:
        fault = info.get("fault")
        return {**info, "fault": self.fault(fault)} if isinstance(fault, Fault) else info

    def _where(self, where: EnvProgress | None) -> EnvProgress | None:
        return None if where is None else replace(where, env_id=self._env(where.env_id))

    def _env(self, env: int) -> int:
        return env + self.first_env

    def _worker(self, worker: int) -> int:
        return worker + self.first_worker


def _frozen(parts: Sequence[Any] | None) -> list[bytes] | None:
    """Copies buffers that are views of the shard's memory, because views cannot be sent to the driver."""
    return None if parts is None else [bytes(part) for part in parts]
