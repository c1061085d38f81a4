"""Merging of traces onto one clock, including those of torch.profiler."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from traces import slices

import remuda
from remuda import TraceError
from remuda._trace.file import merge_traces


def write(path: Path, base: int | None, **at: float) -> Path:
    events = [
        {"ph": "X", "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": 1.0, "cat": "x"} for name, ts in at.items()
    ]
    head: dict[str, Any] = {} if base is None else {"baseTimeNanoseconds": base}
    path.write_text(json.dumps({**head, "traceEvents": [{"ph": "M", "name": "process_name", "pid": 1}, *events]}))
    return path


def test_times_are_relative_to_the_base_of_the_first_trace(tmp_path: Path) -> None:
    one = write(tmp_path / "one.json", 5_000_000_000, a=10.0, b=2000.0)
    other = write(tmp_path / "other.json", 5_001_000_000, c=10.0)
    without = write(tmp_path / "without.json", None, d=5_000_500.0)
    merge_traces([one, other, without], tmp_path / "merged.json")
    merged = {event["name"]: event["ts"] for event in slices(tmp_path / "merged.json")}
    assert merged == {"a": 10.0, "b": 2000.0, "c": 1010.0, "d": 500.0}
    assert json.loads((tmp_path / "merged.json").read_text())["baseTimeNanoseconds"] == 5_000_000_000


def test_compressed_files_are_merged(tmp_path: Path) -> None:
    one = write(tmp_path / "one.json", 0, a=1.0)
    packed = tmp_path / "one.json.gz"
    packed.write_bytes(gzip.compress(one.read_bytes()))
    merge_traces([one, packed], tmp_path / "merged.json.gz")
    with gzip.open(tmp_path / "merged.json.gz", "rt") as file:
        assert [event["ts"] for event in json.load(file)["traceEvents"] if event["ph"] == "X"] == [1.0, 1.0]


def test_invalid_traces_are_refused_and_nothing_is_written(tmp_path: Path) -> None:
    good, bad = write(tmp_path / "good.json", 0, a=1.0), tmp_path / "bad.json"
    for text, message in [("{", "to be a trace in JSON"), ('{"a": 1}', "to have traceEvents"), ("3", "traceEvents")]:
        bad.write_text(text)
        with pytest.raises(TraceError, match=message):
            merge_traces([good, bad], tmp_path / "merged.json")
    far = write(tmp_path / "far.json", 3_600_000_000_000, b=1.0)
    with pytest.raises(TraceError, match=r"got one that is 3.6e\+03 s apart"):
        merge_traces([good, far], tmp_path / "merged.json")
    assert not (tmp_path / "merged.json").exists()


def test_events_of_torch_lie_within_their_span(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from torch.profiler import ProfilerActivity, profile, record_function

    with profile(activities=[ProfilerActivity.CPU]) as profiler, remuda.trace(tmp_path / "ours.json"):
        with record_function("warm-up"):
            torch.ones(8) @ torch.ones(8)
        with remuda.span("span"), record_function("torch"):
            torch.ones(64, 64) @ torch.ones(64, 64)
    profiler.export_chrome_trace(str(tmp_path / "torch.json"))
    merge_traces([tmp_path / "ours.json", tmp_path / "torch.json"], tmp_path / "merged.json")
    events = {event["name"]: event for event in slices(tmp_path / "merged.json")}
    span, torch_event = events["span"], events["torch"]
    allowed = 1000  # in us: each program measures the offset of its clock separately
    assert span["ts"] - allowed <= torch_event["ts"]
    assert torch_event["ts"] + torch_event["dur"] <= span["ts"] + span["dur"] + allowed
