"""Seeds of rebuilt envs: equal in every run, and different from all earlier seeds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from accidents import once
from failing import ACTS, MODES, final_info, formula
from pairs import each, pairwise
from pool_envs import DiceEnv, counting, hooked
from programs import kill
from replays import at_step, broken
from vector_envs import plain

from remuda import Fault, FaultPolicy, Pool

RESTART = FaultPolicy("restart", backoff=0, max_restarts=20)


def restarting(env_fns: Any, faults: FaultPolicy = RESTART, **options: Any) -> Pool:
    return Pool(env_fns, faults=faults, log_advice=False, **options)


def step(pool: Pool, times: int = 1) -> list[Fault]:
    """Steps all envs, and resets ended ones if autoreset is disabled. Returns the faults."""
    faults = []
    for _ in range(times):
        batch = pool.step([1] * pool.num_envs)
        over = batch.env_ids[batch.terminations | batch.truncations].tolist()
        faults += [info["fault"] for i in over if "fault" in (info := final_info(batch, i))]
        if over and pool.autoreset == "disabled":
            pool.reset(env_ids=over)
    return faults


@pairwise(mode=MODES, num_workers=[1, 2], kind=["exception", "death"])
def test_seeds_are_derived_from_the_last_given_seed(kind: str, num_workers: int, mode: Any, tmp_path: Path) -> None:
    fail = once(tmp_path / "failed", ACTS[kind], when=lambda env: env.steps == 2)
    with restarting(hooked(2, step=fail), num_workers=num_workers, autoreset=mode) as pool:
        pool.reset(seed=[3, 4])
        pool.reset(seed=7)
        pool.reset()
        assert pool.get_attr("last_seed") == [None, None]
        step(pool, 4)
        gone = {0, 1} if (kind, num_workers) == ("death", 1) else {1}
        expected = [formula(7 + i, i, 1) if i in gone else None for i in range(2)]
        assert pool.get_attr("last_seed") == expected
        pool.reset()
        assert pool.get_attr("last_seed") == [None, None]  # an unseeded reset continues with the env's random numbers


def test_fault_reports_have_the_last_seed() -> None:
    with restarting(hooked(2, step=at_step(2, broken), length=2)) as pool:
        pool.reset(seed=7)
        seeds = [(fault.where.seed, fault.where.resets_since_seed) for fault in step(pool, 8)]
        assert seeds == [(8, 0), (formula(8, 1, 1), 0), (formula(8, 1, 2), 0)]
        pool.reset(seed=[None, 5])
        pool.reset()
        pool.reset(seed=[4, None])
        seeds = [(fault.where.seed, fault.where.resets_since_seed) for fault in step(pool, 5)]
        assert seeds == [(5, 2), (formula(5, 1, 1), 0)]


@each(num_workers=[1, 2], mode=[*MODES, "background"])
def test_renewed_envs_have_derived_seeds(mode: Any, num_workers: int) -> None:
    policy = FaultPolicy(renew_every=2)
    with restarting([DiceEnv] * 2, policy, num_workers=num_workers, autoreset=mode) as pool:
        pool.reset(seed=7)
        assert pool.get_attr("last_seed") == [7, 8]
        pool.reset()
        assert pool.get_attr("last_seed") == [None, None]
        pool.reset()
        assert pool.get_attr("last_seed") == [formula(7 + i, i, 1) for i in range(2)]


def test_rebuilt_envs_of_an_unseeded_pool_are_unseeded() -> None:
    with restarting(counting(2)) as pool:
        pool.reset()
        pool.reset(seed=[None, 3])
        kill(pool, 0)
        kill(pool, 1)
        (first, second) = step(pool)
        assert (first.where.seed, second.where.seed) == (None, 3)
        step(pool)
        assert pool.get_attr("last_seed") == [None, formula(3, 1, 1)]


@pairwise(kind=["death", "exception"], mode=MODES)
def test_a_spare_repeats_a_failed_first_reset(mode: Any, kind: str, tmp_path: Path) -> None:
    fail = once(tmp_path / "failed", ACTS[kind])
    with restarting(hooked(3, which=[2], length=2, reset=fail), spares=1, autoreset=mode) as pool:
        pool.reset(seed=7, options={"level": 3})
        step(pool, 2 if mode == "same_step" else 3)  # the spare takes the first slot
        assert [pool.get_attr(name)[0] for name in ("tag", "last_seed", "last_options")] == [2, 9, {"level": 3}]


@each(
    mode=MODES,
    seeds__expected=[
        (7, lambda n: formula(7, 0, n)),  # an int, because some vector envs accept no list
        (-7, lambda n: formula(7, 0, n)),
        ([3, None], lambda n: [formula(3, 0, n), None]),
        ([3, 9], lambda n: [formula(3, 0, n), formula(9, 1, n)]),
        (None, lambda _: None),
    ],
)
def test_rebuilt_vector_envs_have_derived_seeds(seeds: Any, expected: Callable[[int], Any], mode: Any) -> None:
    with restarting(plain(1, 2, 3, mode), vector_size=2, autoreset=mode) as pool:
        pool.reset(seed=seeds)
        for n in (1, 2):
            kill(pool, 0)
            step(pool)
            step(pool)
            resets = pool.get_attr("resets")[0]
            assert [reset.get("seed") for reset in resets] == [expected(n)]
