"""A pool on a cluster returns, bit for bit, what the serial backend returns, for any number of shards."""

from __future__ import annotations

import pickle
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from cluster.conftest import TwoNodes
from cluster_envs import Scripted, actions, kill_shard, rows_by_env
from gymnasium.vector.utils import batch_space

import remuda
from remuda import EnvError, InvalidActionError, Pool, StateError, _core
from remuda._cluster.messages import BuildOrder, RowCommand
from remuda._cluster.shard.shard import ShardActor
from remuda._wire import by_value

NUM_ENVS = 6


def course(pool: Pool, steps: int = 25) -> list[dict[int, Any]]:
    """Runs a pool for some steps and returns the rows of each batch."""
    batches = [rows_by_env(pool.reset(seed=3))]
    for step in range(steps):
        if pool.autoreset == "disabled" and (over := [env for env, row in batches[-1].items() if row[2] or row[3]]):
            batches[-1].update(rows_by_env(pool.reset(env_ids=over)))
        batches.append(rows_by_env(pool.step(actions(step, range(NUM_ENVS)))))
    return batches


@pytest.mark.parametrize(
    ("shards", "autoreset", "seeding"),
    [(1, "next_step", "per_episode"), (2, "same_step", "gymnasium"), (3, "disabled", "per_episode")],
)
def test_results_equal_those_of_the_serial_backend(
    cluster: TwoNodes, shards: int, autoreset: Any, seeding: Any
) -> None:
    common: Any = {"autoreset": autoreset, "seeding": seeding}
    with Pool([Scripted] * NUM_ENVS, backend="serial", **common) as twin:
        expected = course(twin)
    with Pool([Scripted] * NUM_ENVS, backend=remuda.Ray(shards=shards, backend="serial"), **common) as pool:
        assert course(pool) == expected


def test_batched_spaces_are_those_of_a_local_pool(cluster: TwoNodes) -> None:
    with (
        Pool([Scripted] * 4, backend="serial") as twin,
        Pool([Scripted] * 4, backend=remuda.Ray(shards=2, backend="serial")) as pool,
    ):
        for part, n in [(pool, 4), *((part, 2) for part in pool.split(2))]:
            space = batch_space(twin.single_observation_space, n)
            assert (part.observation_space, part.single_observation_space) == (space, twin.single_observation_space)
            assert part.action_space == batch_space(twin.single_action_space, n)


def test_stacked_infos_equal_those_of_the_serial_backend(cluster: TwoNodes) -> None:
    with Pool([Scripted] * 5, backend="serial", autoreset="same_step") as twin:
        twin.reset(seed=1)
        expected = [(twin.step(actions(step, range(5)))).stack_infos() for step in range(12)]
    with Pool([Scripted] * 5, backend=remuda.Ray(shards=2, backend="serial"), autoreset="same_step") as pool:
        pool.reset(seed=1)
        for step, stacked in enumerate(expected):
            got = pool.step(actions(step, range(5))).stack_infos()
            assert repr(got) == repr(stacked)


def test_envs_are_sent_and_received_in_any_order(cluster: TwoNodes) -> None:
    with Pool([Scripted] * 6, backend=remuda.Ray(shards=3, backend="serial")) as pool:
        pool.send_reset(seed=0, env_ids=[5, 0])
        pool.send_reset(seed=0, env_ids=[3])
        assert pool.pending == 3
        with pytest.raises(StateError, match="env 0 is in flight"):
            pool.send_reset(env_ids=[1, 0])
        first = pool.recv(min_envs=1, max_envs=1)
        assert len(first) == 1 and pool.pending == 2
        rest = pool.recv(order="slot")
        assert sorted([*first.env_ids.tolist(), *rest.env_ids.tolist()]) == [0, 3, 5]
        with pytest.raises(StateError, match="got envs 1, 4; call reset first"):
            pool.step([0] * 4, env_ids=[1, 0, 3, 4])
        batch = pool.step([1, 2, 3], env_ids=[5, 3, 0])
        assert batch.env_ids.tolist() == [5, 3, 0]
        assert batch.obs[:, 2].tolist() == [1, 2, 3]
        with pytest.raises(InvalidActionError, match=r"expected 0 <= action <= 4 at actions\[1\], got 9"):
            pool.send([1, 9, 3], env_ids=[5, 3, 0])
        assert pool.pending == 0
        with pytest.raises(StateError, match="got none"):
            pool.recv()
        assert len(pool.step([0, 0, 0], env_ids=[0, 3, 5])) == 3
        pool.send([0], env_ids=[0])
        pool.discard()
        assert pool.pending == 0


def test_parts_share_each_shard(cluster: TwoNodes) -> None:
    with Pool([Scripted] * 5, backend=remuda.Ray(shards=2, backend="serial"), seeding="per_episode") as pool:
        halves = pool.split(2)
        assert [half.env_ids.tolist() for half in halves] == [[0, 1, 3], [2, 4]]
        for half in halves:
            half.send_reset(seed=0)
        parts = []
        for step in range(8):
            for half in halves:
                parts.append(rows_by_env(half.recv()))
                assert list(parts[-1]) == half.env_ids.tolist()
                half.send(actions(step, half.env_ids))
        with pytest.raises(StateError, match="no env in flight when a pool is split"):
            pool.split(1)
        for half in halves:
            half.recv()
        with pytest.raises(ValueError, match="from 1 to 5 "):
            pool.split(6)
        assert pool.split(1) == (pool,)
        with pytest.raises(StateError, match="split since"):
            halves[0].send(actions(0, halves[0].env_ids))
        whole = [rows_by_env(pool.reset(seed=0))] + [
            rows_by_env(pool.step(actions(step, range(5)))) for step in range(7)
        ]
        assert [{**one, **other} for one, other in zip(parts[::2], parts[1::2], strict=True)] == whole


@pytest.mark.parametrize("recover", ["reset", "discard"])
def test_a_split_pool_is_usable_again_after_reset_or_discard(cluster: TwoNodes, recover: str) -> None:
    with Pool([Scripted] * 5, backend=remuda.Ray(shards=3, backend="serial")) as pool:
        pool.reset(seed=0)
        halves = pool.split(2)
        halves[0].send(actions(0, halves[0].env_ids))
        assert pool.pending == 3
        del halves
        pool.reset(seed=0) if recover == "reset" else pool.discard()
        assert pool.pending == 0
        assert len(pool.step(actions(0, range(5)))) == 5
        pool.split(2)
        pool.send_reset(seed=0)
        assert len(pool.recv()) == 5


class Slow(Scripted):
    """Waits in its step for a file if the action is 4."""

    path: Path

    def step(self, action: Any) -> Any:
        if action == 4:
            while not self.path.exists():
                pass
        return super().step(action)


def test_no_env_waits_for_a_slow_one_of_its_shard(cluster: TwoNodes, tmp_path: Path) -> None:
    with Pool([Slow] * 4, backend=remuda.Ray(shards=1), num_workers=4) as pool:
        pool.set_attr("path", tmp_path / "go")
        pool.reset(seed=0)
        pool.send([4, 0, 0, 0])
        for _ in range(5):
            batch = pool.recv(min_envs=3)
            assert sorted(batch.env_ids.tolist()) == [1, 2, 3]
            pool.send([0, 0, 0], env_ids=[1, 2, 3])
        assert len(pool.recv(min_envs=3)) == 3 and pool.pending == 1
        (tmp_path / "go").touch()
        assert pool.recv().env_ids.tolist() == [0]


def test_a_request_to_reply_may_overtake_its_message(cluster: TwoNodes, tmp_path: Path) -> None:
    """Ray runs the request in another thread of the actor. If the shard forgot it, its reply would wait for env 0."""
    shard = ShardActor(0, 0)
    assert shard.build(BuildOrder(by_value.dumps([Slow] * 2), 0, [], by_value.dumps({"num_workers": 2}))).error is None
    try:
        shard._open.set_attr("path", tmp_path / "go")
        shard.run(pickle.dumps((1, [RowCommand(_core.Op.RESET, None)])))
        shard.reply_now(2)
        shard.run(pickle.dumps((2, [RowCommand(_core.Op.STEP, [0], (np.array([4]),))])))
        assert shard._open.pending == 1
        (tmp_path / "go").touch()
        shard.run(pickle.dumps((3, [])))
        assert shard._open.pending == 0
    finally:
        assert shard.close(None).error is None


@pytest.mark.parametrize("autoreset", ["next_step", "same_step"])
def test_rollouts_in_the_driver_equal_those_of_the_serial_backend(cluster: TwoNodes, autoreset: Any) -> None:
    runs = []
    for backend in ("serial", remuda.Ray(shards=2, backend="serial")):
        with Pool([Scripted] * 4, backend=backend, seeding="per_episode", autoreset=autoreset) as pool:
            pool.reset(seed=1)
            rollouts = []
            for _ in range(3):
                rollout = pool.rollout(8)
                for step in rollout:
                    step.act(step.obs[:, 1].astype(int) % 5)
                rollouts.append(rollout)
            runs.append(
                [
                    [r.obs.tolist(), r.rewards.tolist(), r.valid.tolist(), r.episode_starts.tolist(), str(r.infos)]
                    for r in rollouts
                ]
            )
    assert runs[0] == runs[1]


def test_background_resets_equal_those_of_the_serial_backend(cluster: TwoNodes) -> None:
    runs = []
    for backend in ("serial", remuda.Ray(shards=2, backend="serial")):
        with Pool([Scripted] * 4, backend=backend, seeding="per_episode", autoreset="background") as pool:
            pool.send_reset(seed=1)
            rows: dict[int, list[Any]] = {env: [] for env in range(4)}
            while min(map(len, rows.values())) < 20:
                batch = pool.recv(min_envs=1)
                over = batch.terminations | batch.truncations
                for env, row in rows_by_env(batch).items():
                    rows[env].append(row)
                ready = batch.env_ids[~over]
                if len(ready):
                    pool.send(actions(0, ready.tolist()), ready.tolist())
            runs.append({env: env_rows[:20] for env, env_rows in rows.items()})
            pool.discard()
    assert runs[0] == runs[1]


def test_replaced_envs_remain_after_the_death_of_their_shard(cluster: TwoNodes) -> None:
    class Other(Scripted):
        kind = "other"

    with Pool([Scripted] * 4, backend=remuda.Ray(shards=2, backend="serial"), faults="restart") as pool:
        pool.reset(seed=0)
        pool.replace([2], [Other])
        assert len(pool.step([0] * 4)) == 4
        assert [kind == "other" for kind in pool.get_attr("kind")] == [False, False, True, False]
        kill_shard(pool, 3)
        assert pool.step([0] * 4).truncations.tolist() == [False, False, True, True]
        assert [kind == "other" for kind in pool.get_attr("kind")] == [False, False, True, False]


def test_a_trace_has_the_steps_of_the_driver(cluster: TwoNodes, tmp_path: Path) -> None:
    with Pool([Scripted] * 4, backend=remuda.Ray(shards=2, backend="serial")) as pool:
        with pool.trace(tmp_path / "trace.json"):
            pool.reset(seed=0)
            pool.step([0] * 4)
        assert '"step"' in (tmp_path / "trace.json").read_text()


def test_calls_reach_envs_on_all_shards(cluster: TwoNodes) -> None:
    with Pool([Scripted] * 5, backend=remuda.Ray(shards=2, backend="serial")) as pool:
        pool.set_attr("steps", 4)
        pool.set_attrs("length", [7, 8], env_ids=[4, 1])
        assert pool.get_attr("steps") == [4] * 5
        assert pool.get_attr("length", [1, 4]) == [8, 7]
        assert len(set(pool.call("pid"))) == 2
        with pytest.raises(EnvError, match="env 3 .* raised AttributeError in call"):
            pool.call("nothing", env_ids=[3])
        pool.set_reset_options({"wind": 3}, env_ids=[2, 4])
        options = [info["options"] for info in pool.reset().infos]
        assert options == ["None", "None", "{'wind': 3}", "None", "{'wind': 3}"]
        assert [worker.env_ids for worker in pool.workers] == [(0, 1, 2), (3, 4)]
        assert pool.stats().steps == 5
        assert {worker.shard for worker in pool.workers} == {0, 1}


def test_vector_envs_equal_those_of_the_serial_backend(cluster: TwoNodes) -> None:
    def vectors() -> Any:
        return gymnasium.make_vec("CartPole-v1", num_envs=2, vectorization_mode="sync")

    results = []
    for backend in ("serial", remuda.Ray(shards=2, backend="serial")):
        with Pool([vectors] * 3, vector_size=2, backend=backend) as pool:
            batches = [pool.reset(seed=1)] + [pool.step(np.ones(6, np.int64)) for _ in range(15)]
            results.append([(batch.obs.tolist(), rows_by_env(batch)) for batch in batches])
            with pytest.raises(ValueError, match="whole vector envs"):
                pool.step([1], env_ids=[1])
    assert results[0] == results[1]


def test_an_exception_names_the_env_id_in_the_whole_pool(cluster: TwoNodes) -> None:
    from cluster_envs import fail

    with Pool([Scripted] * 6, backend=remuda.Ray(shards=3, backend="serial")) as pool:
        pool.reset(seed=0)
        pool.apply(fail, env_ids=[3])
        with pytest.raises(EnvError, match=r"env 3 .*raised RuntimeError in step: told to") as raised:
            pool.step(actions(0, range(6)))
        assert raised.value.env_ids == (3,)
        assert pool.recv().env_ids.tolist() == [0, 1, 2, 4, 5]
        with pytest.raises(StateError, match="got env 3; call reset first"):
            pool.step(actions(0, range(6)))
        assert len(pool.reset()) == 6


def test_max_concurrency_holds_for_the_workers_of_all_shards(cluster: TwoNodes, tmp_path: Path) -> None:
    class Alone(Scripted):
        """Raises if another env steps at the same time."""

        def step(self, action: Any) -> Any:
            claim = tmp_path / "claim"
            claim.touch(exist_ok=False)
            time.sleep(0.01)  # time for a second step to begin
            claim.unlink()
            return super().step(action)

    with Pool([Alone] * 4, backend=remuda.Ray(shards=2, cpus_per_shard=2), max_concurrency=1) as pool:
        pool.reset(seed=0)
        for t in range(5):
            assert len(pool.step(actions(t, range(4)))) == 4
        with pytest.raises(ValueError, match="expected max_concurrency=None for rollouts"):
            pool.rollouts(lambda obs: actions(0, range(len(obs))))


def test_unsupported_options_are_refused_before_anything_starts() -> None:
    ray = remuda.Ray(shards=2)
    for options, text in [
        ({"spares": 1}, "expected spares=0 with backend=remuda.Ray"),
        ({"crash_dir": "here"}, "crash records would lie on the machines"),
        ({"worker_output": "here"}, "a directory would be one of each machine"),
        ({"max_worker_memory": 1 << 30}, "those of a shard host several"),
    ]:
        with pytest.raises(ValueError, match=text):
            Pool([Scripted] * 4, backend=ray, **options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="expected shards to be from 1 to 1 "):
        Pool([Scripted], backend=ray)
    with pytest.raises(ValueError, match="expected cpus_per_shard to be a number from 0.0001 up, got 0"):
        remuda.Ray(cpus_per_shard=0)
    with pytest.raises(ValueError, match="expected gpus_per_shard to be a fraction .* or a whole number .*, got 1.5"):
        remuda.Ray(gpus_per_shard=1.5)
    with pytest.raises(ValueError, match="expected shards to be an int from 1 up, got 0"):
        remuda.Ray(shards=0)
    with pytest.raises(TypeError, match=r"^Pool\(\) got .*did you mean seeding="):
        Pool([Scripted] * 2, backend=ray, seedin="per_episode")  # type: ignore[call-arg]
