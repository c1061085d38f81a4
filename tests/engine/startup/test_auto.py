"""`num_workers="auto"` and `backend="auto"`: the choice from measurements, equal results, and failures of the trial."""

from __future__ import annotations

import logging
import os
import re
import signal
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from accidents import leave, once, raise_value_error, wait_for_ever
from pairs import each
from pool_envs import CountingEnv, Diary, Gate, HookedEnv, LevelEnv, begun, counting, hooked

import remuda
from remuda import EnvError, FaultPolicy, InvalidEnvError, Pool, StartTimeoutError, WorkerDiedError
from remuda._engine.startup import auto
from remuda._engine.startup.auto import are_alike
from remuda._engine.stats.choice import choose
from remuda._engine.stats.durations import span
from remuda._worker.measuring import Measured, StepCost
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


@pytest.mark.usefixtures("patient")
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
        ({"max_worker_memory": "1TiB"}, None),
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


@pytest.mark.usefixtures("patient")
def test_the_caller_steps_the_envs_if_backend_auto_finds_it_fastest(finds: Any, diary: Diary) -> None:
    finds(1, "serial")
    with Pool(hooked(3, (0, 1, 2), build=lambda env: diary.note(os.getpid())), backend="auto") as pool:
        assert (pool.backend, pool.num_workers) == ("serial", 1)
        assert pool.options["backend"] == "serial"
        assert pool.reset(seed=1).obs[:, 0].tolist() == [0, 1, 2]
        assert diary.lines()[-3:] == [str(os.getpid())] * 3
        assert str(os.getpid()) not in diary.lines()[:-3]  # the trial ran in another process


# -- the trial leaves no trace ---------------------------------------------------------------------------------


@pytest.mark.usefixtures("patient")
def test_an_env_that_was_stepped_is_not_kept_nor_its_process(finds: Any, diary: Diary) -> None:
    finds(2)
    envs = hooked(2, (0, 1), step=lambda *_: diary.note(os.getpid()))
    with Pool(envs, num_workers="auto") as pool:
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
        ([HookedEnv] * 3, {"start_method": "fork"}, 0.0, "is not built again for a trial"),
        ([HookedEnv] * 3, {"max_worker_memory": "1TiB"}, 1e9, "their workers are watched"),
        ([HookedEnv, ShownEnv], {}, 1e9, "their factories differ"),
        ([ShownEnv] * 2, {}, 1e9, "it shows itself on a screen"),
        ([HookedEnv] * 2, {"backend": "thread"}, 1e9, "in this process"),
        ([HookedEnv] * 3, {"spares": 1}, 1e9, "spares"),
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
        assert pool.reset().obs[:, 0].tolist() == list(range(pool.num_envs))


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
    envs = hooked(2, (0, 1), **{phase: once(tmp_path / "acted", hook)})
    with Pool(envs, num_workers="auto", backend=backend, start_method=None if backend == "auto" else "fork") as pool:
        if why:
            assert pool.num_workers == 2
            assert re.search(f"cannot be measured .*{why}", str(pool.choice))
        assert pool.reset().obs[:, 0].tolist() == [0, 1]
        assert pool.step([1, 2]).rewards.tolist() == [1, 2]


@pytest.mark.usefixtures("patient")
def test_an_interrupt_in_the_trial_leaves_no_process(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    onlooker = threading.Thread(target=lambda: (gate.await_arrival(), os.kill(os.getpid(), signal.SIGINT)))
    onlooker.start()
    with pytest.raises(KeyboardInterrupt):
        Pool(hooked(2, (0, 1), step=lambda *_: gate.wait()), num_workers="auto")
    onlooker.join()


# -- the choice from measurements --------------------------------------------------------------------------------

MICROSECOND = 1e-6


def measured(wall: float, cpu: float | None = None, obs_bytes: int = 16) -> Measured:
    """Returns the cost of a step. `wall` and `cpu` are microseconds."""
    return Measured(StepCost(wall * MICROSECOND, (wall if cpu is None else cpu) * MICROSECOND), 1000, obs_bytes)


NOOP, CARTPOLE, CHEETAH, MILLISECOND = measured(0.5), measured(4), measured(50), measured(1000)
GAME = measured(5000, 100)
IMAGE = measured(0.5, obs_bytes=1_000_000)


@pytest.mark.parametrize(
    ("env", "num_envs", "cores", "workers"),
    [
        (NOOP, 8, 2, 1),  # a wake-up of the second worker costs more time than the worker saves
        (CARTPOLE, 8, 2, 1),  # the second core is worth more to the policy
        (CARTPOLE, 64, 2, 2),
        (CARTPOLE, 64, 1, 1),
        (CARTPOLE, 1, 8, 1),
        (CHEETAH, 4, 2, 1),
        (CHEETAH, 8, 2, 2),
        (MILLISECOND, 8, 2, 2),  # steps use CPU time only, so the cores are the limit
        (MILLISECOND, 64, 16, 16),
        (MILLISECOND, 100, 8, 8),  # 16 workers would hardly be faster
        (MILLISECOND, 2, 16, 2),  # there are at most as many workers as envs
        (GAME, 8, 2, 8),  # the env only waits, so all envs can wait at the same time
        (GAME, 64, 1, 64),
        (IMAGE, 8, 2, 2),  # the step is cheap, but the worker has to write a large observation
    ],
)
def test_the_choice_of_the_number_of_workers(env: Measured, num_envs: int, cores: int, workers: int) -> None:
    chosen = choose(env, num_envs, cores)
    assert (chosen.num_workers, chosen.backend) == (workers, "process")
    assert f"{workers} worker" in str(chosen)
    assert f"{cores} core" in str(chosen)


@pytest.mark.parametrize(
    ("env", "num_envs", "wake", "backend"),
    [
        (NOOP, 64, 20, "serial"),
        (CARTPOLE, 8, 20, "serial"),
        (CARTPOLE, 64, 20, "process"),
        (CARTPOLE, 64, 100, "serial"),  # a busy machine
        (CHEETAH, 8, 40, "process"),
        (CHEETAH, 8, 200, "serial"),
        (IMAGE, 8, 20, "process"),
        (GAME, 2, 1000, "process"),
        (GAME, 1, 1, "serial"),  # a single env
        (GAME, 1, None, "process"),
        (NOOP, 8, None, "process"),  # an option needs processes
    ],
)
def test_the_caller_steps_the_envs_if_workers_save_little(
    env: Measured, num_envs: int, wake: float | None, backend: str
) -> None:
    chosen = choose(env, num_envs, 2, None if wake is None else wake * MICROSECOND)
    assert chosen.backend == backend
    if backend == "serial":
        assert chosen.num_workers == 1
        assert f"to wake a worker {span(wake * MICROSECOND)}" in chosen.reason or "it is one env" in chosen.reason


# -- factories that build the same kind of env -----------------------------------------------------------------


def made(*arguments: Any, **named: Any) -> Callable[[], Any]:
    return lambda: CountingEnv(*arguments, **named)


def itself() -> Any:
    """Returns a function that refers to itself through a closure cell."""

    def build(again: bool = False) -> Any:
        return build

    return build


ALIKE: list[tuple[Any, Any]] = [
    (made(1), made(2)),
    (made(None, length=3), made(2, length=4)),
    (made("run-1/env-0.csv"), made("run-1/env-12.csv")),
    (made({"ports": [1, 2], "name": "a"}), made({"ports": [3, 4], "name": "a"})),
    (partial(CountingEnv, 1), partial(CountingEnv, 2)),
    (partial(CountingEnv, tag=1), partial(CountingEnv, tag=2)),
    (HookedEnv(1).poke, HookedEnv(2).poke),
    (itself(), itself()),
    (counting(2)[0], counting(2)[1]),
]
DIFFERENT: list[tuple[Any, Any]] = [
    (CountingEnv, HookedEnv),
    (lambda: CountingEnv(1), lambda: HookedEnv(1)),
    (lambda: made("CartPole"), lambda: made("Pong")),
    (made("CartPole-v1"), made("ALE/Pong-v5")),
    (made(CountingEnv), made(LevelEnv)),
    (made([1, 2]), made([1, 2, 3])),
    (made({"map": "a"}), made({"map": "b"})),
    (made(None), made("videos")),
    (partial(CountingEnv, 1), partial(HookedEnv, 1)),
    (HookedEnv(1).poke, HookedEnv(1).pid),
    (made(b"a"), made(b"b")),
]


@pytest.mark.parametrize(("pair", "alike"), [*((pair, True) for pair in ALIKE), *((pair, False) for pair in DIFFERENT)])
def test_factories_are_alike_if_they_build_the_same_kind_of_env(pair: tuple[Any, Any], alike: bool) -> None:
    one, other = pair
    assert are_alike([one, other]) == alike
    assert are_alike([one, one, other]) == alike
