"""Background autoreset: at the end of an episode, an env is returned at once, resets by itself, and returns its first
observation later.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from accidents import raise_value_error
from pool_envs import EnvFn, Gate, HookedEnv, begun, counting, hooked
from programs import kill

from remuda import Batch, Pool, StateError, WorkerDiedError

LENGTHS = (3, 1, 5, 2, 4)  # steps per episode of each env


def uneven(num_envs: int, **hooks: Callable[..., Any]) -> list[EnvFn]:
    return [
        (lambda tag=i: HookedEnv(tag, LENGTHS[tag % len(LENGTHS)], **hooks))  # type: ignore[misc]
        for i in range(num_envs)
    ]


def waiting_for(gate: Gate, tag: int = 0, length: int = 2) -> list[EnvFn]:
    """Two envs. The autoreset of env `tag` waits at a gate."""
    return hooked(2, (tag,), length, autoreset=lambda _: gate.wait())


def go_on(pool: Pool, batch: Batch) -> None:
    """Steps the envs of a batch that have not ended their episode."""
    if len(going := batch.env_ids[~(batch.terminations | batch.truncations)]):
        pool.send(np.arange(len(going)), going)


def trajectories(pool: Pool, rows: int) -> dict[int, list[tuple[Any, ...]]]:
    """Returns the first `rows` rows of each env. An env's action depends only on its id and row number."""
    rows_of_envs: dict[int, list[tuple[Any, ...]]] = {i: [] for i in range(pool.num_envs)}
    pool.send_reset(seed=3)
    while min(map(len, rows_of_envs.values())) < rows:
        batch = pool.recv(min_envs=1)
        going = []
        for row, env_id in enumerate(batch.env_ids.tolist()):
            rows_of_envs[env_id].append(
                (batch.obs[row].tolist(), batch.rewards[row], batch.terminations[row], batch.infos[row])
            )
            if not batch.terminations[row]:
                going.append(env_id)
        if going:
            pool.send([len(rows_of_envs[env_id]) % 100 for env_id in going], going)
    return {env_id: rows_of[:rows] for env_id, rows_of in rows_of_envs.items()}


@pytest.mark.parametrize("num_workers", [1, 2, 5])
def test_each_env_returns_the_rows_and_infos_that_it_returns_alone(num_workers: int) -> None:
    def reset(env: HookedEnv) -> Any:
        return env.observe(), {"began": env.episodes}

    def step(env: HookedEnv, action: int) -> Any:
        return env.observe(), float(action), env.steps >= env.length, False, {"step": env.steps}

    envs = uneven(5, reset=reset, autoreset=reset, step=step)
    with Pool(envs, autoreset="background", num_workers=num_workers) as pool:
        rows_of_envs = trajectories(pool, rows=12)
    for env_id, rows in rows_of_envs.items():
        length = LENGTHS[env_id]
        for at, (obs, reward, terminated, info) in enumerate(rows):
            episode, step = divmod(at, length + 1)
            action = -1 if step == 0 else at % 100
            assert obs == [env_id, episode + 1, step, action]
            expected_info = {"step": step} if step else {"began": episode + 1}
            assert (reward, terminated, info) == (max(action, 0), step == length, expected_info)


def test_other_envs_step_while_one_env_resets(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    with begun(waiting_for(gate), autoreset="background") as pool:
        for _ in range(2):
            batch = pool.step([7, 8])
        assert batch.terminations.all()
        assert pool.pending == 2  # both envs reset by themselves
        gate.await_arrival()
        for expected in ([1, 2, 0, -1], [1, 2, 1, 5], [1, 2, 2, 5], [1, 3, 0, -1]):
            batch = pool.recv(min_envs=1)
            assert batch.obs.tolist() == [expected]
            if not batch.terminations[0]:
                pool.send([5], [1])
        gate.open()
        batch = pool.recv(order="slot")
        assert batch.obs[:, :3].tolist() == [[0, 2, 0], [1, 3, 1]]
        assert batch.rewards.tolist() == [0.0, 5.0]
        assert not batch.terminations.any()


def test_a_reset_begins_before_the_end_is_received_and_sends_to_its_env_are_refused(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    with begun(waiting_for(gate, length=1), autoreset="background") as pool:
        pool.send([1, 1])
        gate.await_arrival()  # the reset has begun before any further call of the pool
        assert pool.recv().terminations.all()
        for send in (lambda: pool.send([1], [0]), lambda: pool.send_reset(env_ids=[0]), lambda: pool.send([1, 1])):
            with pytest.raises(StateError, match="env 0 is in flight"):
                send()
        gate.open()
        assert pool.recv().obs[:, 1].tolist() == [2, 2]


def test_a_requested_reset_resets_once_more() -> None:
    with begun(counting(2, length=1), autoreset="background", backend="serial") as pool:
        assert pool.step([1, 1]).terminations.all()
        pool.recv()
        assert pool.reset(seed=4, options={"a": 1}).obs[:, 1].tolist() == [3, 3]
        assert pool.get_attr("last_seed") == [4, 5]
        assert pool.get_attr("last_options") == [{"a": 1}] * 2


def test_discard_leaves_every_env_in_an_episode() -> None:
    with begun(uneven(5), autoreset="background", backend="serial", num_workers=2) as pool:
        pool.send([1] * 5)
        pool.discard()
        assert pool.pending == 0
        assert pool.step([2] * 5).obs[:, 1].tolist() == [1, 2, 1, 1, 1]


# -- faults ------------------------------------------------------------------------------------------------


def test_recv_raises_a_death_that_precedes_the_background_reset(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    with begun(waiting_for(gate, length=1), autoreset="background") as pool:
        pool.send([1, 1])
        gate.await_arrival()
        kill(pool, 0)
        pool.call("pid", env_ids=[1])  # the pool detects the death, although no call waits for env 0
        batch = pool.recv(max_envs=2)
        with pytest.raises(WorkerDiedError) as raised:
            while True:
                go_on(pool, batch)
                batch = pool.recv(min_envs=2)
        assert raised.value.env_ids == (0,)


def test_an_episode_that_a_fault_cut_off_is_followed_by_a_reset() -> None:
    def raise_at_two(env: HookedEnv, action: int) -> None:
        if env.total_steps == 2:
            raise_value_error()

    with begun(hooked(2, (0,), step=raise_at_two), autoreset="background", backend="serial", faults="restart") as pool:
        pool.step([1, 1])
        batch = pool.step([2, 2])
        assert batch.truncations.tolist() == [True, False]
        assert batch.infos[0]["fault"].env_id == 0
        pool.send([3], [1])
        batch = pool.recv(order="slot")
        assert batch.obs.tolist() == [[0, 1, 0, -1], [1, 1, 3, 3]]
