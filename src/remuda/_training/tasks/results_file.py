"""The file of an evaluation of tasks: a line of JSON for the run, then one for each unit that has ended."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from remuda._training.tasks.task import Task


def describe_run(tasks: Sequence[Task], episodes: int, seed: int) -> dict[str, Any]:
    """Returns the first line of the file. Another run has another one."""
    return {"episodes": episodes, "seed": seed, "tasks": [_describe(task) for task in tasks]}


def _describe(task: Task) -> dict[str, Any]:
    success = task.success if isinstance(task.success, str) else getattr(task.success, "__qualname__", "a function")
    fields = {"name": task.name, "max_steps": task.max_steps, "instruction": task.instruction, "success": success}
    return fields | {"init_states": None if task.init_states is None else _digest(task.init_states)}


def _digest(states: Sequence[Any]) -> str:
    digest = sha256()
    for state in states:  # each on its own: a pickle of all depends on which of their parts are one object
        digest.update(pickle.dumps(state, protocol=4))
    return f"{len(states)} states, sha256 {digest.hexdigest()[:16]}"


def read(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Returns the run and the rows of a file. Ignores a torn last line.

    Raises:
        ValueError: It is no file of results.
        OSError: It cannot be read.
    """
    run, *rows = [_parse(path, number, line) for number, line in enumerate(_whole_lines(path.read_bytes()), 1)] or [{}]
    if not {"episodes", "seed", "tasks"} <= run.keys() or any("status" not in row for row in rows):
        raise ValueError(f"expected {path} to have results of remuda.evaluate_tasks, got {run}")
    return run, rows


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
            OSError: The file cannot be read or written.
        """
        self.rows: list[dict[str, Any]] = []
        self._file = None
        if path is None:
            return
        file = Path(path)
        data = file.read_bytes() if file.exists() else b""
        whole = data.rfind(b"\n") + 1
        if whole:
            found, self.rows = read(file)
            _check_same(file, found, run)
        elif not _line(run).startswith(data):
            raise ValueError(
                f"expected results of remuda.evaluate_tasks in {file}, got another file: it is left as it is"
            )
        file.parent.mkdir(parents=True, exist_ok=True)
        self._file = file.open("ab", buffering=0)
        if whole < len(data):
            self._file.truncate(whole)
        if not whole:
            self.write(run)

    def write(self, row: dict[str, Any]) -> None:
        """Appends a line in one call of the system."""
        if self._file is not None:
            self._file.write(_line(row))

    def close(self) -> None:
        """Closes the file."""
        if self._file is not None:
            self._file.close()


def _line(row: dict[str, Any]) -> bytes:
    return json.dumps(row).encode() + b"\n"


def _check_same(path: Path, found: dict[str, Any], run: dict[str, Any]) -> None:
    expected: dict[str, Any] = json.loads(json.dumps(run))
    for key, value in expected.items():
        if found.get(key) != value:
            raise ValueError(
                f"expected {path} to have results of this run, with {key}={value}, got {key}={found.get(key)}; "
                "give each run a file of its own"
            )
