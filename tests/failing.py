"""Envs that fail on command, and helpers that check the faults in batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import accidents
import numpy as np
import pytest
from pool_envs import assert_same

from remuda import Batch, Failure, Fault, FaultPolicy, Pool, StateError

MODES = ["next_step", "same_step", "disabled"]

ACTS: dict[str, Callable[..., Any]] = {
    "death": accidents.kill_myself,
    "exception": accidents.raise_value_error,
    "hang": accidents.hold_the_gil,
}
"""One act for each kind of fault. A hang ends by a deadline of `policy_against`."""


LIMIT = 1.0  # seconds until a hanging env is killed; working envs stay far below it, even on a busy machine


def policy_against(kind: str, policy: Any) -> FaultPolicy:
    """Returns a policy without backoff. The limits leave time for a face's constructor on a busy machine."""
    names = ("step_timeout", "reset_timeout", "call_timeout") if kind == "hang" else ()
    limits: dict[str, Any] = dict.fromkeys(names, 4 * LIMIT)
    return FaultPolicy(policy, backoff=0, **limits)


def limit_builds_of_successors(pool: Pool) -> None:
    """Limits the builds of successors to a short time. The first builds are already finished."""
    pool._exchange.supervisor.workers.successors.start_timeout = LIMIT


def failure(env_id: int | None = 1, exception: Any = None) -> Failure:
    """Returns the report of a worker about an env that raised."""
    return Failure(env_id, 0, "step", exception, "ValueError", "wrong", "Traceback ...\nValueError: wrong")


def final_info(batch: Batch, row: int) -> dict[str, Any]:
    """Returns the info of the last step of an episode."""
    info: dict[str, Any] = batch.infos[row]
    return info if batch.final_obs is None else info["final_info"]


def fault_in(batch: Batch, row: int) -> Fault:
    fault = final_info(batch, row)["fault"]
    assert isinstance(fault, Fault)
    return fault


def assert_cut_off(batch: Batch, row: int, last: Any) -> Fault:
    """Asserts that a fault truncated the row's episode, with its last observation and no reward. Returns the fault."""
    assert (batch.rewards[row], batch.terminations[row], batch.truncations[row]) == (0, False, True)
    terminal = batch.final_obs[row] if batch.final_obs is not None else batch.obs[row]
    assert_same(np.asarray(terminal), np.asarray(last))
    return fault_in(batch, row)


def ask(pool: Pool, phase: str) -> Any:
    """Makes the three envs of a pool step, reset, or answer a call."""
    return {"step": lambda: pool.step([1, 1, 1]), "reset": pool.reset, "call": lambda: pool.call("poke")}[phase]()


def rejoin(pool: Pool, actions: list[int]) -> Batch:
    """Steps once. Before that it resets env 1 if the autoreset mode does not."""
    if pool.autoreset == "disabled":
        with pytest.raises(StateError, match="env 1; call reset first"):
            pool.step(actions)
        pool.reset(env_ids=[1])
    elif pool.autoreset == "next_step":
        batch = pool.step(actions)
        assert (batch.rewards[1], batch.truncations[1]) == (0, False)
    return pool.step(actions)


def assert_goes_on_without(pool: Pool, failed: int) -> None:
    """Asserts that the other envs' results arrive, that the failed env must be reset, and that then all envs step."""
    others = [i for i in range(pool.num_envs) if i != failed]
    batch = pool.recv()
    assert sorted(batch.env_ids.tolist()) == others
    assert pool.pending == 0
    with pytest.raises(StateError, match=f"expected envs that have been reset, got env {failed}; call reset first"):
        pool.send([0] * pool.num_envs)
    pool.send([5] * len(others), env_ids=others)
    assert pool.recv().rewards.tolist() == [5.0] * len(others)
    assert pool.reset(env_ids=[failed]).env_ids.tolist() == [failed]
    pool.request_obs()
    assert pool.recv().env_ids.tolist() == list(range(pool.num_envs))


def formula(seed: int, env_id: int, n: int) -> int:
    """Returns the seed of an env's n-th episode, or of its n-th rebuild, by the formula in docs/pool.md."""
    (state,) = np.random.SeedSequence(seed, spawn_key=(env_id, n)).generate_state(1)
    return int(state) % 2**31
