"""Restarts: each env that fails is restarted by itself, and the others never miss a step.

The pool notices and mends faults also while the program does not call it.
"""

from __future__ import annotations

import copy
import itertools
import logging
import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import accidents
import pytest
from accidents import once
from failing import ACTS, LIMIT, MODES, assert_cut_off, fault_in, rejoin
from gymnasium import spaces
from gymnasium.vector.utils import batch_space, iterate
from pairs import each, pairwise
from pool_envs import ColourSpace, Gate, HookedEnv, NestedEnv, SampleEnv, assert_same, begun, counting, hooked
from programs import Script, Watched, collect, kill, pids_of
from spare_envs import step, tags

from remuda import BrokenPoolError, EnvError, Fault, FaultPolicy, Pool, StateError, WorkerDiedError

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="worker processes need Linux")

RESTART = FaultPolicy("restart", backoff=0)


def restarting(env_fns: Any, seed: int | None = None, **options: Any) -> Pool:
    """Returns a pool of envs that have been reset."""
    return begun(env_fns, seed, **{"faults": RESTART, "log_advice": False, **options})


# -- batches ---------------------------------------------------------------------------------------------


@pairwise(kind=["death", "exception"], mode=MODES)
def test_a_fault_truncates_the_episode_and_the_env_is_restarted(kind: str, mode: Any, tmp_path: Path) -> None:
    fails = once(tmp_path / "failed", ACTS[kind], when=lambda env: env.steps == 3)
    with restarting(hooked(3, step=fails), seed=7, autoreset=mode) as pool:
        for i in (1, 2):
            pool.step([i, i, i])
        batch = pool.step([3, 3, 3])
        fault = assert_cut_off(batch, 1, [1, 1, 2, 2])
        assert (fault.env_id, fault.operation, fault.shared) == (1, "step", False)
        assert (fault.where.episode, fault.where.step, fault.where.seed, fault.where.action) == (0, 3, 8, 3)
        assert isinstance(fault.error, WorkerDiedError if kind == "death" else EnvError)
        assert fault.kind == kind
        assert batch.obs[[0, 2]].tolist() == [[0, 1, 3, 3], [2, 1, 3, 3]]
        assert batch.truncations.tolist() == [False, True, False]
        if mode == "same_step":
            assert batch.obs[1].tolist() == [1, 1, 0, -1]  # the observation of the rebuilt env
        batch = rejoin(pool, [5, 5, 5])
        assert batch.obs[1].tolist() == [1, 1, 1, 5]
        assert batch.obs[0, 1] == 1  # the same episode
        assert "fault" not in batch.infos[1]


@pytest.mark.parametrize(
    ("mode", "observes"), [("same_step", False), *itertools.product(["next_step", "disabled"], [False, True])]
)
def test_a_death_between_episodes_truncates_no_episode(mode: Any, observes: bool) -> None:
    with restarting(counting(2, length=1), autoreset=mode) as pool:
        last = pool.step([1, 1])
        assert last.terminations.all()
        kill(pool, 1)
        for _ in range(2 * observes):  # the pool detects the death during the first request
            pool.request_obs()
            batch = pool.recv(order="slot")
            assert batch.obs.tolist() == last.obs.tolist()
            assert not batch.truncations.any()
        if mode == "disabled":
            while not pool.stats().restarts:  # until the pool has noticed the death
                pass
            with pytest.raises(StateError, match="env 1; call reset first"):
                pool.step([2, 2])
        batch = pool.reset() if mode == "disabled" else pool.step([2, 2])
        if mode == "same_step":  # the next episode had begun
            assert_cut_off(batch, 1, [1, 2, 0, -1])
        else:
            assert batch.obs.tolist() == [[0, 2, 0, -1], [1, 1, 0, -1]]
            assert not batch.truncations.any()


MIXED = spaces.Dict(text=spaces.Text(30), graph=spaces.Sequence(spaces.Discrete(5)), x=spaces.Box(-1, 1, (2,)))


@each(
    mode=MODES,
    make=[
        NestedEnv,
        lambda: SampleEnv(MIXED, spaces.Discrete(3)),
        lambda: SampleEnv(spaces.Discrete(9), spaces.Discrete(3)),
        lambda: SampleEnv(ColourSpace(), spaces.Discrete(3)),
    ],
)
def test_the_row_of_a_fault_repeats_observations_of_every_kind(mode: Any, make: Callable[[], Any]) -> None:
    """Observations with no column, with one and with several."""
    with restarting([make, make], autoreset=mode) as pool:
        before = copy.deepcopy(rows(pool, pool.reset(seed=1).obs)[1])
        pool.action_space.seed(1)
        kill(pool, 1)
        batch = pool.step(pool.action_space.sample())
        assert batch.truncations[1]
        assert isinstance(fault_in(batch, 1), Fault)
        assert_same(rows(pool, batch.obs if mode != "same_step" else batch.final_obs)[1], before)
        if mode != "same_step":
            pool.request_obs()
            assert_same(rows(pool, pool.recv(order="slot").obs)[1], before)
        pool.reset(seed=2)
        pool.step(pool.action_space.sample())


def rows(pool: Pool, obs: Any) -> list[Any]:
    return list(iterate(batch_space(pool.single_observation_space, pool.num_envs), obs))


# -- during a restart ------------------------------------------------------------------------------------


def waiting(path: Path, start_method: str = "forkserver", **hooks: Callable[..., Any]) -> tuple[Pool, Gate]:
    """Returns a pool of two envs that have been reset, and a gate at which env 1 waits when it is built again."""
    gate = Gate(path)
    build = once(path / "built", lambda _: gate.wait(), skip=1)
    faults = FaultPolicy("restart", step_timeout=LIMIT, backoff=0)
    fns = hooked(2, build=build, **hooks)
    return begun(fns, start_method=start_method, faults=faults), gate


@pytest.mark.parametrize(
    "end", [Pool.close, lambda pool: pool.close(terminate=True), None], ids=["close", "terminate", "drop"]
)
def test_the_end_of_a_pool_ends_a_successor_that_builds(tmp_path: Path, end: Callable[[Pool], None] | None) -> None:
    pool, gate = waiting(tmp_path)
    kill(pool, 1)
    pool.step([1, 1])
    gate.await_arrival()
    while not pool.workers[1].is_alive():
        pass  # the fork server may report the pid a moment later
    watched = Watched(pids_of(pool))
    if end is not None:
        end(pool)
    del pool
    watched.await_end()


# -- while the program does not call the pool ------------------------------------------------------------


@each(
    accident__restarts=[(accidents.kill_myself, 1), (accidents.wait_for_ever, 1), (accidents.raise_value_error, 0)],
    start_method=["forkserver", "fork"],
)
def test_an_env_that_fails_in_a_step_is_built_again(
    accident: Any, restarts: int, start_method: str, tmp_path: Path
) -> None:
    pool, gate = waiting(tmp_path, start_method, step=once(tmp_path / "failed", accident))
    with pool:
        pool.send([1, 1])
        gate.let_pass()  # the program calls nothing until the env is built again
        assert pool.recv(order="slot").truncations.tolist() == [False, True]
        assert pool.step([1, 1]).obs[1].tolist() == [1, 1, 0, -1]
        assert pool.stats().restarts == restarts


def test_log_records_arrive_and_faults_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    with begun(hooked(2, step=lambda *_: logging.getLogger("test.env").warning("slow")), faults="restart") as pool:
        pool.send([1, 1])
        while not caplog.records:
            pass
        pool.recv()
        kill(pool, 0)
        while len(caplog.records) < 2:
            pass
    assert [record.getMessage().split(" (")[0] for record in caplog.records] == ["slow", "worker 0"]


# -- the thread ------------------------------------------------------------------------------------------


def supervisors() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("remuda")]


@pytest.mark.parametrize("backend", ["process", "thread", "serial"])
def test_the_thread_ends_with_its_pool(backend: Any) -> None:
    for is_closed in (True, False):
        pool = begun(counting(2), backend=backend)
        assert "remuda-supervisor" in supervisors()
        if is_closed:
            pool.close()
        del pool
        collect()
        assert not supervisors(), is_closed
    with pytest.raises(EnvError, match="broken"):
        Pool(hooked(2, build=accidents.raise_value_error), backend=backend, num_workers=None)
    assert not supervisors()


def test_an_idle_worker_that_dies_is_replaced_also_in_a_pool_that_was_made_in_a_thread(tmp_path: Path) -> None:
    made: list[tuple[Pool, Gate]] = []
    thread = threading.Thread(target=lambda: made.append(waiting(tmp_path)))
    thread.start()
    thread.join()
    ((pool, gate),) = made
    with pool:
        kill(pool, 1)
        gate.let_pass()
        assert pool.step([1, 1]).truncations.tolist() == [False, True]
        assert pool.step([2, 2]).obs[:, 2].tolist() == [2, 0]


def test_the_program_ends_while_a_successor_is_built(script: Callable[..., Script], tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    run = script(
        f"""
from accidents import once
gate = {gate!r}
build = once({str(tmp_path / "built")!r}, lambda _: gate.wait(), skip=1)
pool = begun(hooked(2, build=build), faults="restart")
os.kill(pool.workers[1].pid, signal.SIGKILL)
gate.await_arrival()
"""
    )
    code, output, errors = run.await_end()
    assert (code, output, len(errors.splitlines())) == (0, "", 1)  # the log record of the death


# -- faults and renewals in a pool with spares -----------------------------------------------------------


ALL_MODES = ("next_step", "same_step", "disabled", "background")


def test_the_death_of_a_spare_is_raised() -> None:
    with begun(counting(3, length=1), spares=1) as pool:
        os.kill(pool.workers[2].pid or 0, signal.SIGKILL)
        with pytest.raises(WorkerDiedError) as raised:
            while True:
                pool.step([1, 1])
        assert raised.value.env_ids == (2,)
        with pytest.raises(BrokenPoolError):
            for _ in range(4):
                pool.discard()
                with suppress(WorkerDiedError):  # an env that was sent a command meanwhile raises once more
                    pool.step([1, 1])


@each(kind=["death", "exception"], mode=ALL_MODES)
def test_a_spare_takes_the_slot_of_a_failed_env_at_once(kind: str, mode: Any, tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    fails = once(tmp_path / "failed", ACTS[kind])
    build = once(tmp_path / "built", lambda _: gate.wait(), skip=1)
    with begun(hooked(3, (0,), 5, step=fails, build=build), spares=1, autoreset=mode, faults="restart") as pool:
        pool.send([1, 1])
        batch = pool.recv(order="slot")
        assert batch.truncations.tolist() == [True, False]
        if mode != "same_step":
            assert batch.infos[0]["fault"].env_id == 0
            batch = step(pool, mode, batch)
        assert tags(batch) == [2, 1]
        gate.let_pass()  # the rebuilt env becomes a spare only after the gate opens
        seen: set[int] = set()
        for _ in range(24):
            batch = step(pool, mode, batch)
            seen.update(tags(batch))
        assert seen == {0, 1, 2}


@each(
    arguments=[{}, {"seed": 5}, {"options": {}}, {"options": {}, "reset_slots": True}],
    seeding=["gymnasium", "per_episode"],
)
def test_a_reset_finds_a_renewed_env_as_in_the_callers_thread(arguments: Any, seeding: Any, tmp_path: Path) -> None:
    """It resets all envs before the renewed env is built. In the caller's thread that env has reset in advance."""
    gate = Gate(tmp_path)

    def rows_with(backend: Any, **hooks: Callable[..., Any]) -> list[Any]:
        fns = [lambda: HookedEnv(0, 1, **hooks), lambda: HookedEnv(1, 50), lambda: HookedEnv(2, 2)]
        options: Any = {"backend": backend, "seeding": seeding, "faults": FaultPolicy(renew_every=1)}
        with begun(fns, seed=1, spares=1, **options) as pool:
            pool.step([1, 1])
            pool.step([1, 1])  # slot 0 continues with the spare, and env 0 is the spare
            pool.send_reset(**arguments)
            if hooks:
                gate.let_pass()
            batches = [pool.recv(), *(pool.step([1, 1]) for _ in range(5))]
            return [(batch.obs.tolist(), [info.get("episode_seed") for info in batch.infos]) for batch in batches]

    build = once(tmp_path / "built", lambda *_: gate.wait(), skip=1)
    assert rows_with("process", build=build) == rows_with("serial")
