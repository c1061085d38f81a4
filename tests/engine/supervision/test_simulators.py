"""Simulators that fail: a slot has the rows of a serial pool in which the env raises in the same step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import simulator_envs
from accidents import kill_myself, once, raise_value_error
from lives import Row
from pairs import covering, each
from pool_envs import EnvFn

from remuda import FaultPolicy, Pool

MODES = ("next_step", "same_step", "disabled", "background")
FAULTS = {"process": [kill_myself, raise_value_error], "thread": [raise_value_error], "serial": []}
CASES = covering(
    [(name, backend, act) for name, backend in simulator_envs.PLACES for act in FAULTS[backend]],
    lambda case: case[:2],
    lambda case: case[2],
)
ROWS = 3 * simulator_envs.STEPS


def play(pool: Pool) -> list[list[Row]]:
    """Returns the first rows of each env, in any autoreset mode. An env's actions depend on its own rows alone."""
    actions = simulator_envs.draw_actions(pool.single_action_space, ROWS, pool.num_envs)
    rows_of_envs: list[list[Row]] = [[] for _ in range(pool.num_envs)]
    pool.send_reset(seed=3)
    while pool.pending:
        batch = pool.recv(min_envs=1)
        for i, env_id in enumerate(batch.env_ids.tolist()):
            rows_of_envs[env_id].append(row := Row.of(batch, i))
            if len(rows_of_envs[env_id]) >= ROWS:
                continue
            if not row.ends or pool.autoreset == "next_step":
                pool.send(actions[None, len(rows_of_envs[env_id]), env_id], [env_id])
            elif pool.autoreset == "disabled":
                pool.send_reset(env_ids=[env_id])
    return [rows[:ROWS] for rows in rows_of_envs]


def rows_of(env_fns: Sequence[EnvFn], hook: Callable[..., Any], **options: Any) -> Any:
    faults = FaultPolicy("restart", backoff=0)
    with Pool(simulator_envs.stumbling(env_fns, hook), faults=faults, **options) as pool:
        return play(pool)


@pytest.mark.watchdog(900)  # each case starts processes of a simulator
@each(simulator__backend__act=CASES, mode=MODES)
def test_a_slot_has_the_rows_of_a_serial_pool_after_a_fault(
    simulator: str, backend: Any, act: Any, mode: Any, tmp_path: Path
) -> None:
    env_fns = simulator_envs.env_fns(simulator, simulator_envs.num_envs_in_a_process(simulator))
    all_rows = rows_of(env_fns, once(tmp_path / "tested", act, skip=16), backend=backend, autoreset=mode)
    error = once(tmp_path / "serial", raise_value_error, skip=16)
    assert all_rows == rows_of(env_fns, error, backend="serial", autoreset=mode)
    assert [[row.has_fault for row in rows].count(True) for rows in all_rows] == [0] * (len(env_fns) - 1) + [1]
