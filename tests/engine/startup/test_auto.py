"""`num_workers="auto"` and `backend="auto"`: the choice and its report, equal results, and failures of the trial."""

from __future__ import annotations

import logging
import os
import re
import signal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from accidents import leave, raise_value_error, wait_for_ever
from pairs import each
from pool_envs import CountingEnv, Diary, DiceEnv, HookedEnv, assert_same, begun, counting, hooked
from programs import Script

import remuda
from remuda import EnvError, FaultPolicy, InvalidEnvError, Pool, StartTimeoutError, WorkerDiedError
from remuda._engine.startup import auto
from remuda.stats import WorkerChoice

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")


@pytest.fixture
def diary(tmp_path: Path) -> Diary:
    return Diary(tmp_path / "diary")


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treats each build as quick, so that slow machines also make the trial."""
    monkeypatch.setattr(auto, "LONGEST_BUILD", 1e9)


@pytest.fixture
def finds(monkeypatch: pytest.MonkeyPatch, patient: None) -> Any:
    """Returns a function that fixes the result of the choice. The measurement itself still runs."""

    def found(num_workers: int, backend: Any = "process") -> None:
        monkeypatch.setattr(auto, "choose", lambda *_: WorkerChoice(num_workers, backend, "the test says so"))

    return found


# -- the choice ------------------------------------------------------------------------------------------------


def test_the_choice_is_logged_and_shown(finds: Any, caplog: pytest.LogCaptureFixture) -> None:
    finds(2)
    with caplog.at_level(logging.INFO, "remuda"), Pool(counting(4), num_workers="auto", start_method="fork") as pool:
        assert pool.num_workers == len(pool.workers) == 2
        assert pool.reset().obs[:, 0].tolist() == [0, 1, 2, 3]
        assert str(pool.choice) == pool.choice.reason
        assert f"num_workers='auto': {pool.choice}" in [record.getMessage() for record in caplog.records]


@pytest.mark.usefixtures("measured_by_default", "patient")
@pytest.mark.parametrize(
    ("options", "measured"),  # for the number of workers, or also for a caller that steps the envs
    [
        ({}, "caller"),
        ({"faults": "raise", "num_workers": "auto"}, "caller"),
        ({"autoreset": "same_step", "seeding": "per_episode"}, "caller"),
        ({"backend": "process"}, "workers"),
        ({"faults": FaultPolicy(step_timeout=60.0)}, "workers"),
        ({"faults": "restart", "num_workers": "auto"}, "workers"),
        ({"start_method": "fork"}, "workers"),
        ({"threads_per_worker": 2}, "workers"),
        ({"max_concurrency": 2}, "workers"),
        ({"pin_workers": True}, "workers"),
        ({"worker_output": "capture"}, "workers"),
        ({"worker_env": {"CUDA_VISIBLE_DEVICES": ""}}, "workers"),
        ({"resets_ahead": True, "num_workers": "auto"}, "workers"),
        ({"autoreset": "background", "num_workers": "auto"}, "workers"),
        ({"crash_dir": "records"}, "workers"),
        ({"num_workers": None}, None),
        ({"num_workers": 2}, None),
        ({"faults": "restart"}, None),
        ({"faults": FaultPolicy(renew_every=3)}, None),
        ({"spares": 1}, None),
        ({"lazy": True}, None),
        ({"resets_ahead": True}, None),
        ({"autoreset": "background"}, None),
        ({"backend": "thread"}, None),
        ({"backend": "serial"}, None),
    ],
    ids=str,
)
def test_options_decide_whether_envs_are_measured(
    options: dict[str, Any], measured: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, diary: Diary
) -> None:
    calls: list[str] = []

    def choose(found: Any, num_envs: int, cores: int, wake: float | None) -> WorkerChoice:
        assert (found.cost is not None, num_envs) == (True, 3)
        calls.append("workers" if wake is None else "caller")
        return WorkerChoice(1, "process", "the test says so")

    monkeypatch.setattr(auto, "choose", choose)
    monkeypatch.chdir(tmp_path)
    envs = hooked(3, (0, 1, 2), build=lambda env: diary.note(env.tag))
    with Pool(envs, **{"backend": "auto", **options}) as pool:
        assert calls == ([] if measured is None else [measured])
        assert (len(diary.lines()) > 3) == (measured is not None)
        assert pool.backend == options.get("backend", "process")
        is_chosen = measured is not None or pool.backend == "serial"
        assert (pool.choice is not None) == is_chosen
        assert pool.num_workers == (1 if is_chosen else options.get("num_workers") or 3)


@pytest.mark.usefixtures("measured_by_default", "patient")
def test_the_caller_steps_the_envs_if_backend_auto_finds_it_fastest(finds: Any, diary: Diary) -> None:
    finds(1, "serial")
    with Pool(hooked(3, (0, 1, 2), build=lambda env: diary.note(os.getpid())), backend="auto") as pool:
        assert (pool.backend, pool.num_workers) == ("serial", 1)
        assert pool.options["backend"] == "serial"
        assert pool.reset(seed=1).obs[:, 0].tolist() == [0, 1, 2]
        assert diary.lines()[-3:] == [str(os.getpid())] * 3
        assert str(os.getpid()) not in diary.lines()[:-3]  # the trial ran in another process


# -- results are unchanged -------------------------------------------------------------------------------------


class StainedEnv(DiceEnv):
    """An env that also draws from its process's random numbers, and reports how many envs the process has built."""

    built = 0

    def __init__(self) -> None:
        super().__init__()
        if StainedEnv.built == 0:
            np.random.seed(5)
        StainedEnv.built += 1
        self.number = StainedEnv.built
        self.steps = 0

    def step(self, action: Any) -> Any:
        self.steps += 1
        obs, *rest, _ = super().step(action)
        return obs, *rest, {"shared": float(np.random.random()), "number": self.number, "steps": self.steps}


def trajectory(pool: Pool) -> list[Any]:
    first = pool.reset(seed=3).obs.copy()
    batches = [pool.step(np.zeros(pool.num_envs, int)) for _ in range(40)]
    return [first, *[(b.obs.copy(), b.rewards.copy(), b.terminations.copy(), list(b.infos)) for b in batches]]


@pytest.mark.parametrize(("start_method", "num_workers"), [("spawn", 1), ("forkserver", 2), ("fork", 4)])
def test_results_equal_those_of_a_pool_with_a_fixed_number_of_workers(
    num_workers: int, start_method: Any, finds: Any
) -> None:
    finds(num_workers)
    found = []
    for num in ("auto", num_workers):
        with Pool([StainedEnv] * 4, num_workers=num, start_method=start_method) as pool:
            assert pool.num_workers == num_workers
            found.append(trajectory(pool))
    assert_same(found[0], found[1])


@pytest.mark.usefixtures("patient")
def test_an_env_that_was_stepped_is_not_kept(finds: Any, diary: Diary) -> None:
    finds(2)
    with Pool(hooked(2, (0, 1), step=diary.note_process), num_workers="auto", start_method="fork") as pool:
        tried = set(diary.lines())
        assert len(tried) == 1
        assert str(pool.workers[0].pid) not in tried
        assert pool.reset().obs[:, 1].tolist() == [1, 1]  # the first episode
        with pytest.raises(ProcessLookupError):
            os.kill(int(tried.pop()), 0)


class ShownEnv(HookedEnv):
    render_mode = "human"


@pytest.mark.parametrize(
    ("kinds", "options", "longest_build", "why"),
    [
        *(
            ([HookedEnv] * 3, {"start_method": method}, 0.0, "is not built again for a trial")
            for method in ("forkserver", "spawn", "fork")
        ),
        ([HookedEnv, ShownEnv], {}, 1e9, "their factories differ"),
        ([ShownEnv] * 2, {}, 1e9, "it shows itself on a screen"),
        ([HookedEnv] * 2, {"backend": "thread"}, 1e9, "in this process"),
    ],
)
def test_envs_that_are_not_tried_are_built_once_in_a_worker_each(
    kinds: list[Any], options: Any, longest_build: float, why: str, diary: Diary, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(env: Any) -> None:
        diary.note("build", env.tag, remuda.worker_info())

    def step(*_: Any) -> None:
        diary.note("step")

    monkeypatch.setattr(auto, "LONGEST_BUILD", longest_build)
    n = len(kinds)
    with Pool(
        [partial(kind, i, build=build, step=step) for i, kind in enumerate(kinds)], num_workers="auto", **options
    ) as pool:
        assert pool.num_workers == n
        assert why in str(pool.choice)
        expected = [f"build {i} WorkerInfo(index={i}, num_workers={n}, env_ids=({i},), device=None)" for i in range(n)]
        assert sorted(diary.lines()) == expected
        assert pool.reset().obs[:, 0].tolist() == list(range(n))


def test_auto_gives_each_spare_a_worker() -> None:
    with Pool([CountingEnv] * 3, num_workers="auto", spares=1) as pool:
        assert pool.num_workers == 3
        assert "spares" in str(pool.choice)


@pytest.mark.parametrize("faults", ["raise", "restart"])
def test_the_worker_of_the_trial_has_deaths_and_restarts_like_others(
    faults: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auto, "LONGEST_BUILD", 0.0)  # so that no trial is made
    envs = hooked(2, (0, 1), step=lambda _, action: leave() if action == 9 else None)
    with begun(envs, num_workers="auto", faults=faults, start_method="fork", seed=1) as pool:
        if faults == "raise":
            with pytest.raises(WorkerDiedError, match="worker 0"):
                pool.step([9, 0])
        else:
            assert pool.step([9, 0]).truncations.tolist() == [True, False]
            assert pool.step([0, 0]).obs[:, 0].tolist() == [0, 1]


# -- failures --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ends", "start_timeout", "error", "text"),
    [
        (raise_value_error, None, EnvError, r"env 0 \(worker 0\) raised ValueError in build: broken"),
        (leave, None, WorkerDiedError, "worker 0"),
        (wait_for_ever, 1, StartTimeoutError, r"start_timeout=1 s, got no answer for the envs \[0\]"),
    ],
)
def test_a_factory_that_fails_or_hangs_is_called_once(
    ends: Any, start_timeout: Any, error: type[Exception], text: str, diary: Diary
) -> None:
    def build(env: Any) -> None:
        diary.note(env.tag)
        ends()

    with pytest.raises(error, match=text):
        Pool(hooked(3, (0, 1, 2), build=build), num_workers="auto", start_timeout=start_timeout)
    assert diary.lines() == ["0"]


NAMES_TRIAL = (
    r"; env_fns\[0\] was called before, for the trial of num_workers='auto': if it works only once, pass a number"
)


RAISED = r"^env 0 \(worker 0\) raised ValueError in build: broken"
NO_ENV = r"^expected env_fns\[0\] to return a gymnasium.Env, got 3 .*"


@pytest.mark.parametrize(
    ("ends", "backend", "error", "text", "then"),
    [
        (raise_value_error, "process", EnvError, RAISED, "$"),
        (raise_value_error, "serial", EnvError, RAISED, "$"),
        (lambda: 3, "process", InvalidEnvError, NO_ENV, "$"),
        (lambda: 3, "serial", InvalidEnvError, NO_ENV, "$"),
        (leave, "process", WorkerDiedError, "in build: it exited with code 3", ""),
        (wait_for_ever, "process", StartTimeoutError, r"envs \[0, 1\].*", "\n  worker 0 was in"),
    ],
)
def test_the_error_of_a_second_build_of_env_0_names_the_trial(
    ends: Any, backend: Any, error: type[Exception], text: str, then: str, diary: Diary, finds: Any
) -> None:
    def build() -> Any:
        diary.note(0)
        return CountingEnv() if len(diary.lines()) == 1 else ends()

    finds(1, backend)
    with pytest.raises(error, match=rf"{text}{NAMES_TRIAL}, as in num_workers=1{then}"):
        Pool([build] * 2, num_workers="auto", start_timeout=4 if ends is wait_for_ever else None)


def test_the_error_of_another_build_does_not_name_the_trial(finds: Any) -> None:
    finds(2)
    with pytest.raises(EnvError, match="^env 1 .*: broken$"):
        Pool(hooked(2, build=lambda _: raise_value_error()), num_workers="auto")


@pytest.mark.usefixtures("patient")
@each(
    phase__hook__why=[
        ("step", raise_value_error, "ValueError: broken"),
        ("reset", raise_value_error, "ValueError: broken"),
        ("step", leave, "it exited with code 3"),
        ("step", wait_for_ever, "it was not done after 1 s"),
        ("close", wait_for_ever, ""),
        ("close", raise_value_error, ""),
        ("close", leave, ""),
    ],
    backend=["auto", "process"],
)
def test_a_failed_trial_does_not_fail_the_start(
    backend: Any, phase: str, hook: Any, why: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An env that fails only in the trial is started as if there had been no trial."""
    monkeypatch.setattr(auto, "PATIENCE_SECONDS", 1.0)
    main = os.getpid()

    def in_trial(env: Any, *arguments: Any) -> Any:
        if os.getpid() != main and not (tmp_path / "over").exists():
            return hook(env, *arguments)
        return None

    real = auto.choose

    def choose(*found: Any) -> WorkerChoice:
        (tmp_path / "over").touch()
        return real(*found)

    monkeypatch.setattr(auto, "choose", choose)
    envs = hooked(2, (0, 1), **{phase: in_trial})
    with Pool(envs, num_workers="auto", backend=backend, start_method=None if backend == "auto" else "fork") as pool:
        if why:
            assert pool.num_workers == 2
            assert re.search(f"cannot be measured .*{why}", str(pool.choice))
        assert pool.reset().obs[:, 0].tolist() == [0, 1]
        assert pool.step([1, 2]).rewards.tolist() == [1, 2]
        (tmp_path / "over").touch()


def test_an_interrupt_in_the_trial_leaves_no_process(script: Any) -> None:
    program: Script = script(
        """
gate = Gate(Path(os.environ["REMUDA_TEST"]))
threading.Thread(target=lambda: (gate.await_arrival(), say("stepping")), daemon=True).start()
try:
    Pool(hooked(2, (0, 1), step=lambda *_: gate.wait()), num_workers="auto")
except KeyboardInterrupt:
    say("interrupted")
"""
    )
    assert program.read_line() == "stepping"
    program.process.send_signal(signal.SIGINT)
    assert program.read_line() == "interrupted"
    assert program.await_end()[0] == 0


def test_wrong_numbers_of_workers_are_refused() -> None:
    for wrong in (0, 4, "some", True):
        with pytest.raises(ValueError, match=r"expected num_workers to be 'auto', None, or an int from 1 to 3"):
            Pool(counting(3), num_workers=wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least one env"):
        Pool([], num_workers="auto")
    with pytest.raises(ValueError, match="expected backend to be one of .*'auto'"):
        Pool(counting(3), backend="cloud")  # type: ignore[arg-type]
