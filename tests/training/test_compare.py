"""remuda.compare counts true pairs, and its p-value is that of the exact binomial test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest

from remuda import Comparison, MissingFrameworkError, TaskResults, compare


def results_of(successes: Any, *, seed: int = 0, task: str = "walk", faults: Any = ()) -> TaskResults:
    """Returns results with a row for each success; the episodes in `faults` have ended by faults."""
    rows = []
    for episode, success in enumerate(successes):
        row = {"task": task, "episode": episode, "seed": seed + episode, "init_state": None}
        done = episode not in faults
        rows.append(row | {"status": "done" if done else "fault", "success": bool(success) if done else None})
    return TaskResults(rows, [task], len(rows), seed)


def test_p_is_that_of_the_exact_test() -> None:
    generator = np.random.default_rng(0)
    for _ in range(1000):
        pairs, bias = int(generator.integers(1, 300)), generator.random(2)
        a, b = (generator.random(pairs) < share for share in bias)
        found = compare(results_of(a), results_of(b))
        wins, losses = int((a & ~b).sum()), int((b & ~a).sum())
        assert (found.pairs, found.wins, found.losses, found.left_out) == (pairs, wins, losses, 0)
        expected = binomtest(wins, wins + losses).pvalue if wins + losses else 1.0
        assert found.p == pytest.approx(expected, rel=1e-9)
        assert found.difference == pytest.approx(a.mean() - b.mean())
        low, high = found.interval()
        assert -1 <= low <= found.difference <= high <= 1


def test_p_of_many_pairs_is_a_number() -> None:
    assert Comparison(10_000, 5000, 4000, 0).p == pytest.approx(binomtest(4000, 9000).pvalue)


def test_the_interval_covers_the_difference() -> None:
    generator, covered = np.random.default_rng(1), 0
    for _ in range(1000):
        wins, losses, _ = generator.multinomial(60, [0.3, 0.15, 0.55])
        low, high = Comparison(60, int(wins), int(losses), 0).interval(0.9)
        covered += low <= 0.15 <= high
    assert 870 < covered < 940
    with pytest.raises(ValueError, match="confidence"):
        Comparison(1, 1, 0, 0).interval(1.0)


def test_results_without_finished_units_are_refused() -> None:
    with pytest.raises(ValueError, match="expected results with finished units, got none .* 2 ended by faults, 0 not"):
        compare(results_of([1, 1]), results_of([1, 1], faults=[0, 1]))
    with pytest.raises(ValueError, match="expected results with finished units, got none .* 0 ended by faults, 5 not"):
        compare(TaskResults([], ["walk"], 5, 0), results_of([1, 1]))


def test_episodes_that_are_no_pairs_are_left_out() -> None:
    a, b = results_of([1, 1, 0, 1], faults=[0]), results_of([0, 0, 0, 0, 0], faults=[3])
    found = compare(a, b)
    assert (found.pairs, found.wins, found.losses, found.left_out) == (2, 1, 0, 3)
    assert repr(found) == (
        "<Comparison of 2 pairs, without 3 episodes that are not pairs: 1 wins, 0 losses, difference +50.0 % "
        "(95 %: -56.3 to +100.0), p=1>"
    )
    for other in (results_of([1, 1, 1], seed=1), results_of([1, 1, 1], task="run")):
        with pytest.raises(ValueError, match="expected results with episodes of the same task.*, got none"):
            compare(a, other)
    with pytest.raises(TypeError, match=r"TaskResults.load reads a file"):
        compare(a, "results.jsonl")  # type: ignore[arg-type]


def test_rates_are_of_the_units_that_are_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = results_of([1, 1, 0, 1, 1], faults=[1])
    assert results.success_rate == 0.75 and [row["episode"] for row in results.faulted] == [1] and len(results) == 5
    low, high = results.interval()
    assert 0 < low < 0.75 < high < 1
    assert "75.0 %" in repr(results) and "3 of 4" in repr(results) and "(1 ended by faults)" in repr(results)
    partial = TaskResults(results.rows[:2], ["walk", "run"], 5, 0)
    assert " ".join(repr(partial).splitlines()[2].split()) == "run - 0.0 to 100.0 % 0 of 0 (5 not played)"
    assert np.isnan(partial["run"].success_rate)
    with pytest.raises(KeyError, match="one of the tasks"):
        partial["swim"]
    partial.to_png(tmp_path / "rates.png")
    assert (tmp_path / "rates.png").read_bytes().startswith(b"\x89PNG")
    monkeypatch.setattr("remuda._training.tasks.results._MOST_PIXELS", 150)
    partial.to_png(tmp_path / "small.png")
    assert 140 < int.from_bytes((tmp_path / "small.png").read_bytes()[20:24], "big") <= 150
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    with pytest.raises(MissingFrameworkError, match="pip install matplotlib"):
        results.to_png(tmp_path / "none.png")
