"""The search of `remuda tune`, with fake trials that follow a formula, and with real trials."""

from __future__ import annotations

import ast
import re
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import gymnasium
import pytest
from pool_envs import CountingEnv

from remuda._bench import tune_report
from remuda._bench.trials import Policy, Trials
from remuda._bench.tuning import Outcome, Trial, Tuned, tune


def machine(
    rate: Callable[[Trial], float], auto: int = 2, backend: str = "process", spares: int = 0
) -> Callable[[Trial], Outcome]:
    """Returns a function that measures trials by a formula. With "auto", a trial has `auto` workers."""

    def measure(trial: Trial) -> Outcome:
        made = replace(trial, num_workers=trial.num_workers or auto)
        kind = backend if trial.num_workers is None else "process"
        return Outcome(made, kind, rate(made), 0 if trial.spares else spares)

    return measure


def found(measure: Callable[[Trial], Outcome], **options: Any) -> Tuned:
    return tune(measure, **{"num_envs": None, "cores": 4, "thinks": False, **options})


def test_the_number_of_envs_grows_while_the_rate_grows() -> None:
    tuned = found(machine(lambda trial: min(trial.num_envs, 32)))
    assert tuned.best.trial.num_envs == 32
    assert [outcome.trial.num_envs for outcome in tuned.outcomes[:5]] == [8, 16, 32, 64, 128]
    assert tuned.reasons[0] == "32 envs a batch: 64 are 1.00 times as fast and 128 are 1.00 times as fast"


def test_a_single_slow_size_does_not_end_the_search() -> None:
    tuned = found(machine(lambda trial: 1 if trial.num_envs == 16 else trial.num_envs))
    assert tuned.best.trial.num_envs == 256


def test_a_given_number_of_envs_is_kept() -> None:
    tuned = found(machine(lambda trial: trial.num_envs), num_envs=6)
    assert {outcome.trial.num_envs for outcome in tuned.outcomes} == {6}


def test_other_numbers_of_workers_than_auto_are_tried() -> None:
    tuned = found(machine(lambda trial: -abs((trial.num_workers or 0) - 8) + 100), num_envs=8)
    assert tuned.best.trial.num_workers == 8
    assert "8 workers: 1.06 times as fast as 2 workers ('auto')" in tuned.reasons


def test_the_reasons_say_if_auto_is_right() -> None:
    tuned = found(machine(lambda trial: 100 - (trial.num_workers != 2)), num_envs=8)
    assert tuned.best.trial.num_workers == 2
    assert any(reason.startswith("2 workers, as 'auto' has it") for reason in tuned.reasons)


def test_the_serial_backend_is_compared_with_workers() -> None:
    tuned = found(machine(lambda trial: 50, auto=1, backend="serial"), num_envs=4)
    assert tuned.best.backend == "serial"
    assert 1 in [outcome.trial.num_workers for outcome in tuned.outcomes[1:]]
    assert 'backend="serial"' in tune_report.code(tuned.best, "CartPole-v1")


@pytest.mark.parametrize("pays", [True, False])
def test_spares_are_tried_if_resets_are_slow(pays: bool) -> None:
    tuned = found(machine(lambda trial: 10 + 20 * pays * (trial.spares > 0), spares=3), num_envs=8)
    assert (tuned.best.trial.spares == 3) == pays
    assert any("3 spares" in reason for reason in tuned.reasons)


@pytest.mark.parametrize(("thinks", "parts"), [(True, 2), (False, 1)])
def test_halves_are_tried_only_with_a_policy(thinks: bool, parts: int) -> None:
    tuned = found(machine(lambda trial: 10 * trial.parts), num_envs=8, thinks=thinks)
    assert tuned.best.trial.parts == parts


@pytest.mark.parametrize("env", ["CartPole-v1", "mymodule:make_env", "ale_py:ALE/Pong-v5"])
@pytest.mark.parametrize("trial", [Trial(8, 2), Trial(8, 2, parts=2), Trial(8, 9, spares=1)])
def test_the_code_can_be_pasted(env: str, trial: Trial) -> None:
    code = tune_report.code(Outcome(trial, "process", 1.0), env)
    ast.parse(code)
    assert f"* {trial.num_envs + trial.spares}, " in code
    assert "import mymodule" in code if env.startswith("mymodule") else env in code


class Sleeping(CountingEnv):
    """Takes slightly longer for a step than the policy takes."""

    def step(self, action: Any) -> Any:
        time.sleep(0.02)
        return super().step(action)


def test_the_finding_of_a_trial_suggests_nothing() -> None:
    """Tuning already tries the suggestions of a verdict, so the finding must not repeat them."""
    finding_text = Trials(Sleeping, Policy(0.015), seconds=0.3).measure(Trial(2, num_workers=2)).finding
    assert ": " in finding_text
    assert not re.search("step one half|try more|should be faster|let .auto. see|see what a step", finding_text), (
        finding_text
    )


@pytest.mark.parametrize("trial", [Trial(2), Trial(2, 1), Trial(2, 2, parts=2), Trial(2, spares=1)])
@pytest.mark.parametrize("on_gpu", [True, False])
def test_trials_are_pools_that_step(trial: Trial, on_gpu: bool) -> None:
    trials = Trials(lambda: gymnasium.make("CartPole-v1"), Policy(1e-4, on_gpu), seconds=0.02)
    outcome = trials.measure(trial)
    assert 0 < outcome.rate < 2 / 1e-4
    assert outcome.trial.num_workers is not None
    assert (outcome.trial.num_envs, outcome.trial.parts) == (trial.num_envs, trial.parts)
