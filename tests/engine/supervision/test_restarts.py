"""Restarts: each env that fails is restarted by itself, and the others never miss a step."""

from __future__ import annotations

import copy
import itertools
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from accidents import die, once
from failing import MODES, assert_cut_off, fault_in, rejoin
from gymnasium import spaces
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate
from odd_exceptions import Unpicklable, raising
from pairs import covering
from pool_envs import ColourSpace, Gate, NestedEnv, SampleEnv, TextEnv, assert_same, counting, hooked
from programs import Watched, kill, pids_of

from remuda import (
    Batch,
    EnvError,
    Fault,
    FaultPolicy,
    Pool,
    WorkerDiedError,
)


def restarting(env_fns: Any, **options: Any) -> Pool:
    return Pool(env_fns, **{"faults": FaultPolicy("restart", backoff=0), "log_advice": False, **options})


FAILURES: dict[str, Callable[..., Any]] = {
    "SIGKILL": die,
    "exception": raising(lambda: ValueError("broken")),
    "SystemExit": raising(lambda: SystemExit(3)),
    "unpicklable": raising(Unpicklable),
}
PLACES = [("process", name) for name in FAILURES] + [
    (backend, name) for backend in ("thread", "serial") for name in FAILURES if name != "SIGKILL"
]


def failures(modes: Iterable[str]) -> Sequence[tuple[str, str, str]]:
    """Returns cells that cover every possible pair of backend, failure and mode."""
    cells = [(*place, mode) for place, mode in itertools.product(PLACES, modes)]
    return covering(cells, lambda cell: cell[:2], lambda cell: cell[1:], lambda cell: cell[::2])


# -- batches ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("backend", "failure", "mode"), failures(MODES))
def test_a_fault_truncates_the_episode_and_the_env_is_restarted(
    backend: Any, failure: str, mode: Any, tmp_path: Path
) -> None:
    fails = once(tmp_path / "failed", FAILURES[failure], when=lambda env: env.steps == 3)
    with restarting(hooked(3, step=fails), backend=backend, autoreset=mode) as pool:
        pool.reset(seed=7)
        for i in (1, 2):
            pool.step([i, i, i])
        batch = pool.step([3, 3, 3])
        fault = assert_cut_off(batch, 1, [1, 1, 2, 2])
        assert (fault.env_id, fault.operation, fault.shared) == (1, "step", False)
        assert (fault.where.episode, fault.where.step, fault.where.seed, fault.where.action) == (0, 3, 8, 3)
        assert isinstance(fault.error, WorkerDiedError if failure == "SIGKILL" else EnvError)
        assert fault.kind == ("death" if failure == "SIGKILL" else "exception")
        assert batch.obs[[0, 2]].tolist() == [[0, 1, 3, 3], [2, 1, 3, 3]]
        assert batch.truncations.tolist() == [False, True, False]
        if mode == "same_step":
            assert batch.obs[1].tolist() == [1, 1, 0, -1]  # the observation of the rebuilt env
        batch = rejoin(pool, [5, 5, 5])
        assert batch.obs[1].tolist() == [1, 1, 1, 5]
        assert batch.obs[0, 1] == 1  # the same episode
        assert "fault" not in batch.infos[1]


@pytest.mark.parametrize("mode", MODES)
def test_a_death_truncates_the_episodes_of_all_envs_of_the_worker(mode: Any, tmp_path: Path) -> None:
    fails = once(tmp_path / "failed", die, when=lambda env: env.steps == 2)
    with restarting(hooked(5, which=[1], step=fails), num_workers=2, autoreset=mode) as pool:  # 0 1 2 | 3 4
        pool.reset()
        pool.step([1] * 5)
        batch = pool.step([2] * 5)
        reasons = [assert_cut_off(batch, row, [row, 1, 1, 1]) for row in range(3) if batch.truncations[row]]
        # Env 0 may have published its second step before the death. That step then counts.
        assert batch.truncations.tolist()[1:] == [True, True, False, False]
        assert [(fault.env_id, fault.shared) for fault in reasons if fault.env_id != 0] == [(1, False), (2, True)]
        assert batch.obs[3:].tolist() == [[3, 1, 2, 2], [4, 1, 2, 2]]


@pytest.mark.parametrize("mode", MODES)
def test_the_death_of_an_idle_worker_truncates_the_next_step(mode: Any) -> None:
    with restarting(counting(3), autoreset=mode) as pool:
        pool.reset()
        pool.step([1, 1, 1])
        kill(pool, 1)
        batch = pool.step([2, 2, 2])
        fault = assert_cut_off(batch, 1, [1, 1, 1, 1])
        # the report names the command that was sent to the dead worker
        assert (fault.kind, fault.operation, fault.where.step) == ("death", "step", 1)
        assert batch.obs[[0, 2], 2].tolist() == [2, 2]
        batch = rejoin(pool, [3, 3, 3])
        assert batch.obs[1].tolist() == [1, 1, 1, 3]


def test_an_observation_after_the_death_of_an_idle_worker_is_the_row_of_the_fault() -> None:
    with restarting(counting(2)) as pool:
        pool.reset()
        pool.step([1, 1])
        kill(pool, 1)
        pool.request_obs()
        fault = assert_cut_off(pool.recv(order="slot"), 1, [1, 1, 1, 1])
        assert (fault.kind, fault.operation) == ("death", "observe")
        assert pool.step([2, 2]).obs.tolist() == [[0, 1, 2, 2], [1, 1, 0, -1]]


@pytest.mark.parametrize("mode", MODES)
def test_a_death_between_episodes_truncates_no_episode(mode: Any) -> None:
    with restarting(counting(2, length=1), autoreset=mode) as pool:
        pool.reset()
        batch = pool.step([1, 1])
        assert batch.terminations.all()
        kill(pool, 1)
        batch = pool.reset() if mode == "disabled" else pool.step([2, 2])
        if mode == "same_step":  # the next episode had begun
            assert_cut_off(batch, 1, [1, 2, 0, -1])
        else:
            assert batch.obs.tolist() == [[0, 2, 0, -1], [1, 1, 0, -1]]
            assert not batch.truncations.any()


@pytest.mark.parametrize(("backend", "failure"), PLACES)
def test_a_failed_reset_is_repeated_with_its_seed_and_options(backend: Any, failure: str, tmp_path: Path) -> None:
    with restarting(hooked(3, reset=once(tmp_path / "failed", FAILURES[failure])), backend=backend) as pool:
        batch = pool.reset(seed=[5, 6, 7], options={"level": 3})
        assert batch.obs.tolist() == [[0, 1, 0, -1], [1, 1, 0, -1], [2, 1, 0, -1]]
        assert not batch.truncations.any()
        assert pool.get_attr("last_seed") == [5, 6, 7]
        assert pool.get_attr("last_options") == [{"level": 3}] * 3
        pool.step([1, 1, 1])


@pytest.mark.parametrize(("backend", "failure", "mode"), failures(["next_step", "same_step"]))
def test_a_failed_autoreset_is_repeated(backend: Any, failure: str, mode: Any, tmp_path: Path) -> None:
    fails = once(tmp_path / "failed", FAILURES[failure])
    with restarting(hooked(2, length=1, autoreset=fails), backend=backend, autoreset=mode) as pool:
        pool.reset()
        batch = pool.step([1, 1])
        if mode == "next_step":
            assert batch.terminations.all()
            batch = pool.step([1, 1])
            assert not batch.truncations.any()
        else:  # the reset was part of the step
            assert_cut_off(batch, 1, [1, 1, 0, -1])
        assert batch.obs.tolist() == [[0, 2, 0, -1], [1, 1, 0, -1]]
        pool.reset()
        assert pool.step([4, 4]).rewards.tolist() == [4, 4]


@pytest.mark.parametrize("mode", MODES)
def test_several_envs_fail_at_once(mode: Any, tmp_path: Path) -> None:
    fails = once(tmp_path / "death", die, when=lambda env: env.tag == 1 and env.steps == 1)
    raises = once(tmp_path / "raise", FAILURES["exception"], when=lambda env: env.tag == 2 and env.steps == 1)
    both = lambda env, action: fails(env, action) or raises(env, action)  # noqa: E731
    with restarting(hooked(4, which=[1, 2], step=both), autoreset=mode) as pool:
        pool.reset()
        batch = pool.step([1] * 4)
        assert [fault_in(batch, row).kind for row in (1, 2)] == ["death", "exception"]
        assert batch.truncations.tolist() == [False, True, True, False]
        pool.reset()
        assert pool.step([2] * 4).obs[:, 2].tolist() == [1] * 4


@pytest.mark.parametrize("mode", MODES)
def test_the_row_of_a_fault_repeats_observations_of_every_kind(mode: Any, tmp_path: Path) -> None:
    """Observations with no column, with one and with several."""
    gallery: list[Callable[[], Any]] = [
        NestedEnv,
        lambda: SampleEnv(
            spaces.Dict(text=spaces.Text(30), graph=spaces.Sequence(spaces.Discrete(5)), x=spaces.Box(-1, 1, (2,))),
            spaces.Discrete(3),
        ),
        lambda: SampleEnv(spaces.Discrete(9), spaces.Text(12)),
        lambda: SampleEnv(ColourSpace(), ColourSpace()),
    ]
    for make in gallery:
        with restarting([make, make], autoreset=mode) as pool:
            batch = pool.reset(seed=1)
            actions = [make().action_space.sample() for _ in range(2)]
            before = rows(pool, batch.obs)[1]
            kill(pool, 1)
            batch = pool.step(batched(pool, actions))
            assert batch.truncations[1]
            assert isinstance(fault_in(batch, 1), Fault)
            assert_same(rows(pool, batch.obs if mode != "same_step" else batch.final_obs)[1], before)
            pool.reset(seed=2)
            pool.step(batched(pool, actions))


def batched(pool: Pool, actions: list[Any]) -> Any:
    if isinstance(pool.single_action_space, (spaces.Text, ColourSpace)):
        return tuple(actions)
    return concatenate(pool.single_action_space, actions, create_empty_array(pool.single_action_space, len(actions)))


def rows(pool: Pool, obs: Any) -> list[Any]:
    return [copy.deepcopy(row) for row in iterate(batch_space(pool.single_observation_space, pool.num_envs), obs)]


# -- during a restart ------------------------------------------------------------------------------------


class Rebuilt:
    """Envs of which env 1 dies in its third step. Its second build waits at a gate."""

    def __init__(self, tmp_path: Path, num_envs: int = 3) -> None:
        self.gate = Gate(tmp_path)
        gate, built, failed = self.gate, str(tmp_path / "built"), tmp_path / "failed"
        second = lambda env: os.path.exists(built) or open(built, "w").close()  # noqa: E731
        hooks = {
            "build": lambda env: gate.wait() if second(env) else None,
            "step": once(failed, die, when=lambda env: env.steps == 3),
        }
        self.env_fns = hooked(num_envs, **hooks)

    def fail(self, pool: Pool) -> Batch:
        pool.reset()
        for i in (1, 2):
            pool.step([i] * pool.num_envs)
        return pool.step([3] * pool.num_envs)


def test_partial_batches_do_not_wait_for_a_successor(tmp_path: Path) -> None:
    rebuilt = Rebuilt(tmp_path)
    with restarting(rebuilt.env_fns) as pool:
        batch = rebuilt.fail(pool)
        assert batch.truncations.tolist() == [False, True, False]
        pool.send([4, 4, 4])
        batch = pool.recv(min_envs=2)
        assert sorted(batch.env_ids.tolist()) == [0, 2]
        for i in (5, 6, 7):
            pool.send([i, i], env_ids=[0, 2])
            batch = pool.recv(min_envs=2)
            assert sorted(batch.obs.tolist()) == [[0, 1, i, i], [2, 1, i, i]]
        assert len(pool.recv(timeout=0)) == 0
        rebuilt.gate.let_pass()
        batch = pool.recv()
        assert (batch.env_ids.tolist(), batch.obs.tolist()) == ([1], [[1, 1, 0, -1]])


def test_calls_are_answered_by_the_successor(tmp_path: Path) -> None:
    rebuilt = Rebuilt(tmp_path)
    with restarting(rebuilt.env_fns) as pool:
        before = pids_of(pool)
        rebuilt.fail(pool)
        early = pool.call_async("pid")
        big = pool.apply_async(lambda env, data: len(data), (b"x" * 5_000_000,), env_ids=[1])
        assert not early.done
        rebuilt.gate.let_pass()
        after = early.result()
        assert (after[0], after[2]) == (before[0], before[2])
        assert after[1] != before[1]
        assert after == pids_of(pool)
        assert big.result() == [5_000_000]


def test_a_call_in_a_dying_worker_raises_and_the_pool_stays_usable() -> None:
    with restarting(counting(3)) as pool:
        pool.reset()
        pool.step([1, 1, 1])
        call = pool.apply_async(lambda env: die() if env.unwrapped.tag == 1 else env.unwrapped.tag)
        with pytest.raises(WorkerDiedError, match=r"^worker 1 .* died while in call \(env 1, episode 0, step 1"):
            call.result()
        batch = pool.step([2, 2, 2])
        assert assert_cut_off(batch, 1, [1, 1, 1, 1]).operation == "call"
        assert batch.obs[[0, 2], 2].tolist() == [2, 2]
        assert pool.call("pid") == pids_of(pool)


def test_an_exception_in_a_call_does_not_restart_the_env() -> None:
    with restarting(hooked(2, call=FAILURES["exception"])) as pool:
        pool.reset()
        with pytest.raises(EnvError, match="env 1 .* in call: broken"):
            pool.call("poke")
        assert pool.step([1, 1]).obs[:, 2].tolist() == [1, 1]


def test_a_large_action_waits_for_the_successor(tmp_path: Path) -> None:
    """The action is sent through the socket, which the successor begins to read later."""
    with restarting([TextEnv, TextEnv], autoreset="next_step") as pool:
        pool.reset()
        kill(pool, 1)
        text = "x" * 3_000_000
        assert pool.step(("a", "b")).truncations.tolist() == [False, True]
        batch = pool.step((text, text))
        assert [len(obs) for obs in batch.obs] == [3_000_000, 0]
        assert [len(obs) for obs in pool.step((text, text)).obs] == [3_000_000] * 2


@pytest.mark.parametrize("terminate", [False, True])
def test_close_ends_a_successor_that_builds(tmp_path: Path, terminate: bool) -> None:
    rebuilt = Rebuilt(tmp_path)
    pool = restarting(rebuilt.env_fns)
    rebuilt.fail(pool)
    rebuilt.gate.await_arrival()
    while not pool.workers[1].is_alive():
        pass  # the fork server may report the pid a moment later
    watched = Watched(pids_of(pool))
    pool.close(terminate=terminate)
    watched.await_end()


def test_dropping_a_pool_ends_a_successor_that_builds(tmp_path: Path) -> None:
    rebuilt = Rebuilt(tmp_path)
    pool = restarting(rebuilt.env_fns)
    rebuilt.fail(pool)
    rebuilt.gate.await_arrival()
    while not pool.workers[1].is_alive():
        pass
    watched = Watched(pids_of(pool))
    del pool
    watched.await_end()


def test_discard_waits_for_the_successor(tmp_path: Path) -> None:
    fails = once(tmp_path / "failed", die, when=lambda env: env.steps == 1)
    with restarting(hooked(2, step=fails), autoreset="same_step") as pool:
        pool.reset()
        pool.send([1, 1])
        pool.discard()
        assert pool.pending == 0
        assert pool.step([2, 2]).obs.tolist() == [[0, 1, 2, 2], [1, 1, 1, 2]]


@pytest.mark.parametrize("mode", MODES)
def test_max_concurrency_survives_deaths(mode: Any, tmp_path: Path) -> None:
    fails = once(tmp_path / "failed", die, when=lambda env: env.steps == 2)
    with restarting(hooked(4, which=[0], step=fails), autoreset=mode, max_concurrency=1) as pool:
        pool.reset()
        pool.step([1] * 4)
        batch = pool.step([2] * 4)
        assert batch.truncations.tolist() == [True, False, False, False]
        pool.reset()
        assert pool.step([3] * 4).obs[:, 2].tolist() == [1] * 4


def test_held_batches_keep_their_values_during_a_restart(tmp_path: Path) -> None:
    rebuilt = Rebuilt(tmp_path)
    with restarting(rebuilt.env_fns, frames=2) as pool:
        held = [rebuilt.fail(pool)]
        copies = [batch.obs.copy() for batch in held]
        rebuilt.gate.let_pass()
        for i in range(10):
            held.append(pool.step([i] * 3))
            copies.append(held[-1].obs.copy())
        for batch, copy in zip(held, copies, strict=True):
            assert_same(batch.obs, copy)
    for batch, copy in zip(held, copies, strict=True):
        assert_same(batch.obs, copy)


@pytest.mark.parametrize("start_method", ["forkserver", "spawn", "fork"])
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_workers_of_every_start_method_are_replaced(start_method: Any) -> None:
    with restarting(counting(2), start_method=start_method) as pool:
        pool.reset()
        before = pids_of(pool)
        kill(pool, 0)
        pool.step([1, 1])
        assert pool.step([2, 2]).obs.tolist() == [[0, 1, 0, -1], [1, 1, 2, 2]]
        assert pool.workers[0].pid != before[0]
        assert pool.workers[1].pid == before[1]
        assert pool.workers[0].is_alive()


def test_a_fault_has_the_captured_output_of_the_dead_worker(tmp_path: Path) -> None:
    def scream(*_: Any) -> None:
        print("the simulator is on fire")
        die()

    fails = once(tmp_path / "failed", scream)
    with restarting(hooked(2, step=fails), worker_output="capture") as pool:
        pool.reset()
        batch = pool.step([1, 1])
        error = fault_in(batch, 1).error
        assert isinstance(error, WorkerDiedError)
        assert error.output == "the simulator is on fire"
        pool.step([1, 1])
        assert "on fire" in pool.workers[1].output()
