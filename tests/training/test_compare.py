"""Results of tasks: remuda.compare counts true pairs, and its p-value is that of the exact binomial test.

Fingerprints of init states, by which a run is recognised, are equal for equal values and different for others.
"""

from __future__ import annotations

import csv
import dataclasses
import enum
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy.stats import beta, binomtest
from task_envs import Walk

from remuda import Comparison, MissingFrameworkError, Task, TaskResults, compare, compare_all, evaluate_tasks
from remuda._training.tasks.fingerprint import Fingerprint


def results_of(successes: Any, *, seed: int = 0, task: str = "walk", faults: Any = ()) -> TaskResults:
    """Returns results with a row for each success; the episodes in `faults` have ended by faults."""
    rows = []
    for episode, success in enumerate(successes):
        row = {"task": task, "episode": episode, "seed": seed + episode, "init_state": None}
        done = episode not in faults
        rows.append(row | {"status": "done" if done else "fault", "success": bool(success) if done else None})
    return TaskResults(rows, [task], len(rows), seed)


def some_results(*successes: Any, label: str | None = None) -> TaskResults:
    """Returns results with a task for each sequence of successes."""
    rows = [row for task, each in enumerate(successes) for row in results_of(each, task=f"t|{task}").rows]
    return TaskResults(rows, [f"t|{task}" for task in range(len(successes))], len(successes[0]), 0, label)


def test_p_is_that_of_the_exact_test() -> None:
    generator = np.random.default_rng(0)
    for _ in range(200):
        pairs, bias = int(generator.integers(1, 300)), generator.random(2)
        a, b = (generator.random(pairs) < share for share in bias)
        found = compare(results_of(a), results_of(b))
        wins, losses = int((a & ~b).sum()), int((b & ~a).sum())
        assert (found.pairs, found.wins, found.losses, found.left_out) == (pairs, wins, losses, 0)
        expected = binomtest(wins, wins + losses).pvalue if wins + losses else 1.0
        assert found.p == pytest.approx(expected, rel=1e-9)
        assert found.difference == pytest.approx(a.mean() - b.mean())
    assert Comparison(10_000, 5000, 4000, 0).p == pytest.approx(binomtest(4000, 9000).pvalue)


def test_several_policies_are_compared_with_holms_correction() -> None:
    wins = {"a": 20, "b": 14, "c": 8, "d": 8}
    each = [some_results([1] * n + [0] * (20 - n), label=label) for label, n in wins.items()]
    found = compare_all(*each)
    assert found.labels == ("a", "b", "c", "d") and list(found.pairs)[:2] == [("a", "b"), ("a", "c")]
    assert found.pairs["a", "c"] == compare(each[0], each[2])
    p = {pair: one.p for pair, one in found.pairs.items()}
    ordered = sorted(p.values())
    assert found.adjusted["a", "c"] == pytest.approx(6 * p["a", "c"]) == 6 * ordered[0]
    assert found.adjusted["a", "d"] == found.adjusted["a", "c"]  # 5 times the same p, but not less than the last one
    assert found.adjusted["a", "b"] == pytest.approx(4 * p["a", "b"])
    assert found.adjusted["c", "d"] == 1.0
    assert repr(found).startswith("a - b: <Comparison of 20 pairs") and "adjusted p=0.125" in repr(found)
    for wrong in (each[:1], [each[0], each[0]]):
        with pytest.raises(ValueError, match=r"expected two or more results with different labels, got \['a'.*label="):
            compare_all(*wrong)
    for wrong in ([1, 2], [each, each]):
        with pytest.raises(TypeError, match="expected remuda.TaskResults, got"):
            compare_all(*wrong)


def test_results_without_finished_units_are_refused() -> None:
    with pytest.raises(ValueError, match="expected results with finished units, got none .* 2 ended by faults, 0 not"):
        compare(results_of([1, 1]), results_of([1, 1], faults=[0, 1]))
    with pytest.raises(ValueError, match="expected results with finished units, got none .* 0 ended by faults, 5 not"):
        compare(TaskResults([], ["walk"], 5, 0), results_of([1, 1]))


def test_the_interval_agrees_with_the_test_for_every_result() -> None:
    for pairs in (1, 4, 10):
        for wins in range(pairs + 1):
            for losses in range(pairs - wins + 1):
                found = Comparison(pairs, wins, losses, 0)
                low, high = found.interval(0.9)
                assert (not low <= 0 <= high) == (found.p < 1 - 0.9)
                assert -1 <= low <= found.difference <= high <= 1
                assert Comparison(pairs, losses, wins, 0).interval(0.9) == (-high, -low)
    with pytest.raises(ValueError, match="confidence"):
        found.interval(1.0)


def test_the_interval_is_the_quantile_of_melded_distributions() -> None:
    levels = (np.arange(2000) + 0.5) / 2000
    for wins, losses, pairs in ((4, 1, 9), (12, 2, 50), (30, 10, 60), (1, 3, 100)):
        n = wins + losses
        scales = 2 * beta.ppf(levels, wins, losses + 1)[:, None] - 1
        shares = [beta.ppf(levels, n, pairs - n + 1), beta.ppf(levels, n + 1, pairs - n)]
        products = np.where(scales > 0, scales * shares[0], scales * shares[1])
        low = Comparison(pairs, wins, losses, 0).interval()[0]
        assert low == pytest.approx(np.quantile(products, 0.025), abs=2e-4)


def test_episodes_that_are_no_pairs_are_left_out() -> None:
    a, b = results_of([1, 1, 0, 1], faults=[0]), results_of([0, 0, 0, 0, 0], faults=[3])
    found = compare(a, b)
    assert (found.pairs, found.wins, found.losses, found.left_out) == (2, 1, 0, 3)
    assert repr(found) == (
        "<Comparison of 2 pairs, without 3 episodes that are not pairs: 1 wins, 0 losses, difference +50.0 % "
        "(95 %: -77.6 to +98.7), p=1>"
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
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    with pytest.raises(MissingFrameworkError, match="pip install matplotlib"):
        results.to_png(tmp_path / "none.png")


def test_the_mean_over_tasks_has_an_interval() -> None:
    one = some_results([1, 0, 1])
    assert one.mean_rate == one.success_rate and one.mean_interval() == pytest.approx(one.interval())
    few = some_results([1] * 4, [0] * 4)
    assert few.mean_rate == 0.5
    low, high = few.mean_interval()
    assert 0 < low < 0.5 < high < 1 and high - low < few.interval()[1] - few.interval()[0]
    generator, rates, covered = np.random.default_rng(2), np.array([0.1, 0.5, 0.95]), 0
    for _ in range(400):
        low, high = some_results(*(generator.random((3, 10)) < rates[:, None])).mean_interval(0.9)
        covered += low <= rates.mean() <= high
    assert 345 < covered < 390
    assert np.isnan(TaskResults(one.rows, ["t|0", "none"], 3, 0).mean_interval()).all()


def test_results_become_tables(tmp_path: Path) -> None:
    results = some_results([1, 1], [1, 0], label="mine")
    assert results.to_markdown().splitlines() == [
        "| task | success | 95 % interval | episodes |  |",
        "| --- | --- | --- | --- | --- |",
        "| t\\|0 | 100.0 % | 34.2 to 100.0 % | 2 of 2 |  |",
        "| t\\|1 | 50.0 % | 9.5 to 90.5 % | 1 of 2 |  |",
        "| all | 75.0 % | 30.1 to 95.4 % | 3 of 4 |  |",
        "| mean of tasks | 75.0 % | 36.4 to 95.3 % |  |  |",
    ]
    assert results.to_latex().splitlines() == [
        r"\begin{tabular}{lllll}",
        r"\toprule",
        r"task & success & 95 \% interval & episodes &  \\",
        r"\midrule",
        r"t|0 & 100.0 \% & 34.2 to 100.0 \% & 2 of 2 &  \\",
        r"t|1 & 50.0 \% & 9.5 to 90.5 \% & 1 of 2 &  \\",
        r"all & 75.0 \% & 30.1 to 95.4 \% & 3 of 4 &  \\",
        r"mean of tasks & 75.0 \% & 36.4 to 95.3 \% &  &  \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]
    odd = TaskResults(results_of([1], task="50%_a^{b}\\~").rows, ["50%_a^{b}\\~"], 1, 0)
    assert r"50\%\_a\textasciicircum{}\{b\}\textbackslash{}\textasciitilde{} & " in odd.to_latex()
    assert repr(results).splitlines()[-1].split()[:5] == ["mean", "of", "tasks", "75.0", "%"]
    rows = [results.rows[0] | {"return": [1.0, 2.0], "faults": ["a", "b"]}, *results.rows[1:]]
    TaskResults(rows, results.tasks, 2, 0, "mine").to_csv(tmp_path / "rows.csv")
    with (tmp_path / "rows.csv").open(newline="") as file:
        first, *others = csv.DictReader(file)
    assert len(others) == 3 and first["label"] == "mine" and first["task"] == "t|0" and first["success"] == "True"
    assert (first["init_state"], first["return"], first["faults"]) == ("", "[1.0, 2.0]", "a; b")


# -- the interval of one rate ------------------------------------------------------------------------------


def test_intervals_of_a_rate_are_those_of_scipy() -> None:
    rng = np.random.default_rng(0)
    for _ in range(100):
        count = int(rng.integers(1, 200))
        successes, confidence = int(rng.integers(0, count + 1)), float(rng.uniform(0.5, 0.999))
        expected = binomtest(successes, count).proportion_ci(confidence, method="wilson")
        found = results_of([1] * successes + [0] * (count - successes)).interval(confidence)
        assert found == pytest.approx((expected.low, expected.high), abs=1e-9)


# -- fingerprints ----------------------------------------------------------------------------------------------


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Place(NamedTuple):
    x: int
    data: bytes


@dataclasses.dataclass
class Scene:
    color: Color
    parts: Any


def fingerprint(value: Any) -> str:
    return Fingerprint().of([value])


SHARED = np.arange(3.0)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1, "b": 2.5}, {"b": 2.5, "a": 1}),
        ({"x", "y", 3, None}, {None, 3, "y", "x"}),
        ([SHARED, SHARED], [SHARED, SHARED.copy()]),
        (np.arange(6).reshape(2, 3), np.asfortranarray(np.arange(6).reshape(2, 3))),
        (np.arange(6)[::2], np.array([0, 2, 4])),
        (Scene(Color.RED, [1, (2,)]), Scene(Color.RED, [1, (2,)])),
        (np.array([{"a": 1}, None], object), np.array([{"a": 1}, None], object)),
    ],
)
def test_equal_values_have_equal_fingerprints(one: Any, other: Any) -> None:
    assert fingerprint(one) == fingerprint(other)


def test_different_values_have_different_fingerprints() -> None:
    values = [
        *(None, True, 1, 1.0, "1", b"1", float("nan"), -0.0, 0.0),
        *([1], (1,), {1}, {1: 1}, [[1]], [1, 1], range(1)),
        *(np.array([1]), np.array([1], np.int32), np.array([[1]]), np.int64(1), np.array(["1"])),
        *(Color.RED, Color.BLUE, Place(1, b"a"), Place(1, b"b"), Scene(Color.RED, 1), Scene(Color.BLUE, 1)),
        *(Path("a"), Path("b"), np.array([1, 2], object), np.array([1, "2"], object)),
    ]
    assert len({fingerprint(value) for value in values}) == len(values)


def test_tensors_are_compared_by_their_values() -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.arange(6.0).reshape(2, 3)
    views = [tensor, torch.arange(12.0)[:6].reshape(2, 3), tensor.T.contiguous().T, tensor.clone().requires_grad_()]
    assert len(set(map(fingerprint, views))) == 1
    others = [tensor + 1, tensor.double(), tensor.reshape(3, 2), tensor.bfloat16(), tensor.bfloat16() + 1]
    assert len(set(map(fingerprint, [tensor, *others]))) == 6


def test_values_without_a_form_are_left_out_and_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    options: Any = {"episodes": 1, "num_envs": 1, "backend": "serial", "results": tmp_path / "a.jsonl", "label": "x"}
    for _ in range(2):
        task = Task("walk", Anywhere, init_states=[{"at": object(), "seed": 3}])
        evaluate_tasks(lambda obs: np.zeros((len(obs), 2)), [task], **options)
    assert "their init states were compared without the values of object" in caplog.text
    cyclic = list[Any]()
    cyclic.append(cyclic)
    found = Fingerprint()
    assert found.of(cyclic) and found.left_out == {"a value that contains itself"}


class Anywhere(Walk):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return super().reset(seed=seed)
