"""Names envs and workers in errors as the whole pool does, where a shard's pool has named them by its own numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from remuda._wire.failures import portable
from remuda.errors import (
    EnvError,
    EnvProgress,
    Failure,
    Fault,
    InvalidEnvError,
    RemudaError,
    RestartLimitError,
    WorkerDiedError,
)


@dataclass
class Renumbering:
    """From the numbers of a shard to those of the whole, in what may be pickled.

    Attributes:
        first_env: The shard's first env.
        shard, node: The shard, and the machine that it is on.
        first_worker: The shard's first worker. How many there are before it is known when all shards have built theirs.
    """

    first_env: int
    shard: int
    node: str
    first_worker: int = 0

    def portable(self, error: Exception) -> Exception:
        """The same of anything that was raised."""
        if isinstance(error, RemudaError):
            return self.error(error)
        return type(error)(str(error)) if type(error) in (ValueError, TypeError) else InvalidEnvError(str(error))

    def error(self, error: RemudaError) -> RemudaError:
        """A copy, without the frames that raised it."""
        if isinstance(error, EnvError):
            return EnvError([self.failure(failure) for failure in error.failures])
        if isinstance(error, RestartLimitError):
            return RestartLimitError(error.limit, [self.fault(fault) for fault in error.faults])
        if isinstance(error, WorkerDiedError):
            return self._death(error)
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
        """What cannot be pickled of it stays behind: its text must do."""
        exception = failure.exception
        if exception is not None and portable(exception)[3] is None:
            exception = None
        env = None if failure.env_id is None else self._env(failure.env_id)
        where, worker = self._where(failure.where), self._worker(failure.worker)
        return replace(failure, env_id=env, worker=worker, where=where, exception=exception)

    def fault(self, fault: Fault) -> Fault:
        where = self._where(fault.where)
        assert where is not None  # a fault has one
        env, worker, error = self._env(fault.env_id), self._worker(fault.worker), self.error(fault.error)
        return replace(fault, env_id=env, worker=worker, where=where, error=error, shard=self.shard, node=self.node)

    def infos(self, extras: dict[int, Any] | None) -> dict[int, Any] | None:
        """Of a batch what is not in columns: faults are told in it, by the pool itself."""
        if extras is None:
            return None
        return {row: (flags, self._parts(parts), self._terminal(end)) for row, (flags, parts, end) in extras.items()}

    def _parts(self, parts: Any) -> Any:
        if not isinstance(parts, tuple):  # an env's own, pickled
            return _frozen(parts)
        objects, info, fields, final = parts
        return objects, self._info(info), fields, final

    def _terminal(self, terminal: Any) -> Any:
        return (terminal[0], self._info(terminal[1])) if isinstance(terminal, tuple) else _frozen(terminal)

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
    """Views of the shard's memory cannot be sent."""
    return None if parts is None else [bytes(part) for part in parts]
