"""Writes crash records of failed envs from their command logs, which are in shared memory."""

from __future__ import annotations

import itertools
import logging
import os
import pickle
import platform
import struct
import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from remuda import _core
from remuda._backends.base import worker_of
from remuda._crash.episode_start import OPTIONS_CHANGE, load_start
from remuda._crash.file import check_start, save_record
from remuda._crash.record import CrashRecord, EpisodeStart, RecordedFault
from remuda._engine.options.crash_dir import CrashDir, Factories
from remuda._engine.running import Running
from remuda._relay.log import logger
from remuda._wire.exceptions import text_of
from remuda.errors import EnvProgress, EnvTimeoutError, Failure, WorkerDiedError


class CrashRecorder:
    """Writes the crash records of a pool. It never raises, because a full disk must not break a pool."""

    def __init__(self, crash_dir: CrashDir, factories: Factories, backend_name: str, running: Running) -> None:
        self._crash_dir, self._factories = crash_dir, factories
        self._backend_name, self._running = backend_name, running
        # The program's thread makes these texts, because spaces may be of the program's own classes.
        self._spaces = text_of(running.layout.observation_space), text_of(running.layout.action_space)
        self._written = 0
        self._unlogged: deque[tuple[int, str, dict[str, Any]]] = deque()  # log records that are not logged yet

    def record_failure(self, failure: Failure) -> Failure:
        """Writes the crash record of a failure. Returns the failure with the record's path."""
        assert failure.env_id is not None and failure.where is not None
        fault = RecordedFault(
            "exception", failure.operation, str(failure), failure.type_name, failure.message, failure.traceback
        )
        return replace(failure, record=self._record(failure.env_id, fault, failure.where))

    def record_death(self, env_id: int, kind: str, where: EnvProgress, error: WorkerDiedError) -> None:
        """Writes the crash record of a worker's death, and sets the record's path in the error."""
        deadline, stack = (error.limit, error.stack) if isinstance(error, EnvTimeoutError) else (None, "")
        exitcode = error.exitcode
        fault = RecordedFault(kind, error.operation, str(error), exitcode=exitcode, deadline=deadline, stack=stack)
        error.record = self._record(env_id, fault, where)

    def _record(self, env_id: int, fault: RecordedFault, where: EnvProgress) -> Path | None:
        if self._written >= self._crash_dir.max_files:
            return None
        try:
            maker = _RecordMaker(self._crash_dir, self._factories, self._backend_name, self._running)
            path = save_record(maker.make(env_id, fault, where, self._spaces))
        except Exception as error:
            text = f"the crash record of env {env_id} could not be written: {error}"
            self._unlogged.append((logging.ERROR, text, {"env": env_id}))
            return None
        self._written += 1
        if self._written == self._crash_dir.max_files:
            text = f"{path} is the last of max_files={self._written} crash records of this pool"
            self._unlogged.append((logging.WARNING, text, {}))
        return path

    @property
    def has_unlogged(self) -> bool:
        """Whether `log_all` has something to log."""
        return bool(self._unlogged)

    def log_all(self, after_each: Callable[[], object]) -> None:
        """Logs what has happened. Runs log handlers. `after_each`: called after each record."""
        while self._unlogged:
            level, text, extra = self._unlogged.popleft()
            logger.log(level, "%s", text, extra=extra)
            after_each()


class _RecordMaker:
    """Makes one crash record from an env's command log in shared memory."""

    def __init__(self, crash_dir: CrashDir, factories: Factories, backend_name: str, running: Running) -> None:
        self._crash_dir, self._factories, self._backend_name = crash_dir, factories, backend_name
        self._layout, self._reports, self._workers = running.layout, running.reports, running.backend.workers
        self._specs = running.specs
        self._log = _core.EpisodeLog(running.arena, running.layout.plan)
        self._columns = running.layout.log_columns(running.arena)

    def make(self, env_id: int, fault: RecordedFault, where: EnvProgress, spaces: tuple[str, str]) -> CrashRecord:
        worker = worker_of(self._workers, env_id)
        episode = "none" if where.episode is None else where.episode
        spec = self._reports[env_id].spec
        factory, pickled_factory = self._factories[env_id]
        pickles = {"factory": pickled_factory, "spec": None if spec is None else self._specs.get(spec.id)}
        entries = self._log.entries(env_id)
        record = CrashRecord(
            path=Path(self._crash_dir.directory) / f"env-{env_id}-episode-{episode}-step-{where.step}.remuda",
            env_id=env_id,
            worker=worker.index,
            num_workers=len(self._workers),
            env_ids=tuple(worker.env_ids),
            pid=worker.pid,
            backend=self._backend_name,
            autoreset=self._layout.autoreset,
            episode=where.episode,
            step=where.step,
            fault=fault,
            start=None,
            seeded=None,
            kinds=self._kinds(env_id, max(0, entries - self._log.capacity), entries),
            actions=(),
            entries=entries,
            calls=self._log.calls(env_id),
            observation_space=spaces[0],
            action_space=spaces[1],
            spec_id=None if spec is None else spec.id,
            versions=_versions(),
            factory=factory,
            sys_path=tuple(sys.path),
            cwd=os.getcwd(),
            when=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            pickles={name: data for name, data in pickles.items() if data is not None},
        )
        return self._with_log(record)

    def _kinds(self, env_id: int, first: int, end: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
        kinds = np.array([self._log.kind(env_id, n) for n in range(first, end)], np.uint8)
        # An invalid kind shows that native code has overwritten the log, so none of it is used.
        return kinds if (kinds <= _core.Entry.RESTORED.value).all() else kinds[:0]

    def _with_log(self, record: CrashRecord) -> CrashRecord:
        """Adds the starts of episodes and the actions to a crash record. Drops log entries that a replay ignores."""
        first = record.entries - len(record.kinds)
        if (at := record.begins_at) is not None:
            record = replace(record, start=self._start(record.env_id, first + at))
        seeded = np.flatnonzero(record.kinds == _core.Entry.SEEDED_RESET.value)
        if len(seeded):
            record = replace(record, seeded=self._start(record.env_id, first + int(seeded[-1])))
        if record.seeded_at is None:
            record = replace(record, seeded=None)
        starts = [at for at in (record.begins_at, record.seeded_at) if at is not None]
        if starts:
            # The log entry before the first start is kept, because it shows whether the env was fresh before its reset.
            skipped = max(0, min(starts) - 1)
            record, first = replace(record, kinds=record.kinds[skipped:]), first + skipped
        return self._with_actions(record, first)

    def _start(self, env_id: int, entry: int) -> EpisodeStart | None:
        try:
            start = load_start(self._log.beginning(env_id, entry))
            start.pop(OPTIONS_CHANGE, None)  # a number of this pool
            return check_start("start", start)
        except ValueError:
            return None  # the log has dropped the start, or native code has overwritten it

    def _with_actions(self, record: CrashRecord, first: int) -> CrashRecord:
        rows = [self._log.row(record.env_id, n) for n in range(first, first + len(record.kinds))]
        specs = zip(self._layout.action.columns, self._columns, strict=True)
        actions = tuple(
            np.array([column.read(row) for row in rows], spec.dtype).reshape(len(rows), *spec.shape)
            for spec, column in specs
        )
        if not self._layout.action.num_objects:
            return replace(record, actions=actions)
        objects = dict(_parse_objects(self._log.objects(record.env_id)))
        by_index = {n - first: objects[n] for n in range(first, first + len(rows)) if n in objects}
        return replace(record, actions=actions, pickles={**record.pickles, "actions": pickle.dumps(by_index)})


def _parse_objects(data: bytes) -> list[tuple[int, list[bytes]]]:
    """Returns (log entry, pickled values that have no column) for each action. Format: see episode_log.hpp."""
    found, at = [], 0
    with suppress(struct.error, MemoryError, OverflowError):  # native code may have overwritten `data`
        while at < len(data):
            entry, count = struct.unpack_from("<QQ", data, at)
            sizes = struct.unpack_from(f"<{count}Q", data, at + 16)
            ends = list(itertools.accumulate(sizes, initial=at + 16 + 8 * count))
            found.append((entry, [data[begin:end] for begin, end in itertools.pairwise(ends)]))
            at = ends[-1]
    return found


def _versions() -> dict[str, str]:
    return {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "gymnasium": gymnasium.__version__,
        "remuda": str(getattr(sys.modules.get("remuda"), "__version__", "unknown")),
        "platform": platform.platform(),
    }
