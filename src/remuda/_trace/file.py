"""Files of traces, which may be compressed: opens them, writes them whole or not at all, and merges them.

Merging puts traces of remuda and of torch.profiler on one clock.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from remuda.errors import TraceError

_BASE = "baseTimeNanoseconds"


def open_trace(path: Path) -> IO[Any]:
    """Opens a trace as text; unpacks it if its name ends in ".gz"."""
    return gzip.open(path, "rt") if path.suffix == ".gz" else path.open()


@contextmanager
def written_whole(path: Path) -> Iterator[IO[Any]]:
    """Yields a text file that replaces `path` when it is complete; compressed if the name ends in ".gz".

    Raises OSError, which names the file.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with gzip.open(part, "wt", compresslevel=4) if path.suffix == ".gz" else part.open("w") as file:
            yield file
        part.replace(path)
    except OSError as error:
        if error.filename is None:  # on a full disk, the error of a write has no file name
            error.filename = str(path)
        raise
    finally:
        part.unlink(missing_ok=True)


def merge_traces(paths: Sequence[Path], merged: Path) -> None:
    """Writes all events of these files into `merged`, with their times on the clock of the first file.

    Raises:
        TraceError: A file is not a trace, or has no event in the time of the first file.
        OSError: A file cannot be read, or the other one cannot be written.
    """
    traces = [_load(path) for path in paths]
    base = traces[0][_BASE]
    events = []
    for trace in traces:
        shift = (trace[_BASE] - base) / 1000
        events += [_shifted(event, shift) for event in trace["traceEvents"]]
    _check_overlap(paths, traces)
    with written_whole(merged) as file:
        json.dump({**traces[0], "traceEvents": events}, file)


def _load(path: Path) -> dict[str, Any]:
    try:
        with open_trace(path) as file:
            trace = json.load(file)
    except (ValueError, EOFError) as error:
        raise TraceError(f"expected {path} to be a trace in JSON, got {type(error).__name__}: {error}") from error
    if isinstance(trace, list):  # the trace format also permits a plain list of events
        trace = {"traceEvents": trace}
    if not isinstance(trace, dict) or not isinstance(trace.get("traceEvents"), list):
        raise TraceError(f"expected {path} to have traceEvents, got JSON without")
    return {**trace, _BASE: int(trace.get(_BASE, 0))}  # if the key is missing, the times are of the wall clock


def _shifted(event: dict[str, Any], shift: float) -> dict[str, Any]:
    return {**event, "ts": event["ts"] + shift} if "ts" in event else event


def _check_overlap(paths: Sequence[Path], traces: Sequence[dict[str, Any]]) -> None:
    """Raises TraceError if a trace does not overlap the first one in time, because a viewer would not show it."""
    (first, last), *others = [_extent(trace) for trace in traces]
    for path, (begin, end) in zip(paths[1:], others, strict=True):
        if end < first or begin > last:
            apart = (first - end if end < first else begin - last) / 1e6
            raise TraceError(
                f"expected {path} to be of the same time as {paths[0]}, got one that is {apart:.3g} s apart; "
                "merge traces that were recorded together on one machine"
            )


def _extent(trace: dict[str, Any]) -> tuple[float, float]:
    """Returns the times of the first event and of the last, in microseconds of the wall clock."""
    timed = [event for event in trace["traceEvents"] if "ts" in event]
    if not timed:
        return float("-inf"), float("inf")
    base = trace[_BASE] / 1000
    return base + min(event["ts"] for event in timed), base + max(event["ts"] + event.get("dur", 0) for event in timed)
