"""`remuda.span`: named sections of the program in a trace."""

from __future__ import annotations

import threading
from itertools import pairwise
from pathlib import Path

import pytest
from traces import is_within, lines, slices

import remuda


def test_spans_are_nested_and_decorate_recursive_functions(tmp_path: Path) -> None:
    @remuda.span("down")
    def down(n: int) -> int:
        return n and down(n - 1)

    with remuda.trace(tmp_path / "run.json") as trace, remuda.span("update"):
        down(2)
    found = slices(trace.path, "span")
    assert [event["name"] for event in found] == ["update", *["down"] * 3]
    assert all(is_within(inner, outer) for outer, inner in pairwise(found))
    assert {event["tid"] for event in found} == {threading.get_native_id()}


def test_spans_of_each_thread_have_their_own_line(tmp_path: Path) -> None:
    def work() -> None:
        with remuda.span("elsewhere"):
            pass

    with remuda.trace(tmp_path / "run.json") as trace, remuda.span("here"):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    here, elsewhere = slices(trace.path, "span")
    assert (here["name"], elsewhere["name"]) == ("here", "elsewhere")
    assert here["tid"] != elsewhere["tid"]
    assert {"spans of thread " + str(tid) for tid in (here["tid"], elsewhere["tid"])} <= set(lines(trace.path).values())


def test_a_span_has_any_text_as_its_name_and_the_exception_that_ended_it(tmp_path: Path) -> None:
    with (
        remuda.trace(tmp_path / "run.json") as trace,
        pytest.raises(KeyError),
        remuda.span('a "quoted" läuft \\ back'),
    ):
        raise KeyError("there is none")
    (span,) = slices(trace.path, "span")
    assert (span["name"], span["args"]) == ('a "quoted" läuft \\ back', {"raised": "KeyError"})
    with pytest.raises(TypeError, match="expected the name of a span to be a str, got 3"):
        remuda.span(3)  # type: ignore[arg-type]


def test_a_span_that_is_only_partly_traced_is_omitted(tmp_path: Path) -> None:
    with remuda.span("too early"):
        trace = remuda.trace(tmp_path / "run.json")
    with remuda.span("too late"):
        trace.stop()
    assert slices(trace.path, "span") == []
