"""The simulation of a large cluster: what it must say where the answer is known."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def simulate(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("simulate_cluster")


def exact(simulate: Any, **other: Any) -> Any:
    """Without chance."""
    calm: dict[str, Any] = {"spread": 0.0, "straggler": 0.0, "failures": 0.0, "bandwidth": 0.0}
    return simulate.Setting(**{**calm, "nodes": 10, "step": 0.01, "steps": 100, **other})


def test_a_driver_with_little_to_do_costs_nothing(simulate: Any) -> None:
    outcome = simulate.Simulation(exact(simulate)).run(100.0)
    assert outcome.of_ideal == pytest.approx(0.99, abs=0.011)  # the rollouts under way at the end are missing
    assert outcome.driver_busy == pytest.approx(10 * 0.002, rel=0.02)


def test_a_driver_that_is_always_busy_sets_the_rate(simulate: Any) -> None:
    setting = exact(simulate, nodes=1000, driver=0.01)
    outcome = simulate.Simulation(setting).run(100.0)
    assert outcome.driver_busy == pytest.approx(1.0, abs=0.02)
    assert outcome.rate == pytest.approx(100 * 100 / 0.01, rel=0.05)
    tree = simulate.Simulation(exact(simulate, nodes=1000, driver=0.01, branches=50)).run(100.0)
    assert tree.of_ideal > 0.95


def test_a_link_sets_the_rate_where_it_is_narrow(simulate: Any) -> None:
    outcome = simulate.Simulation(exact(simulate, bandwidth=1e6, row_bytes=100)).run(100.0)
    assert outcome.rate == pytest.approx(1e6 / 100, rel=0.05)


def test_with_one_rollout_in_flight_a_shard_waits_for_its_driver(simulate: Any) -> None:
    alone = {"nodes": 1, "driver": 1.0, "latency": 0.0}
    one = simulate.Simulation(exact(simulate, in_flight=1, **alone)).run(200.0)
    two = simulate.Simulation(exact(simulate, in_flight=2, **alone)).run(200.0)
    assert one.of_ideal == pytest.approx(0.5, abs=0.02)
    assert two.of_ideal == pytest.approx(1.0, abs=0.02)


def test_a_failure_costs_what_it_keeps_a_node_away(simulate: Any) -> None:
    outcome = simulate.Simulation(exact(simulate, nodes=200, failures=1 / 1000, rebuild=50.0)).run(500.0)
    assert outcome.lost > 0.01
    assert outcome.of_ideal == pytest.approx(1 - outcome.lost, abs=0.03)
