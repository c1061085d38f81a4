"""The HTML pages of `remuda bench` and `remuda tune`."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone

from bench_fakes import entry, result, sample_result
from html_pages import Read

from remuda._bench import report, tune_report
from remuda._bench.results import Entry
from remuda._bench.tuning import Outcome, Trial, Tuned
from remuda._reports.charts import Bars
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


def test_a_tuning_page_has_the_code_and_the_reasons() -> None:
    slow, fast = (
        Outcome(Trial(8, 2), "process", 1000.0),
        Outcome(Trial(8, 4, parts=2), "process", 4000.0, finding="policy: <yours>"),
    )
    alone = Outcome(Trial(8), "serial", 2000.0)
    tuned = Tuned(fast, (slow, fast, alone), ("two halves: 4.00 times as fast",))
    found = tune_report.report_on(tuned, "Cart-v1")
    read = Read(as_html(found, ORIGIN))
    read.check_self_contained()
    assert read.texts["p"][0] == "4,000 env steps per second with 8 envs, 4 workers, halves."
    assert read.texts["code"][0] == tune_report.code(fast, "Cart-v1")
    assert read.texts["li"] == ["two halves: 4.00 times as fast", "What holds the best back: policy: <yours>"]
    (chart,) = found.charts
    assert isinstance(chart, Bars) and [bar.is_best for bar in chart.bars] == [False, True, False]
    assert {"8 envs, 2 workers", "8 envs, stepped by the caller"} <= set(read.texts["text"])
    assert [row.get("class") for row in read.of("tr")] == [None, None, "best", None]
