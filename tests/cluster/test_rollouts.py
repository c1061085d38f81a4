"""``pool.rollouts``: shards fill rollouts with the last published policy, and the driver receives them in order of
completion."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cluster.conftest import TwoNodes
from cluster_envs import Scripted, actions, fail, kill_shard, rows_by_env

import remuda
from remuda import EnvError, Pool, ShardDiedError, StateError, WorkerDiedError

NUM_ENVS, STEPS = 4, 8


class Greedy:
    """Derives actions from the observations, and returns further columns."""

    def __init__(self, shift: int = 0) -> None:
        self.shift = shift

    def act(self, obs: Any) -> Any:
        actions = (obs[:, 1] + self.shift).astype(np.int64) % 5
        return actions, {"value": obs[:, 0] * 2, "pair": np.stack([actions, actions], 1)}


def by_env(rollouts: list[Any]) -> dict[int, list[Any]]:
    """Returns the columns of each env, one rollout after another."""
    columns: dict[int, list[Any]] = {}
    for rollout in rollouts:
        for column, env in enumerate(rollout.env_ids.tolist()):
            columns.setdefault(env, []).append(
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
    return columns


def rollouts_of_each_shard(pool: Pool, policy: Any, count: int) -> list[Any]:
    """Returns ``count`` rollouts of each shard."""
    taken: dict[int, list[Any]] = {}
    with pool.rollouts(policy, steps=STEPS) as rollouts:
        for rollout in rollouts:
            of_shard = taken.setdefault(rollout.shard, [])
            if len(of_shard) < count:
                of_shard.append(rollout)
            if sum(map(len, taken.values())) == count * pool.backend.shards:
                break
    return [rollout for of_shard in taken.values() for rollout in of_shard]


@pytest.mark.parametrize("autoreset", ["next_step", "same_step"])
def test_rollouts_are_the_same_for_any_number_of_shards(cluster: TwoNodes, autoreset: Any) -> None:
    runs = []
    for shards in (1, 2):
        where = remuda.Ray(shards=shards, backend="serial")
        with Pool([Scripted] * NUM_ENVS, backend=where, seeding="per_episode", autoreset=autoreset) as pool:
            pool.reset(seed=5)
            rollouts = rollouts_of_each_shard(pool, Greedy(), 3)
            runs.append(by_env(rollouts))
            assert all(rollout.obs.flags.c_contiguous for rollout in rollouts)
            _check_against_steps(rollouts, autoreset)
    assert runs[0] == runs[1]


def _check_against_steps(rollouts: list[Any], autoreset: Any) -> None:
    """Checks the rollouts against the same steps in a serial pool."""
    with Pool([Scripted] * NUM_ENVS, backend="serial", seeding="per_episode", autoreset=autoreset) as twin:
        batch = twin.reset(seed=5)
        first = {env: (r, i) for r in reversed(rollouts) for i, env in enumerate(r.env_ids.tolist())}
        for t in range(STEPS):
            actions, _ = Greedy().act(batch.obs)
            batch = twin.step(actions)
            for env, (rollout, i) in first.items():
                assert rollout.actions[t, i] == actions[env]
                assert rollout.obs[t + 1, i].tolist() == batch.obs[env].tolist()
                assert rollout.rewards[t, i] == batch.rewards[env]
                assert rollout.terminations[t, i] == batch.terminations[env]


def test_a_published_policy_acts_from_the_next_rollout_on(cluster: TwoNodes) -> None:
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
    """Returns a torch module with a constant action."""
    torch = pytest.importorskip("torch")

    class Net(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.bias = torch.nn.Parameter(torch.zeros(1), requires_grad=False)

        def forward(self, obs: Any) -> Any:
            assert isinstance(obs, torch.Tensor) and not torch.is_grad_enabled()
            return (obs[:, 1] * 0 + self.bias).long(), {"bias": self.bias.expand(len(obs))}

    return Net()


def test_a_torch_module_is_sent_once_and_later_only_its_state(cluster: TwoNodes) -> None:
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


def test_a_successor_between_rollouts_has_the_module(cluster: TwoNodes) -> None:
    policy = net()
    with Pool([Scripted] * 2, backend=remuda.Ray(backend="serial"), faults="restart") as pool:
        pool.reset(seed=0)
        with pool.rollouts(policy, steps=3) as rollouts:
            next(rollouts)
        pool.reset(seed=0)
        kill_shard(pool, 0)
        assert pool.step([0, 0]).truncations.all()
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


def test_after_a_death_detected_by_a_call_the_successor_fills_rollouts(cluster: TwoNodes) -> None:
    with Pool([Scripted] * NUM_ENVS, backend=remuda.Ray(shards=2, backend="serial"), faults="restart") as pool:
        pool.reset(seed=1)
        pids = pool.call("pid")
        with pool.rollouts(Greedy(), steps=STEPS) as rollouts:
            next(rollouts)
            pool.call("pid")  # by now each shard has filled its requested rollouts, which are received first
            os.kill(pids[2], signal.SIGKILL)
            with pytest.raises(ShardDiedError, match="died while in call"):
                pool.call("pid", env_ids=[2])
            while not (rollout := next(rollouts)).lost:
                pass
            assert rollout.shard == 1 and rollout.episode_starts[0].all()


def zeros(obs: Any) -> Any:
    return np.zeros(len(obs), np.int64)


def test_leaving_the_loop_ends_the_rollouts(cluster: TwoNodes) -> None:
    with Pool([Scripted] * NUM_ENVS, backend=remuda.Ray(shards=2, backend="serial")) as pool:
        for _ in pool.rollouts(zeros, steps=STEPS):
            break
        with pytest.raises(StateError, match="call reset first"):
            pool.step(zeros(range(NUM_ENVS)))
        assert len(pool.reset(seed=1)) == NUM_ENVS
        kept = pool.rollouts(zeros, steps=STEPS)
        next(kept)
        with pytest.raises(StateError, match=r"call their close\(\) first"):
            pool.reset()
        kept.close()
        assert len(pool.reset(seed=1)) == NUM_ENVS


def test_the_faults_of_a_dead_shard_name_the_workers(cluster: TwoNodes, tmp_path: Path) -> None:
    class Deadly:
        """Kills the first shard that calls it."""

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


@pytest.mark.parametrize(("shards", "in_flight"), [(3, 1), (4, 2)])
def test_a_slow_learner_receives_equally_many_rollouts_from_each_shard(
    cluster: TwoNodes, shards: int, in_flight: int
) -> None:
    with Pool([Scripted] * shards, backend=remuda.Ray(shards=shards, backend="serial")) as pool:
        count, ages = dict.fromkeys(range(shards), 0), []
        with pool.rollouts(Greedy(), steps=2, in_flight=in_flight) as rollouts:
            for published in range(10 * shards):
                rollout = next(rollouts)
                count[rollout.shard] += 1
                ages.append(published - rollout.policy_version)
                pool.call("pid")  # when this returns, each shard has filled its requested rollouts
                assert pool.publish(Greedy()) == published + 1
        assert max(count.values()) <= 1.2 * 10
        assert max(ages) <= shards * in_flight


class Versatile:
    """A policy with attributes of several kinds."""

    def __init__(self) -> None:
        torch = pytest.importorskip("torch")
        self.shift, self.table = 1, np.zeros(3, np.int64)
        self.net = torch.nn.Linear(1, 1)
        self.net.register_buffer("step", torch.zeros(1), persistent=False)
        self.half = torch.zeros(2, dtype=torch.bfloat16)

    def act(self, obs: Any) -> Any:
        self.table += 1  # a policy may modify its arrays
        attributes = [self.shift, self.table[0], self.net.step.item(), self.half[1].item(), self.net.training]
        return np.zeros(len(obs), np.int64), {"attributes": np.tile(np.array(attributes, float), (len(obs), 1))}


def test_a_published_policy_is_sent_with_all_its_attributes(cluster: TwoNodes) -> None:
    policy = Versatile()
    with (
        Pool([Scripted] * 2, backend=remuda.Ray(backend="serial")) as pool,
        pool.rollouts(policy, steps=2, in_flight=1) as rollouts,
    ):
        assert next(rollouts).columns["attributes"][:, 0].tolist() == [[1, 1, 0, 0, 1], [1, 2, 0, 0, 1]]
        policy.shift, policy.table[0], policy.half[1] = 5, 40, 0.5
        policy.net.step += 3
        policy.net.eval()
        pool.publish(policy)
        assert next(rollouts).columns["attributes"][0, 0].tolist() == [5, 41, 3, 0.5, 0]


def test_bfloat16_columns_arrive_as_float32(cluster: TwoNodes) -> None:
    torch = pytest.importorskip("torch")

    class Half(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.bias = torch.nn.Parameter(torch.full((1,), 1.5, dtype=torch.bfloat16))

        def forward(self, obs: Any) -> Any:
            return torch.zeros(len(obs), dtype=torch.long), {"bias": self.bias.expand(len(obs))}

    with Pool([Scripted] * 2, backend=remuda.Ray(backend="serial")) as pool:
        bias = next(pool.rollouts(Half(), steps=2)).columns["bias"]
    assert bias.dtype == np.float32 and (bias == 1.5).all()


class Counting:
    """A policy that keeps the number of steps in the episode of each env as its state."""

    def initial_state(self, k: int) -> Any:
        return {"steps": np.zeros(k, np.int64)}

    def act(self, obs: Any, context: remuda.PolicyContext) -> Any:
        steps = context.state["steps"]
        context.state = {"steps": steps + 1}
        columns = {
            "env": context.env_ids,
            "steps": steps,
            "draw": context.rng.random(len(obs)),
            "begins": context.episode_starts,
        }
        return np.zeros(len(obs), np.int64), columns


def test_a_policy_keeps_a_state_for_each_env_and_draws_from_a_stream_for_each_shard(cluster: TwoNodes) -> None:
    runs = []
    for _ in range(2):
        with Pool([Scripted] * NUM_ENVS, backend=remuda.Ray(shards=2, backend="serial")) as pool:
            pool.reset(seed=0)
            with pool.rollouts(Counting(), steps=STEPS, in_flight=1, seed=7) as rollouts:
                taken = []
                for _ in range(6):
                    taken.append(next(rollouts))
                    pool.publish(Counting())
        for rollout in taken:
            columns = rollout.columns
            assert (columns["env"] == rollout.env_ids).all()
            assert (columns["begins"] == rollout.episode_starts[:-1]).all()
            assert (columns["steps"] == rollout.obs[:-1, :, 1]).all()
        draws = {shard: [r.columns["draw"].ravel() for r in taken if r.shard == shard] for shard in (0, 1)}
        assert len(np.unique(np.concatenate(draws[0] + draws[1]))) == 6 * STEPS * 2
        runs.append(draws)
    for shard in (0, 1):  # how many of the six rollouts come from each shard varies
        for one, other in zip(runs[0][shard], runs[1][shard], strict=False):
            assert one.tolist() == other.tolist()


def test_random_numbers_of_torch_differ_between_shards(cluster: TwoNodes) -> None:
    torch = pytest.importorskip("torch")

    class Noisy(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, obs: Any) -> Any:
            return torch.zeros(len(obs), dtype=torch.long), {"noise": torch.rand(len(obs))}

    with (
        Pool([Scripted] * 2, backend=remuda.Ray(shards=2, backend="serial")) as pool,
        pool.rollouts(Noisy(), steps=4) as rollouts,
    ):
        noise = dict[int, Any]()
        while len(noise) < 2:
            rollout = next(rollouts)
            noise.setdefault(rollout.shard, rollout.columns["noise"])
    assert (noise[0] != noise[1]).all()


class Waiting:
    """A policy that waits for a file in its first step, and creates one after its last step."""

    def __init__(self, folder: Path, steps: int) -> None:
        self._folder, self._left = folder, steps

    def act(self, obs: Any) -> Any:
        (self._folder / "began").touch()
        while not (self._folder / "go").exists():
            pass
        self._left -= 1
        if not self._left:
            (self._folder / "done").touch()
        return np.zeros(len(obs), np.int64)


def test_closed_rollouts_end_at_their_next_step(cluster: TwoNodes, tmp_path: Path) -> None:
    steps = 100_000
    with Pool([Scripted] * 2, backend=remuda.Ray(backend="serial")) as pool:
        rollouts = pool.rollouts(Waiting(tmp_path, steps), steps=steps, in_flight=3)
        while not (tmp_path / "began").exists():
            pass
        rollouts.close()
        pool.send_reset(seed=0)
        (tmp_path / "go").touch()
        pool.recv()
        assert not (tmp_path / "done").exists()
        assert next(pool.rollouts(Greedy(), steps=2)).steps == 2


def test_without_restarts_the_death_of_a_shard_ends_rollouts(cluster: TwoNodes) -> None:
    with Pool([Scripted] * NUM_ENVS, backend=remuda.Ray(shards=2, backend="serial")) as pool:
        pool.reset(seed=1)
        pids = pool.call("pid")
        rollouts = pool.rollouts(Greedy(), steps=STEPS)
        next(rollouts)
        os.kill(pids[2], signal.SIGKILL)
        with pytest.raises(ShardDiedError, match=r"shard 1 \(envs 2, 3, on node"):
            while True:
                next(rollouts)
        assert pool.reset(env_ids=[0, 1]).env_ids.tolist() == [0, 1]


def test_without_restarts_the_death_of_a_worker_ends_rollouts(cluster: TwoNodes) -> None:
    with Pool([Scripted] * NUM_ENVS, backend=remuda.Ray(shards=2), num_workers=None) as pool:
        pool.reset(seed=1)
        rollouts = pool.rollouts(Greedy(), steps=STEPS)
        next(rollouts)
        (pid,) = pool.call("pid", env_ids=[3])
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(WorkerDiedError) as raised:
            while True:
                next(rollouts)
        assert raised.value.env_ids == (3,)


def test_many_shards_are_fair_and_equal_to_one_machine(cluster: TwoNodes) -> None:
    cluster.add(resources={"seats": 8}, num_cpus=8)
    try:
        where = remuda.Ray(shards=8, backend="serial", resources={"seats": 1})
        runs = []
        for backend in ("serial", where):
            with Pool([Scripted] * 16, backend=backend, seeding="per_episode", start_timeout=300) as pool:
                batches = [rows_by_env(pool.reset(seed=3))]
                for step in range(8):
                    batches.append(rows_by_env(pool.step(actions(step, range(16)))))
                    some_ids = [(7 * i + step) % 16 for i in range(10)]
                    batches.append(rows_by_env(pool.step(actions(step, some_ids), env_ids=some_ids)))
                runs.append(batches)
                if backend != "serial":
                    check_shares(pool, 8)
        assert runs[0] == runs[1]
    finally:
        cluster.remove_last()


def check_shares(pool: Pool, shards: int) -> None:
    """Checks that a slow learner receives about as many rollouts from each shard."""
    count = dict.fromkeys(range(shards), 0)
    with pool.rollouts(Greedy(), steps=2) as rollouts:
        for _ in range(10 * shards):
            count[next(rollouts).shard] += 1
            pool.call("pid")  # a shard answers after it has filled its requested rollouts
    assert max(count.values()) <= 1.2 * 10


def test_metrics_count_rollouts_and_restarts_by_shard(cluster: TwoNodes, monkeypatch: pytest.MonkeyPatch) -> None:
    values: dict[tuple[str, str], float] = {}

    class Recorded:
        """Records a metric in a dict. Ray exports metrics only with further packages."""

        def __init__(self, name: str, description: str, tag_keys: Any) -> None:
            assert description and tag_keys == ("pool", "shard")
            self.name = name

        def inc(self, tags: dict[str, str]) -> None:
            key = self.name, tags["shard"]
            values[key] = values.get(key, 0) + 1

        def set(self, value: float, tags: dict[str, str]) -> None:
            values[self.name, tags["shard"]] = value

    monkeypatch.setattr("remuda._cluster.ray.metrics.Counter", Recorded)
    monkeypatch.setattr("remuda._cluster.ray.metrics.Gauge", Recorded)
    with Pool([Scripted] * 2, backend=remuda.Ray(backend="serial"), faults="restart") as pool:
        pool.reset(seed=0)
        with pool.rollouts(Greedy(), steps=2, in_flight=2) as rollouts:
            for _ in range(4):
                next(rollouts)
                pool.publish(Greedy())
        pool.reset(seed=0)
        kill_shard(pool, 0)
        assert pool.step([0, 0]).truncations.all()
        pool.step([0, 0])
    assert values == {
        ("remuda_rollouts", "0"): 4,
        ("remuda_policy_age", "0"): 1,
        ("remuda_shard_restarts", "0"): 1,
    }


def test_errors_in_policies_and_envs_are_raised_by_the_rollouts(cluster: TwoNodes) -> None:
    with Pool([Scripted] * 2, backend=remuda.Ray(backend="serial")) as pool:
        with pytest.raises(ZeroDivisionError):
            next(pool.rollouts(lambda obs: 1 // 0, steps=4))
        with pytest.raises(TypeError, match="expected policy to be a function of observations"):
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
