"""The benchmark of many workers, and its model of the parent's time."""

from __future__ import annotations

import pytest
import scaling
import scaling_model as model
from bench_fakes import COUNTING, session
from scaling_model import Parent, Sample

PARENT = Parent(batch=4.0, env=0.05, worker=0.6)


def samples(parent: Parent) -> list[Sample]:
    sizes = [(num_envs, workers) for num_envs in (8, 64) for workers in (1, 4, 16)]
    return [Sample(n, w, parent.us(n, w), 0.0) for n, w in sizes]


@pytest.mark.parametrize("parent", [PARENT, Parent(4.0, 0.05, 0.0), Parent(0.0, 0.0, 1.0)])
def test_the_fit_recovers_the_costs_behind_the_samples(parent: Parent) -> None:
    found = model.fit(samples(parent))
    for name in ("batch", "env", "worker"):
        assert getattr(found, name) == pytest.approx(getattr(parent, name), abs=1e-9)


def test_costs_are_never_negative() -> None:
    falling = [Sample(n, w, 10.0 - w / 4, 0.0) for n in (8, 64) for w in (1, 4, 16)]
    found = model.fit(falling)
    assert found.worker == 0.0
    assert found.batch > 0


@pytest.mark.parametrize("sizes", [[(8, 1), (8, 2)], [(8, 1), (16, 1)], []])
def test_samples_of_one_size_are_refused(sizes: list[tuple[int, int]]) -> None:
    with pytest.raises(ValueError, match="different numbers"):
        model.fit([Sample(n, w, 1.0, 1.0) for n, w in sizes])


def test_the_step_time_is_the_batch_time_without_the_parent() -> None:
    assert model.step_us(PARENT, Sample(64, 1, 0.0, PARENT.us(64, 1) + 64 * 3.0)) == pytest.approx(3.0)
    with pytest.raises(ValueError, match="one worker"):
        model.step_us(PARENT, Sample(64, 2, 0.0, 100.0))


def test_the_batch_time_is_that_of_parent_and_busiest_worker() -> None:
    assert model.batch_us(PARENT, 3.0, 64, 4) == pytest.approx(4.0 + 3.2 + 2.4 + 16 * 3.0)
    assert model.batch_us(PARENT, 3.0, 10, 4) == pytest.approx(4.0 + 0.5 + 2.4 + 3 * 3.0)
    assert model.batch_us(PARENT, 3.0, 64, 4, parents=2) == pytest.approx(4.0 + 1.6 + 1.2 + 16 * 3.0)


def test_cheap_envs_need_few_workers() -> None:
    """More workers cost more to wake than they save. About sqrt(N e / c) are best."""
    assert model.best_workers(PARENT, 0.3, 64, 64) in range(5, 8)
    assert model.best_workers(PARENT, 1000.0, 64, 64) == 64


def test_the_table_is_computed_from_the_costs() -> None:
    lines = list(model.table(Parent(5.0, 0.05, 0.65)))
    assert lines[2] == "| 5 | 1 | 0.97 | 0.94 | 0.88 | 0.75 | 0.52 | 0.26 | 22 |"
    assert lines[3] == "| 5 | 2 |  | 0.96 | 0.91 | 0.81 | 0.63 | 0.37 |  |"


def test_numbers_of_workers_reach_the_maximum() -> None:
    assert scaling.counts(2) == [1, 2]
    assert scaling.counts(16) == [1, 2, 3, 4, 6, 8, 12, 16]
    assert scaling.counts(10)[-1] == 10


def test_scaling_is_measured_and_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaling, "NUM_ENVS", 4)
    short = session(0.02, most=2)
    found = scaling.measure(COUNTING, short)
    assert sorted(found) == [1, 2]
    names = ["plain loop", "remuda", "loops at once", "several parents"]
    assert [(entry.name, entry.error) for entry in found[2].entries] == [(name, None) for name in names]
    taken = [scaling.sample(COUNTING, *size, short) for size in ((2, 1), (4, 2))]
    assert all(one.parent_us > 0 for one in taken)
    text = "\n".join(scaling.markdown([found], [*taken, *samples(PARENT)], PARENT))
    assert "The parent: 4.00 us a batch + 0.050 us an env + 0.60 us a worker." in text
    assert "failed" not in text
    assert set(scaling.to_json("counting", found)["by_workers"]) == {1, 2}
