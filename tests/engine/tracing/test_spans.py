"""`remuda.span`: named sections of the program in a trace."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from traces import is_within, lines, slices

import remuda


def test_spans_are_nested(tmp_path: Path) -> None:
    with remuda.trace(tmp_path / "run.json") as trace, remuda.span("update"):
        for _ in range(3):
            with remuda.span("minibatch"):
                pass
    outer, *inner = slices(trace.path, "span")
    assert [event["name"] for event in (outer, *inner)] == ["update", *["minibatch"] * 3]
    assert all(is_within(event, outer) for event in inner)
    assert {event["tid"] for event in inner} == {outer["tid"]} == {threading.get_native_id()}


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


def test_a_span_may_decorate_a_recursive_function(tmp_path: Path) -> None:
    @remuda.span("down")
    def down(n: int) -> int:
        return n and down(n - 1)

    with remuda.trace(tmp_path / "run.json") as trace:
        down(2)
    first, second, third = slices(trace.path, "span")
    assert is_within(third, second) and is_within(second, first)


def test_a_span_has_the_exception_that_ended_it(tmp_path: Path) -> None:
    with remuda.trace(tmp_path / "run.json") as trace, pytest.raises(KeyError), remuda.span("lookup"):
        raise KeyError("there is none")
    (span,) = slices(trace.path, "span")
    assert span["args"] == {"raised": "KeyError"}


def test_names_of_spans_may_be_any_text(tmp_path: Path) -> None:
    with remuda.trace(tmp_path / "run.json") as trace, remuda.span('a "quoted" läuft \\ back'):
        pass
    assert slices(trace.path, "span")[0]["name"] == 'a "quoted" läuft \\ back'
    with pytest.raises(TypeError, match="expected the name of a span to be a str, got 3"):
        remuda.span(3)  # type: ignore[arg-type]


def test_a_span_that_is_only_partly_traced_is_omitted(tmp_path: Path) -> None:
    with remuda.span("too early"):
        trace = remuda.trace(tmp_path / "run.json")
    with remuda.span("too late"):
        trace.stop()
    assert slices(trace.path, "span") == []
