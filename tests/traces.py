"""Helpers that read traces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Event = dict[str, Any]


def load(path: Path) -> dict[str, Any]:
    trace: dict[str, Any] = json.loads(path.read_text())
    return trace


def slices(path: Path, kind: str | None = None) -> list[Event]:
    """Returns the events with a duration, of one category or of all, by their start."""
    found = [event for event in load(path)["traceEvents"] if event["ph"] == "X"]
    return sorted((event for event in found if kind in (None, event["cat"])), key=lambda event: event["ts"])


def names(path: Path, kind: str) -> list[str]:
    return [event["name"] for event in slices(path, kind)]


def lines(path: Path) -> dict[tuple[int, int], str]:
    """Returns the names of threads by process and thread."""
    events = load(path)["traceEvents"]
    return {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}


def is_within(inner: Event, outer: Event) -> bool:
    """Compares times to the microsecond, because floats of current times have no nanoseconds."""
    return bool(outer["ts"] - 1 <= inner["ts"] and inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"] + 1)
