"""`set_reset_options`: each reset without options of its own uses the options that are set for its env."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from accidents import once, raise_value_error
from failing import MODES
from odd_exceptions import NeedsArguments
from pairs import each
from pool_envs import Gate, HookedEnv, begun, levelled
from programs import kill

from remuda import BrokenPoolError, ClosedError, EnvError, FaultPolicy, Pool, WorkerDiedError

RESTART = FaultPolicy("restart", backoff=0)
RENEWAL = FaultPolicy("raise", renew_every=1)


def levels(batch: Any) -> list[int]:
    return [int(level) for level in batch.obs[:, 3]]


def next_levels(pool: Pool) -> list[int]:
    """Returns the levels of the next episodes. The envs' episodes have one step."""
    n = pool.num_envs
    batch = pool.step([1] * n)
    if pool.autoreset == "next_step":
        batch = pool.step([1] * n)
    elif pool.autoreset == "disabled":
        batch = pool.reset()
    return levels(batch)


@pytest.mark.parametrize("mode", MODES)
def test_resets_without_options_use_the_set_options(mode: Any) -> None:
    with Pool(levelled(3, length=1), backend="serial", num_workers=2, autoreset=mode) as pool:
        pool.set_reset_options({"level": 5})
        assert levels(pool.reset()) == [5, 5, 5]
        for _ in range(3):
            assert next_levels(pool) == [5, 5, 5]
        pool.set_reset_options([{"level": 7}, {}], env_ids=[2, 0])
        assert next_levels(pool) == [-1, 5, 7]
        assert pool.get_attr("last_options") == [{}, {"level": 5}, {"level": 7}]
        pool.set_reset_options([None, {"level": 8}, None])
        assert next_levels(pool) == [-1, 8, -1]
        assert pool.get_attr("last_options") == [None, {"level": 8}, None]
        assert levels(pool.reset(seed=3)) == [-1, 8, -1]
        assert pool.get_attr("last_seed") == [3, 4, 5]
        # options of one reset do not last
        assert levels(pool.reset(options={"level": 1})) == [1, 1, 1]
        assert next_levels(pool) == [-1, 8, -1]
        assert levels(pool.reset(options=[{"level": 2}, None, {}])) == [2, 8, -1]
        assert next_levels(pool) == [-1, 8, -1]
        pool.set_reset_options(None, env_ids=[1])
        assert next_levels(pool) == [-1, -1, -1]
        assert pool.get_attr("last_options") == [None, None, None]


def test_options_are_copied_when_set_and_for_each_reset() -> None:
    seen = lambda env: env.unwrapped.seen  # noqa: E731

    def spoil(env: Any) -> None:
        env.seen = {key: np.array(value).tolist() for key, value in env.last_options.items()}
        env.last_options["course"][:] = -1  # the env may write to its copy
        env.last_options.clear()

    with Pool(levelled(2, length=1, reset=spoil, autoreset=spoil), backend="serial", autoreset="same_step") as pool:
        options = {"level": 5, "course": np.arange(3)}
        pool.set_reset_options(options)
        options["level"] = 6
        options["course"][:] = 7
        for act in (pool.reset, lambda: pool.step([1, 1]), lambda: pool.step([1, 1])):
            act()
            assert pool.apply(seen) == [{"level": 5, "course": [0, 1, 2]}] * 2


# -- order -------------------------------------------------------------------------------------------------


@each(backend=["process", "thread"], phase=["step", "reset"])
def test_options_do_not_affect_envs_in_flight(phase: str, backend: Any, tmp_path: Path) -> None:
    """A reset that is part of a running step uses the options that were set before the step was sent."""
    gate = Gate(tmp_path)
    wait = {phase: lambda env, *_: gate.wait() if env.tag == 1 else None}
    with Pool(levelled(3, length=1, **wait), backend=backend, num_workers=1, autoreset="same_step") as pool:
        for level in (9, 1):
            pool.set_reset_options({"level": level})
        pool.send_reset()
        if phase == "step":
            pool.recv()
            pool.send([1, 1, 1])
        gate.await_arrival()
        pool.set_reset_options({"level": 2})
        gate.open()
        assert levels(pool.recv()) == [1, 1, 1]
        pool.send([1, 1, 1])
        if phase == "step":
            gate.let_pass()
        assert levels(pool.recv()) == [2, 2, 2]


def test_an_env_that_reset_in_advance_resets_again_with_new_options() -> None:
    with Pool(levelled(4, length=1), backend="serial", spares=2, seeding="per_episode") as pool:
        seeds = [info["episode_seed"] for info in pool.reset(seed=7).infos]
        pool.apply(id)
        pool.set_reset_options({"level": 5})
        pool.step([1, 1])
        batch = pool.step([1, 1])
        assert batch.obs[:, 0].tolist() == [2, 3]
        assert levels(batch) == [5, 5]
        seeds += [info["episode_seed"] for info in batch.infos]
        assert seeds == [np.random.SeedSequence(7, spawn_key=(i, 0)).generate_state(1)[0] % 2**31 for i in range(4)]
        pool.step([1, 1])
        assert levels(pool.step([1, 1])) == [5, 5]


def test_background_resets_use_the_set_options() -> None:
    with Pool(levelled(2, length=1), backend="serial", autoreset="background") as pool:
        pool.set_reset_options([{"level": 1}, {"level": 2}])
        assert levels(pool.reset()) == [1, 2]
        pool.send([1, 1])
        pool.set_reset_options({"level": 3}, env_ids=[1])  # the reset is not sent yet
        pool.recv()
        pool.set_reset_options({"level": 4}, env_ids=[0])  # the reset was sent before
        assert levels(pool.recv(order="slot")) == [1, 3]
        pool.step([1, 1])
        assert levels(pool.recv(order="slot")) == [4, 3]


def test_options_of_a_pool_with_spares_must_be_the_same_for_all_envs() -> None:
    with Pool(levelled(3), backend="serial", spares=1) as pool:
        for options, env_ids in (([{}, {}], None), ({"level": 1}, [0]), (None, [1])):
            with pytest.raises(ValueError, match="expected one mapping .* for all envs where there are spares"):
                pool.set_reset_options(options, env_ids)
        assert levels(pool.reset()) == [-1, -1]


# -- faults ------------------------------------------------------------------------------------------------


@each(mode=MODES, num_workers=[3, 1])
def test_successors_use_the_options_that_were_set_before_and_after_the_death(num_workers: int, mode: Any) -> None:
    with Pool(levelled(3, length=1), num_workers=num_workers, autoreset=mode, faults=RESTART) as pool:
        pool.set_reset_options([{"level": i} for i in range(3)])
        pool.reset()
        for after in (None, 9):
            kill(pool, num_workers - 1)
            if after is not None:
                pool.set_reset_options({"level": after}, env_ids=[2])
            pool.step([1, 1, 1])
            assert levels(pool.reset()) == [0, 1, after or 2]
            assert next_levels(pool) == [0, 1, after or 2]


def test_options_that_are_set_while_a_successor_builds_reach_it(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    built = tmp_path / "built"

    def build(env: HookedEnv) -> None:
        if env.tag == 1:
            gate.wait() if built.exists() else built.touch()

    with Pool(levelled(2, build=build), faults=RESTART) as pool:
        pool.set_reset_options({"level": 1})
        pool.reset()
        kill(pool, 1)
        assert pool.step([1, 1]).truncations.tolist() == [False, True]
        pool.set_reset_options(None)
        pool.set_reset_options({"level": 2}, env_ids=[1])
        pool.send([1, 1])
        gate.let_pass()
        batch = pool.recv()
        assert levels(batch)[1] == 2
        assert levels(pool.reset()) == [-1, 2]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("policy", "backend", "num_workers"),
    [(RESTART, "serial", 1), (RENEWAL, "process", 1), (RENEWAL, "process", 2)],
)
def test_rebuilt_and_renewed_envs_use_the_set_options(
    policy: FaultPolicy, backend: Any, num_workers: int, mode: Any, tmp_path: Path
) -> None:
    hooks = {"step": once(tmp_path / "failed", raise_value_error, when=lambda env: env.tag == 1)}
    env_fns = levelled(2, length=1, **(hooks if policy is RESTART else {}))
    with Pool(env_fns, backend=backend, num_workers=num_workers, autoreset=mode, faults=policy) as pool:
        pool.set_reset_options({"level": 4})
        pool.reset()
        for level in (5, 6):
            pool.set_reset_options({"level": level}, env_ids=[1])
            assert next_levels(pool) == [4, level]
        if policy is RENEWAL:
            assert pool.get_attr("episodes") == [1, 1]


# -- mistakes ----------------------------------------------------------------------------------------------


def test_the_error_of_options_that_cannot_be_pickled_names_the_env() -> None:
    stuck = {"f": (i for i in range(3))}
    with Pool(levelled(3), backend="serial", num_workers=2) as pool:
        for options, env in ((stuck, 0), ([{}, None, stuck], 2)):
            for pass_on in (pool.set_reset_options, lambda options: pool.reset(seed=3, options=options)):
                with pytest.raises(TypeError, match=rf"^expected .* that can be pickled, got .* for env {env} \("):
                    pass_on(options)
        assert pool.pending == 0 and levels(pool.reset()) == [-1, -1, -1]


def test_options_that_cannot_be_unpickled_are_an_error_of_the_env() -> None:
    with Pool(levelled(2), backend="serial", num_workers=1) as pool:
        pool.set_reset_options([{"level": 1}, {"error": NeedsArguments(1, "no reason")}])
        with pytest.raises(EnvError, match=r"env 1 .* in reset: .*argument"):
            pool.reset()
        pool.discard()
        pool.set_reset_options({"level": 2})
        assert levels(pool.reset()) == [2, 2]


def test_options_of_lost_envs_and_closed_pools_are_refused() -> None:
    pool = begun(levelled(2))
    kill(pool, 1)
    with pytest.raises(WorkerDiedError):
        pool.step([1, 1])
    pool.set_reset_options({"level": 1}, env_ids=[0])
    with pytest.raises(BrokenPoolError, match="env 1 was lost"):
        pool.set_reset_options({"level": 2})
    pool.discard()
    assert levels(pool.reset(env_ids=[0])) == [1]
    pool.close()
    with pytest.raises(ClosedError, match="the pool is closed"):
        pool.set_reset_options({"level": 1})


def test_options_that_arrive_after_a_reset_in_advance_do_not_change_the_seed() -> None:
    """A rebuilt env has the same derived seed, whether or not options arrive after its reset in advance."""

    def after_the_end(*, are_late: bool) -> tuple[list[int], list[int | None]]:
        faults = FaultPolicy("raise", renew_every=1)
        with begun(levelled(2, length=1), backend="serial", faults=faults, resets_ahead=True, seed=3) as pool:
            if not are_late:
                pool.set_reset_options({"level": 5})
            assert pool.step([1, 1]).terminations.all()
            if are_late:
                pool.set_reset_options({"level": 5})
            return levels(pool.step([1, 1])), pool.get_attr("last_seed")

    levels_, seeds = after_the_end(are_late=True)
    assert levels_ == [5, 5]
    assert None not in seeds
    assert (levels_, seeds) == after_the_end(are_late=False)
