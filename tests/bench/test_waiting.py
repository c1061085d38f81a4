"""The benchmark of think times: the time it subtracts, and the spinning rules it compares."""

from __future__ import annotations

import argparse
import sys
import time

import pytest
import waiting
from bench_fakes import session
from harness.quiet import busy_processes
from waiting import RULES, Case, Cost

from remuda._engine.startup import start
from remuda._wire.layout import Spinning

OPTIONS = argparse.Namespace(workers=2, rounds=3, seconds=1.0)


def cost(case: Case, remuda_us: float, others_us: float = 100.0) -> Cost:
    return Cost(case, [1.0] * 3, {rule: [remuda_us if rule == "remuda" else others_us] * 3 for rule in RULES})


def test_spinning_as_sets_the_rule_and_restores_it() -> None:
    arguments = ("process", 2, None, 4)
    own = start.spinning_for(*arguments)
    rule = Spinning(worker_ns=7, heedless=True)
    with waiting.spinning_as(rule):
        assert start.spinning_for(*arguments) == rule
    with waiting.spinning_as(None):
        assert start.spinning_for(*arguments) == own
    assert start.spinning_for(*arguments) == own


def test_ratios_compare_with_no_thought_and_equally_many_busy_processes() -> None:
    quiet, busy = Case(8, "core", 0, busy=0), Case(8, "core", 0, busy=1)
    costs = [cost(quiet, 20.0), cost(Case(8, "core", 50, busy=0), 25.0), cost(busy, 40.0)]
    costs.append(cost(Case(8, "elsewhere", 50, busy=1), 60.0))
    lines = list(waiting.markdown(costs, OPTIONS))
    assert lines[2] == "| 8 | 0 | none | 0 |  |  | 20 (1.00) | 100 (1.00) | 100 (1.00) |"
    assert lines[3] == "| 8 | 0 | core | 50 | <= 1.3 x | pass | 25 (1.25) | 100 (1.00) | 100 (1.00) |"
    assert lines[5] == "| 8 | 1 | elsewhere | 50 | <= 1.3 x | **falls short** | 60 (1.50) | 100 (1.00) | 100 (1.00) |"


def test_the_time_of_the_thought_alone_is_subtracted() -> None:
    case = Case(8, "elsewhere", 2000, busy=0)
    found = waiting.measure(case, {"remuda": lambda: None}, waiting.thought(case, 1.0), session(0.3, rounds=3))
    assert all(thought >= 2000 for thought in found.thought_us)
    assert abs(found.median("remuda")) < min(found.thought_us)


def test_a_thought_on_a_core_uses_cpu_time() -> None:
    think = waiting.thought(Case(8, "core", 100, busy=0), iterations_per_us=1000.0)
    before = time.thread_time_ns()
    think()
    assert time.thread_time_ns() > before


def test_busy_processes_end_with_their_block() -> None:
    with busy_processes(2):
        pass  # leaving the block waits for both processes


@pytest.mark.skipif(sys.platform != "linux", reason="worker processes need Linux")
def test_each_rule_has_its_own_pool() -> None:
    with waiting.pools(4, 2) as steps:
        assert list(steps) == list(RULES)
        for step in steps.values():
            step()
