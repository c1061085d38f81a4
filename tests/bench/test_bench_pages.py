"""The HTML pages of `remuda bench`."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone

from bench_fakes import entry, result, sample_result
from html_pages import Read

from remuda._bench import report
from remuda._bench.results import Entry
from remuda._reports.page import Origin, as_html

ORIGIN = Origin("remuda it", datetime(2026, 1, 2, tzinfo=timezone.utc), (), ())


def test_a_benchmark_page_has_a_summary_chart_and_table() -> None:
    read = Read(as_html(report.report_on(sample_result()), ORIGIN))
    read.check_self_contained()
    assert read.texts["h1"] == ["remuda bench CartPole-v1"]
    assert read.texts["p"][0] == (
        "CartPole-v1: 64 envs, 2 workers. remuda: 210,000 env steps per second, 200 times as fast as slow."
    )
    names = [text for text in read.texts["text"] if text in {"plain loop", "remuda", "slow", "broken"}]
    assert names == ["plain loop", "remuda", "slow"]  # a failed contender has no bar
    assert "ideal: 2 x plain loop" in read.texts["text"]
    drawn = report.chart(sample_result()).bars
    assert [(bar.is_best, len(bar.dots)) for bar in drawn] == [(False, 3), (True, 3), (False, 3)]
    rows = read.texts["tr"]
    assert len(rows) == 5 and rows[2].startswith("remuda210,000")
    assert [row.get("class") for row in read.of("tr")] == [None, None, "best", None, None]
    assert "broken failed: ValueError: no [hay] left" in read.texts["li"]


def test_a_benchmark_in_which_all_failed_has_no_bars() -> None:
    found = result(Entry("plain loop", error="a"), Entry("remuda", error="<b>"))
    read = Read(as_html(report.report_on(found), ORIGIN))
    assert read.texts["p"][0].endswith("remuda failed.") and not read.of("svg")
    assert "remuda failed: <b>" in read.texts["li"]


def test_names_are_escaped() -> None:
    named = replace(result(entry("plain loop", [1.0]), entry("remuda", [2.0])), env="a<b>:make")
    assert Read(as_html(report.report_on(named), ORIGIN)).texts["h1"] == ["remuda bench a<b>:make"]
