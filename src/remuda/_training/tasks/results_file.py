"""The file of an evaluation of tasks: a line of JSON for the run, then one for each unit that has ended."""

from __future__ import annotations

import errno
import json
import logging
import math
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from remuda._training.tasks.fingerprint import Fingerprint
from remuda._training.tasks.task import Task
from remuda.errors import StateError

_logger = logging.getLogger("remuda")


def describe_run(
    label: str | None, tasks: Sequence[Task], episodes: int, seed: int, chunk: int | None
) -> dict[str, Any]:
    """Returns the line for a run. Another run has another line, but for more episodes."""
    described = [_describe(task) for task in tasks]
    return {"label": label, "episodes": episodes, "seed": seed, "chunk": chunk, "tasks": described}


def _describe(task: Task) -> dict[str, Any]:
    success = task.success if isinstance(task.success, str) else getattr(task.success, "__qualname__", "a function")
    steps = None if task.max_steps is None else int(task.max_steps)
    fields = {"name": task.name, "max_steps": steps, "instruction": task.instruction, "success": success}
    fields["until_success"] = task.until_success
    if task.init_states is None:
        return fields | {"init_states": None}
    fingerprint = Fingerprint()
    digest = f"{len(task.init_states)} states, sha256 {fingerprint.of(task.init_states)}"
    return fields | {"init_states": digest, _LEFT_OUT: sorted(fingerprint.left_out)}


_LEFT_OUT = "init_states_without"  # the names of types whose values are not in the digest


def read(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Returns the run and the rows of a file. Ignores a torn last line.

    A row replaces an earlier one of its unit with the status "fault".

    Raises:
        ValueError: It is no file of results, or has two rows of one unit.
        OSError: It cannot be read.
    """
    run, rows = dict[str, Any](), dict[tuple[str, int], dict[str, Any]]()
    for number, line in enumerate(_whole_lines(path.read_bytes()), 1):
        found = _parse(path, number, line)
        if found.keys() >= {"episodes", "seed", "tasks"}:
            run = found  # a later one has more episodes
            continue
        if not run or not found.keys() >= {"task", "episode", "status"}:
            raise ValueError(f"expected {path} to have results of remuda.evaluate_tasks, got {found}")
        unit = found["task"], found["episode"]
        if unit in rows and rows[unit]["status"] != "fault":
            raise ValueError(
                f"expected one row for each unit in {path}, got a second one for episode {unit[1]} of task {unit[0]!r} "
                f"in line {number}: several programs have written it; evaluate again, with a new file"
            )
        rows[unit] = found | {"return": _changed(float, found.get("return"))}
    if not run:
        raise ValueError(f"expected {path} to have results of remuda.evaluate_tasks, got no line")
    return run, list(rows.values())


def _whole_lines(data: bytes) -> list[bytes]:
    return data[: data.rfind(b"\n") + 1].splitlines()


def _parse(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ValueError(f"expected a dict in JSON in line {number} of {path}, got {line[:80]!r}")
    return found


class ResultsFile:
    """Appends rows to a file, each at once, so that a killed program loses no unit that has ended.

    Attributes:
        rows: The rows that the file had before.
    """

    def __init__(self, path: str | os.PathLike[str] | None, run: dict[str, Any]) -> None:
        """Opens or makes the file, and cuts a torn last line. Without a path, rows are not written.

        Raises:
            ValueError: The file has results of another run, or something else.
            StateError: Another run uses the file.
            OSError: The file cannot be read or written.
        """
        self._path, self._run, self.rows = path, run, list[dict[str, Any]]()
        self._file: IO[bytes] | None = None
        if path is None:
            return
        file = Path(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        self._file = file.open("ab", buffering=0)
        try:
            _lock(self._file, file)
            self._begin(file, run)
        except BaseException:
            self._file.close()
            raise

    def _begin(self, file: Path, run: dict[str, Any]) -> None:
        """Reads the rows of this run, if the file has any. Otherwise writes the line of the run."""
        assert self._file is not None  # the caller has opened it
        data, found = file.read_bytes(), dict[str, Any]()
        whole = data.rfind(b"\n") + 1
        if whole:
            found, self.rows = read(file)
            _check_same(file, found, run)
        elif not _line(run).startswith(data):
            raise ValueError(
                f"expected results of remuda.evaluate_tasks in {file}, got another file: it is left as it is"
            )
        if whole < len(data):
            self._file.truncate(whole)
        if found.get("episodes") != run["episodes"]:
            self.write(run)

    def describe(self, units: int) -> str:
        """Returns a text that says how many units of the run, here `units`, are in the file."""
        run = self._run
        return f"{units} of {len(run['tasks']) * run['episodes']} units of {run['label']!r} are in {self._path}"

    def note_taken(self, units: int) -> None:
        """Logs how many units are not played, because the file has them, and what was not compared."""
        without = {name for task in self._run["tasks"] for name in task.get(_LEFT_OUT, ())}
        unknown = f"; their init states were compared without the values of {', '.join(sorted(without))}"
        _logger.warning("%s, and not played again%s", self.describe(units), unknown if without else "")

    def write(self, row: dict[str, Any]) -> None:
        """Appends a line in one call of the system. If only a part of it fits, none of it is kept."""
        if self._file is None:
            return
        line, end = _line(row), os.fstat(self._file.fileno()).st_size
        if self._file.write(line) != len(line):
            self._file.truncate(end)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))

    def close(self) -> None:
        """Unlocks the file, which a child of a fork may still have open, and closes it."""
        if self._file is not None and not self._file.closed:
            with suppress(ModuleNotFoundError, OSError):  # as in `_lock`
                import fcntl

                fcntl.flock(self._file, fcntl.LOCK_UN)
            self._file.close()


def _lock(opened: IO[bytes], path: Path) -> None:
    """Locks a file for this run until it is closed. Raises StateError if another run uses it."""
    try:
        import fcntl  # `fcntl` is missing on Windows, where files are not locked
    except ModuleNotFoundError:
        return
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise StateError(
            f"expected a file of results that no other run uses, got {path}: wait for the other run, or give each run "
            "a file of its own"
        ) from None
    except OSError as error:  # some network file systems have no locks
        _logger.warning("%s cannot be locked (%s): do not start a second run with this file", path, error)


def _line(row: dict[str, Any]) -> bytes:
    if "return" in row:  # JSON has no NaN
        row = {
            **row,
            "return": _changed(lambda number: number if math.isfinite(number) else str(number), row["return"]),
        }
    return json.dumps(row, allow_nan=False).encode() + b"\n"


def _changed(change: Callable[[Any], Any], total: Any) -> Any:
    """Returns the sum of an episode's rewards, a number or a list, with each number changed. Returns None for None."""
    if isinstance(total, list):
        return [change(number) for number in total]
    return None if total is None else change(total)


def _check_same(path: Path, found: dict[str, Any], run: dict[str, Any]) -> None:
    expected: dict[str, Any] = json.loads(json.dumps(run))
    for key, value in expected.items():
        if found.get(key) != value and key != "episodes":
            raise ValueError(
                f"expected {path} to have results of this run, with {key}={value!r}, got {key}={found.get(key)!r}; "
                "give each run a file of its own"
            )
    if found["episodes"] > run["episodes"]:
        raise ValueError(
            f"expected at least the {found['episodes']} episodes of each task that {path} has, got "
            f"episodes={run['episodes']}; remuda.TaskResults.load reads them"
        )
