"""``pool.rollouts``: shards fill rollouts with the last published policy, and the driver receives them in order of
completion."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cluster_envs import Scripted, fail, kill_shard
from pool_envs import Gate

import remuda
from remuda import EnvError, Pool, ShardDiedError, StateError, WorkerDiedError

pytestmark = pytest.mark.usefixtures("kept_actors")

NUM_ENVS, STEPS = 4, 8
EXTRAS: Any = {
    "draw": (lambda env: env.unwrapped.draw, ((), np.float64)),
    "drawn": remuda.StepColumn(lambda env: env.unwrapped.draw, (), np.float64),
}


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
    names = ("obs", "actions", "rewards", "terminations", "truncations", "valid", "episode_starts")
    for rollout in rollouts:
        arrays = [getattr(rollout, name) for name in names] + list(rollout.columns.values())
        arrays += [rollout.infos.get(name, np.zeros(rollout.rewards.shape)) for name in ("draw", "_draw")]
        for column, env in enumerate(rollout.env_ids.tolist()):
            columns.setdefault(env, []).append([array[:, column].tolist() for array in arrays])
    return columns


def rollouts_of_each_shard(pool: Pool, policy: Any, count: int) -> list[Any]:
    """Returns ``count`` rollouts of each shard."""
    taken: dict[int, list[Any]] = {shard: [] for shard in range(pool.backend.shards)}
    with pool.rollouts(policy, steps=STEPS) as rollouts:
        while min(map(len, taken.values())) < count:
            rollout = next(rollouts)
            taken[rollout.shard].append(rollout)
    return [rollout for of_shard in taken.values() for rollout in of_shard[:count]]


@pytest.mark.parametrize("autoreset", ["next_step", "same_step"])
def test_rollouts_are_the_same_for_any_number_of_shards(autoreset: Any) -> None:
    runs = []
    for shards in (1, 2):
        where = remuda.Ray(shards=shards, backend="serial")
        options: Any = {"seeding": "per_episode", "autoreset": autoreset, "extras": EXTRAS}
        with Pool([Scripted] * NUM_ENVS, backend=where, **options) as pool:
            pool.reset(seed=5)
            rollouts = rollouts_of_each_shard(pool, Greedy(), 3)
            runs.append(by_env(rollouts))
            assert all(rollout.obs.flags.c_contiguous for rollout in rollouts)
            _check_against_steps(rollouts, options)
    assert runs[0] == runs[1]


def _check_against_steps(rollouts: list[Any], options: Any) -> None:
    """Checks the rollouts against the same steps in a serial pool."""
    with Pool([Scripted] * NUM_ENVS, backend="serial", **options) as twin:
        batch = twin.reset(seed=5)
        first = {env: (r, i) for r in reversed(rollouts) for i, env in enumerate(r.env_ids.tolist())}
        for t in range(STEPS):
            actions, _ = Greedy().act(batch.obs)
            batch = twin.step(actions)
            for env, (rollout, i) in first.items():
                assert rollout.actions[t, i] == actions[env]
                assert rollout.obs[t + 1, i].tolist() == batch.obs[env].tolist()
                assert rollout.extras["draw"][t + 1, i] == batch.extras["draw"][env]
                assert rollout.extras["drawn"][t, i] == batch.extras["drawn"][env]
                row = batch.rewards[env], batch.terminations[env]
                assert (rollout.rewards[t, i], rollout.terminations[t, i]) == row


@pytest.mark.parametrize("in_flight", [1, 2])
def test_an_interrupt_while_a_rollout_is_read_loses_nothing(in_flight: int, monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    get, interrupts = ray.get, iter([False, True, True] * 4)

    def interrupted(*arguments: Any, **options: Any) -> Any:
        got = get(*arguments, **options)
        if next(interrupts, False):
            raise KeyboardInterrupt
        return got

    with Pool([Scripted] * NUM_ENVS, backend=remuda.Ray(shards=1, backend="serial")) as pool:
        pool.reset(seed=5)
        with pool.rollouts(Greedy(), steps=STEPS, in_flight=in_flight) as rollouts:
            monkeypatch.setattr(ray, "get", interrupted)
            last, taken, count = None, 0, 0
            while taken < 8:
                try:
                    rollout = next(rollouts)
                except KeyboardInterrupt:
                    count += 1
                    continue
                assert last is None or rollout.obs[0].tolist() == last
                last, taken = rollout.obs[-1].tolist(), taken + 1
        assert count == 8


def test_a_shard_whose_death_a_call_has_detected_is_replaced() -> None:
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
        assert [(fault.env_id, fault.worker) for fault in rollout.lost] == [(2, 1), (3, 1)]
        assert rollout.lost[0].error.worker == pool.workers[1].index and pool.workers[1].env_ids == (2, 3)
        assert pool.reset(seed=1).env_ids.tolist() == [0, 1, 2, 3]


def test_leaving_the_loop_ends_the_rollouts() -> None:
    with Pool([Scripted] * NUM_ENVS, backend=remuda.Ray(shards=2, backend="serial")) as pool:
        for _ in pool.rollouts(Greedy(), steps=STEPS):
            break
        with pytest.raises(StateError, match="call reset first"):
            pool.step([0] * NUM_ENVS)
        assert len(pool.reset(seed=1)) == NUM_ENVS


def test_a_slow_learner_receives_equally_many_rollouts_of_recent_policies_from_each_shard() -> None:
    shards, in_flight = 4, 2
    with Pool([Scripted] * shards, backend=remuda.Ray(shards=shards, backend="serial")) as pool:
        count, ages = dict.fromkeys(range(shards), 0), []
        with pool.rollouts(Greedy(), steps=2, in_flight=in_flight) as rollouts:
            for published in range(10 * shards):
                rollout = next(rollouts)
                count[rollout.shard] += 1
                assert (rollout.actions == (rollout.obs[:-1, :, 1] + rollout.policy_version) % 5).all()
                ages.append(published - rollout.policy_version)
                pool.call("pid")  # when this returns, each shard has filled its requested rollouts
                assert pool.publish(Greedy(published + 1)) == published + 1
        assert max(count.values()) <= 1.2 * 10
        assert max(ages) <= shards * in_flight


def versatile() -> Any:
    """Returns a torch module with attributes of several kinds."""
    torch = pytest.importorskip("torch")

    class Versatile(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.shift, self.table = 1, np.zeros(3, np.int64)
            self.bias = torch.nn.Parameter(torch.full((1,), 1.5, dtype=torch.bfloat16), requires_grad=False)
            self.register_buffer("count", torch.zeros(1), persistent=False)
            self.view = self.count[:]

        def forward(self, obs: Any) -> Any:
            assert isinstance(obs, torch.Tensor) and not torch.is_grad_enabled()
            self.table += 1  # a policy may modify its arrays
            attributes = [self.shift, self.table[0], self.count.item(), self.view.item(), self.training]
            columns = {"attributes": np.tile(np.array(attributes, float), (len(obs), 1))}
            noise = torch.rand(len(obs))
            return torch.zeros(len(obs), dtype=torch.long), {
                **columns,
                "bias": self.bias.expand(len(obs)),
                "noise": noise,
            }

    return Versatile()


def test_a_torch_module_is_sent_with_all_its_attributes() -> None:
    policy = versatile()
    with Pool([Scripted] * 2, backend=remuda.Ray(shards=2, backend="serial"), faults="restart") as pool:
        with pool.rollouts(policy, steps=2, in_flight=1) as rollouts:
            first = dict[int, Any]()
            while len(first) < 2:
                rollout = next(rollouts)
                first.setdefault(rollout.shard, rollout.columns)
            assert (first[0]["noise"] != first[1]["noise"]).all()  # of torch's random numbers
            assert first[0]["attributes"][:, 0].tolist() == [[1, 1, 0, 0, 1], [1, 2, 0, 0, 1]]
            assert first[0]["bias"].dtype == np.float32 and (first[0]["bias"] == 1.5).all()
            policy.shift, policy.table[0] = 5, 40
            policy.bias += 1
            policy.view += 3  # it shares its memory with `count`
            policy.eval()
            assert pool.publish(policy) == 1
            while (later := next(rollouts)).policy_version == 0:
                pass
            assert (
                later.columns["attributes"][0, 0].tolist() == [5, 41, 3, 3, 0] and (later.columns["bias"] == 2.5).all()
            )
        pool.reset(seed=0)
        kill_shard(pool, 0)
        assert pool.step([0, 0]).truncations.tolist() == [True, False]
        policy.shift = 6
        with pool.rollouts(policy, steps=2) as rollouts:
            assert all(next(rollouts).columns["attributes"][0, 0, 0] == 6 for _ in range(4))


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


def test_a_policy_keeps_a_state_for_each_env_and_draws_from_a_stream_for_each_shard() -> None:
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


class Waiting:
    """A policy that waits at a gate in its first step, and creates a file after its last step."""

    def __init__(self, gate: Gate, done: Path, steps: int) -> None:
        self._gate, self._done, self._steps, self._left = gate, done, steps, steps

    def act(self, obs: Any) -> Any:
        if self._left == self._steps:
            self._gate.wait()
        self._left -= 1
        if not self._left:
            self._done.touch()
        return np.zeros(len(obs), np.int64)


def test_closed_rollouts_end_at_their_next_step(tmp_path: Path) -> None:
    steps, gate, done = 100_000, Gate(tmp_path), tmp_path / "done"
    with Pool([Scripted] * 2, backend=remuda.Ray(backend="serial")) as pool:
        rollouts = pool.rollouts(Waiting(gate, done, steps), steps=steps, in_flight=3)
        gate.await_arrival()
        rollouts.close()
        pool.send_reset(seed=0)
        gate.open()
        pool.recv()
        assert not done.exists()
        assert next(pool.rollouts(Greedy(), steps=2)).steps == 2


@pytest.mark.parametrize(
    ("backend", "kind", "lost"), [("serial", ShardDiedError, [2, 3]), ("process", WorkerDiedError, [3])]
)
def test_without_restarts_a_death_ends_rollouts(backend: Any, kind: type[WorkerDiedError], lost: list[int]) -> None:
    with Pool([Scripted] * NUM_ENVS, backend=remuda.Ray(shards=2, backend=backend), num_workers=None) as pool:
        pool.reset(seed=1)
        pids = pool.call("pid")
        rollouts = pool.rollouts(Greedy(), steps=STEPS)
        next(rollouts)
        os.kill(pids[3], signal.SIGKILL)
        with pytest.raises(kind) as raised:
            while True:
                next(rollouts)
        assert raised.value.env_ids == tuple(lost)
        assert pool.reset(env_ids=[0, 1]).env_ids.tolist() == [0, 1]


def test_metrics_count_rollouts_and_restarts_by_shard(monkeypatch: pytest.MonkeyPatch) -> None:
    values = Counter[tuple[str, str]]()

    def count(metric: Any, tags: dict[str, str]) -> None:
        values[metric.info["name"], tags["shard"]] += 1

    def set_to(metric: Any, value: int, tags: dict[str, str]) -> None:
        values[metric.info["name"], tags["shard"]] = value

    monkeypatch.setattr("ray.util.metrics.Counter.inc", count)  # Ray exports metrics only with further packages
    monkeypatch.setattr("ray.util.metrics.Gauge.set", set_to)
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
    names = ("remuda_rollouts", "remuda_policy_age", "remuda_shard_restarts")
    assert [values[name, "0"] for name in names] == [4, 1, 1] and len(values) == 3


def test_errors_in_policies_and_envs_are_raised_by_the_rollouts() -> None:
    with Pool([Scripted] * 2, backend=remuda.Ray(backend="serial")) as pool:
        with pytest.raises(ZeroDivisionError):
            next(pool.rollouts(lambda obs: 1 // 0, steps=4))
        with pytest.raises(TypeError, match="expected policy to be a function of observations"):
            pool.rollouts("policy", steps=4)
        with pytest.raises(ValueError, match="expected in_flight to be an int from 1 up, got 0"):
            pool.rollouts(Greedy(), in_flight=0)
        rollouts = pool.rollouts(Greedy(), steps=4)
        with pytest.raises(StateError, match=r"no rollouts under way .*; call their close\(\) first"):
            pool.reset()
        rollouts.close()
        pool.reset()
        pool.apply(fail, env_ids=[1])
        with pytest.raises(EnvError, match=r"env 1 .*raised RuntimeError in step: told to"):
            next(pool.rollouts(Greedy(), steps=4))
