"""Rollouts: filled beside the envs, first come first served, with the policy that was published last."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cluster.conftest import TwoNodes
from cluster_envs import Scripted, fail, kill_shard

import remuda
from remuda import EnvError, Pool, ShardDiedError, StateError

NUM_ENVS, STEPS = 4, 8


class Greedy:
    """Acts on what it sees, and says how it has."""

    def __init__(self, shift: int = 0) -> None:
        self.shift = shift

    def act(self, obs: Any) -> Any:
        actions = (obs[:, 1] + self.shift).astype(np.int64) % 5
        return actions, {"value": obs[:, 0] * 2, "pair": np.stack([actions, actions], 1)}


def by_env(rollouts: list[Any]) -> dict[int, list[Any]]:
    """Each env's transitions, one rollout after another."""
    told: dict[int, list[Any]] = {}
    for rollout in rollouts:
        for column, env in enumerate(rollout.env_ids.tolist()):
            told.setdefault(env, []).append(
                [
                    np.asarray(array)[:, column].tolist()
                    for array in (
                        rollout.obs,
                        rollout.actions,
                        rollout.rewards,
                        rollout.terminations,
                        rollout.truncations,
                        rollout.valid,
                        rollout.episode_starts,
                        *rollout.columns.values(),
                        rollout.infos.get("draw", np.zeros(rollout.rewards.shape)),
                        rollout.infos.get("_draw", np.zeros(rollout.rewards.shape, bool)),
                    )
                ]
            )
    return told


def some(pool: Pool, policy: Any, count: int) -> list[Any]:
    """So many rollouts of each shard."""
    taken: dict[int, list[Any]] = {}
    with pool.rollouts(policy, steps=STEPS) as rollouts:
        for rollout in rollouts:
            its = taken.setdefault(rollout.shard, [])
            if len(its) < count:
                its.append(rollout)
            if sum(map(len, taken.values())) == count * pool.backend.shards:
                break
    return [rollout for its in taken.values() for rollout in its]


@pytest.mark.parametrize("autoreset", ["next_step", "same_step"])
def test_rollouts_are_the_same_however_the_envs_are_divided(cluster: TwoNodes, autoreset: Any) -> None:
    told = []
    for shards in (1, 2):
        where = remuda.Ray(shards=shards, backend="serial")
        with Pool([Scripted] * NUM_ENVS, backend=where, seeding="per_episode", autoreset=autoreset) as pool:
            pool.reset(seed=5)
            rollouts = some(pool, Greedy(), 3)
            told.append(by_env(rollouts))
            assert all(rollout.obs.flags.c_contiguous for rollout in rollouts)
            _check_against_steps(rollouts, autoreset)
    assert told[0] == told[1]


def _check_against_steps(rollouts: list[Any], autoreset: Any) -> None:
    """The same steps, taken one by one in this process."""
    with Pool([Scripted] * NUM_ENVS, backend="serial", seeding="per_episode", autoreset=autoreset) as twin:
        batch = twin.reset(seed=5)
        first = {env: (r, i) for r in reversed(rollouts) for i, env in enumerate(r.env_ids.tolist())}
        for t in range(STEPS):
            actions, _ = Greedy().act(batch.obs)
            batch = twin.step(actions)
            for env, (rollout, i) in first.items():
                assert rollout.actions[t, i] == actions[env]
                assert rollout.obs[t + 1, i].tolist() == batch.obs[env].tolist()
                assert rollout.rewards[t, i] == batch.reward[env]
                assert rollout.terminations[t, i] == batch.terminated[env]


def test_what_is_published_acts_from_the_next_rollout_on(cluster: TwoNodes) -> None:
    with Pool([Scripted] * NUM_ENVS, backend=remuda.Ray(shards=2, backend="serial")) as pool:
        seen = []
        with pool.rollouts(Greedy(0), steps=4, in_flight=1) as rollouts:
            for rollout in rollouts:
                shift = rollout.policy_version * 2
                assert (rollout.actions == (rollout.obs[:-1, :, 1] + shift) % 5).all()
                seen.append(rollout.policy_version)
                if len(seen) == 8:
                    break
                pool.publish(Greedy(2 * len(seen)))
        assert max(seen) > 0
        assert pool.reset(seed=0).env_ids.tolist() == [0, 1, 2, 3]


def net() -> Any:
    """A torch module that always acts alike."""
    torch = pytest.importorskip("torch")

    class Net(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.bias = torch.nn.Parameter(torch.zeros(1), requires_grad=False)

        def forward(self, obs: Any) -> Any:
            assert isinstance(obs, torch.Tensor) and not torch.is_grad_enabled()
            return (obs[:, 1] * 0 + self.bias).long(), {"bias": self.bias.expand(len(obs))}

    return Net()


def test_a_torch_module_is_sent_once_and_then_its_state_alone(cluster: TwoNodes) -> None:
    policy = net()
    with Pool([Scripted] * 2, backend=remuda.Ray(backend="serial")) as pool:
        with pool.rollouts(policy, steps=3, in_flight=1) as rollouts:
            first = next(rollouts)
            assert first.policy_version == 0 and (first.actions == 0).all()
            policy.bias += 3
            assert pool.publish(policy) == 1
            while (later := next(rollouts)).policy_version == 0:
                pass
        assert (later.actions == 3).all() and (later.columns["bias"] == 3).all()


def test_the_successor_of_a_shard_that_died_between_rollouts_has_the_module_too(cluster: TwoNodes) -> None:
    policy = net()
    with Pool([Scripted] * 2, backend=remuda.Ray(backend="serial"), faults="restart") as pool:
        pool.reset(seed=0)
        with pool.rollouts(policy, steps=3) as rollouts:
            next(rollouts)
        pool.reset(seed=0)
        kill_shard(pool, 0)
        assert pool.step([0, 0]).truncated.all()
        policy.bias += 2
        assert (next(pool.rollouts(policy, steps=3)).actions == 2).all()


def test_a_shard_that_dies_is_replaced_and_the_others_go_on(cluster: TwoNodes) -> None:
    common: Any = {"faults": "restart", "seeding": "per_episode"}
    with Pool([Scripted] * NUM_ENVS, backend=remuda.Ray(shards=2, backend="serial"), **common) as pool:
        pool.reset(seed=1)
        pids = pool.call("pid")
        with pool.rollouts(Greedy(), steps=STEPS) as rollouts:
            for _ in range(3):
                next(rollouts)
            os.kill(pids[2], signal.SIGKILL)
            others = 0
            while not (rollout := next(rollouts)).lost:
                others += rollout.shard == 0
            assert rollout.shard == 1 and [fault.env_id for fault in rollout.lost] == [2, 3]
            assert rollout.episode_starts[0].all() and others > 0
        assert pool.reset(seed=1).env_ids.tolist() == [0, 1, 2, 3]


def test_a_shard_whose_death_a_call_notices_has_a_successor_that_acts(cluster: TwoNodes) -> None:
    with Pool([Scripted] * NUM_ENVS, backend=remuda.Ray(shards=2, backend="serial"), faults="restart") as pool:
        pool.reset(seed=1)
        pids = pool.call("pid")
        with pool.rollouts(Greedy(), steps=STEPS) as rollouts:
            next(rollouts)
            pool.call("pid")  # by now each shard has filled all that it was asked for: these rollouts come first
            os.kill(pids[2], signal.SIGKILL)
            with pytest.raises(ShardDiedError, match="died while in call"):
                pool.call("pid", env_ids=[2])
            while not (rollout := next(rollouts)).lost:
                pass
            assert rollout.shard == 1 and rollout.episode_starts[0].all()


def test_the_envs_of_a_shard_that_dies_name_the_workers_that_they_were_on(cluster: TwoNodes, tmp_path: Path) -> None:
    class Deadly:
        """Ends the first shard that it acts in."""

        def act(self, obs: Any) -> Any:
            with suppress(FileExistsError):
                (tmp_path / "mark").touch(exist_ok=False)
                os.kill(os.getpid(), signal.SIGKILL)
            return np.zeros(len(obs), np.int64)

    with Pool([Scripted] * NUM_ENVS, backend=remuda.Ray(shards=2), num_workers=None, faults="restart") as pool:
        pool.reset(seed=1)
        lost = next(rollout.lost for rollout in pool.rollouts(Deadly(), steps=STEPS) if rollout.lost)
        assert [pool.workers[fault.worker].env_ids for fault in lost] == [(fault.env_id,) for fault in lost]
        assert len(lost) == 2 and lost[0].error.worker == lost[0].worker


def test_errors_come_from_where_they_arise(cluster: TwoNodes) -> None:
    with Pool([Scripted] * 2, backend=remuda.Ray(backend="serial")) as pool:
        with pytest.raises(ZeroDivisionError):
            next(pool.rollouts(lambda obs: 1 // 0, steps=4))
        with pytest.raises(TypeError, match="expected a policy that can be called"):
            pool.rollouts("policy", steps=4)
        with pytest.raises(ValueError, match="expected in_flight to be an int from 1 up, got 0"):
            pool.rollouts(Greedy(), in_flight=0)
        rollouts = pool.rollouts(Greedy(), steps=4)
        with pytest.raises(StateError, match="no rollouts under way"):
            pool.reset()
        rollouts.close()
        pool.reset()
        pool.apply(fail, env_ids=[1])
        with pytest.raises(EnvError, match=r"env 1 .*raised RuntimeError in step: told to"):
            next(pool.rollouts(Greedy(), steps=4))
