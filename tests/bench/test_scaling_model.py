"""The model of the parent's time."""

from __future__ import annotations

import pytest
import scaling_model as model
from scaling_model import Parent, Sample

PARENT = Parent(batch=4.0, env=0.05, worker=0.6)
SIZES = [(num_envs, workers) for num_envs in (8, 64) for workers in (1, 4, 16)]


@pytest.mark.parametrize("parent", [PARENT, Parent(4.0, 0.05, 0.0), Parent(0.0, 0.0, 1.0)])
def test_the_fit_recovers_the_costs_behind_the_samples(parent: Parent) -> None:
    found = model.fit([Sample(n, w, parent.us(n, w), 0.0) for n, w in SIZES])
    assert vars(found) == pytest.approx(vars(parent), abs=1e-9)


def test_costs_are_never_negative() -> None:
    found = model.fit([Sample(n, w, 10.0 - w / 4, 0.0) for n, w in SIZES])
    assert found.worker == 0.0
    assert found.batch > 0


@pytest.mark.parametrize("sizes", [[(8, 1), (8, 2)], [(8, 1), (16, 1)], []])
def test_samples_of_one_size_are_refused(sizes: list[tuple[int, int]]) -> None:
    with pytest.raises(ValueError, match="different numbers"):
        model.fit([Sample(n, w, 1.0, 1.0) for n, w in sizes])


def test_the_step_time_is_the_batch_time_without_the_parent() -> None:
    assert model.step_us(PARENT, Sample(64, 1, 0.0, PARENT.us(64, 1) + 64 * 3.0)) == pytest.approx(3.0)


def test_the_table_is_computed_from_the_costs() -> None:
    lines = str(model.table(Parent(5.0, 0.05, 0.65))).splitlines()
    assert lines[2] == "| 5 | 1 | 0.97 | 0.94 | 0.88 | 0.75 | 0.52 | 0.26 | 22 |"
    assert lines[3] == "| 5 | 2 |  | 0.96 | 0.91 | 0.81 | 0.63 | 0.37 |  |"
