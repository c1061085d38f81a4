"""A pool on a cluster: its workers and figures, slow envs, the options that it refuses, and interrupted calls."""

from __future__ import annotations

import pickle
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import accidents
import gymnasium
import numpy as np
import pytest
from accidents import once
from cluster.conftest import TwoNodes
from cluster_envs import Faulty, Scripted, actions, rows_by_env
from drawn import MINUTES
from interrupting import Interrupt, interrupting
from pool_envs import gated, make_gates
from vector_reward_envs import TwoGoals

import remuda
from remuda import ClosedError, InvalidEnvError, Pool, SpaceMismatchError, _core
from remuda._cluster.messages import BuildOrder, RowCommand
from remuda._cluster.shard.shard import ShardActor
from remuda._wire import by_value

SERIAL: Any = remuda.Ray(shards=2, backend="serial")


@pytest.mark.usefixtures("kept_actors")
def test_workers_figures_and_traces_are_those_of_all_shards(tmp_path: Path) -> None:
    with Pool([Scripted] * 5, backend=SERIAL) as pool:
        with pool.trace(tmp_path / "trace.json"):
            pool.reset(seed=0)
            pool.step([0] * 5)
        assert '"step"' in (tmp_path / "trace.json").read_text()
        assert [(worker.shard, worker.env_ids) for worker in pool.workers] == [(0, (0, 1, 2)), (1, (3, 4))]
        assert len(set(pool.call("pid"))) == 2
        assert {(worker.pid, worker.memory) for worker in pool.stats().workers} == {(None, None)}
        assert pool.stats().steps == 10 and "5 envs in 2 process workers" in str(pool.stats())
        with pytest.raises(ValueError, match="limit"):
            pool.workers[0].output(-1)
    with pytest.raises(ClosedError):
        pool.step([0] * 5)
    pool.close()
    assert repr(pool) == "<Pool of 5 envs, closed>"


@pytest.mark.usefixtures("kept_actors")
def test_neither_envs_nor_calls_wait_for_a_slow_env_of_their_shard(tmp_path: Path) -> None:
    (gate,) = make_gates(tmp_path, 1)
    with Pool(gated([gate, None, None]), num_workers=None, backend=remuda.Ray()) as pool:
        pool.reset()
        pool.send([1, 2, 3])
        gate.await_arrival()
        late = pool.call_async("get_wrapper_attr", "total_steps")
        assert pool.call("get_wrapper_attr", "total_steps", env_ids=[1]) == [1]
        for _ in range(5):
            assert sorted(pool.recv(min_envs=2).env_ids.tolist()) == [1, 2]
            pool.send([2, 3], [1, 2])
        assert not late.done
        gate.open()
        assert late.result() == [1, 1, 1]
        assert sorted(pool.recv().rewards.tolist()) == [1, 2, 3]


def test_a_request_to_reply_may_overtake_its_message(cluster: TwoNodes, tmp_path: Path) -> None:
    """Ray runs the request in another thread of the actor. If the shard forgot it, its reply would wait for env 0."""
    shard, (gate,) = ShardActor(0, 0), make_gates(tmp_path, 1)
    order = BuildOrder(by_value.dumps(gated([gate, None])), 0, 0, [], by_value.dumps({"num_workers": 2}))
    assert shard.build(order).error is None
    try:
        shard.run(pickle.dumps((1, [RowCommand(_core.Op.RESET, [0])])))  # returns with the first result
        shard.reply_now(2)
        shard.run(pickle.dumps((2, [RowCommand(_core.Op.STEP, [0], (np.array([4]),))])))
        assert shard._open.pending == 1
        gate.let_pass()
        shard.run(pickle.dumps((3, [])))
        assert shard._open.pending == 0
    finally:
        assert shard.close(None).error is None


@pytest.mark.usefixtures("kept_actors")
def test_max_concurrency_holds_for_the_workers_of_all_shards(tmp_path: Path) -> None:
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


@pytest.mark.parametrize(
    ("where", "options", "text"),
    [
        ({}, {"spares": 1}, "expected spares=0 with backend=remuda.Ray"),
        ({}, {"crash_dir": "here"}, "crash records would lie on the machines"),
        ({}, {"worker_output": "here"}, "a directory would be one of each machine"),
        ({}, {"max_worker_memory": 1 << 30}, "those of a shard host several"),
        ({"shards": 5}, {}, "expected shards to be from 1 to 4 "),
        ({"shards": 3}, {"num_workers": 2}, "expected shards to be from 1 to 2 with num_workers=2, got 3"),
        ({"shards": 0}, {}, "expected shards to be an int from 1 up, got 0"),
        ({"cpus_per_shard": 0}, {}, "expected cpus_per_shard to be a number from 0.0001 up, got 0"),
        ({"gpus_per_shard": 1.5}, {}, "expected gpus_per_shard to be a fraction .* or a whole number .*, got 1.5"),
        ({"placement": "near"}, {}, "expected placement to be one of .*, got 'near'"),
    ],
)
def test_unsupported_options_are_refused_before_anything_starts(where: Any, options: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Pool([Scripted] * 4, backend=remuda.Ray(**where), **options)


@pytest.mark.parametrize("what", ["env_fns", "options"])
def test_the_error_names_what_cannot_be_pickled(cluster: TwoNodes, what: str) -> None:
    lock = threading.Lock()

    def look(*_: Any) -> Any:
        return lock.locked()

    env_fns = [look] if what == "env_fns" else [Scripted]
    extras: Any = {"look": look} if what == "options" else None
    with pytest.raises(InvalidEnvError, match=rf"expected {what} that can be pickled.*variable lock of"):
        Pool(env_fns, backend=remuda.Ray(), extras=extras)


class Sized(Scripted):
    def __init__(self, size: int) -> None:
        self.size = size


class Wide(Scripted):
    def __init__(self, size: int) -> None:
        self.observation_space = gymnasium.spaces.Box(0, 1, (size,))


@pytest.mark.usefixtures("kept_actors")
def test_envs_that_differ_are_named_by_their_ids_in_the_pool() -> None:
    extras: Any = {"ids": lambda env: np.zeros(env.unwrapped.size)}
    with pytest.raises(InvalidEnvError, match=r"got the shape \(3,\) and dtype float64 for env 1"):
        Pool([partial(Sized, 2), partial(Sized, 3)], backend=SERIAL, extras=extras)
    with pytest.raises(SpaceMismatchError, match="of env 2's, .* got env 3: ") as raised:
        Pool([partial(Wide, size) for size in (2, 2, 2, 3)], backend=SERIAL)
    assert [space.shape for space in raised.value.spaces] == [(2,), (3,)]


@pytest.mark.usefixtures("kept_actors")
@pytest.mark.parametrize("autoreset", ["next_step", "same_step"])
def test_rewards_may_be_vectors_which_are_zeros_for_a_lost_shard(autoreset: Any, tmp_path: Path) -> None:
    kill = partial(TwoGoals, once(tmp_path / "killed", accidents.kill_myself))
    with Pool([kill, TwoGoals, TwoGoals, TwoGoals], backend=SERIAL, faults="restart", autoreset=autoreset) as pool:
        pool.reset()
        assert pool.step([1, 2, 3, 4]).rewards.tolist() == [[0, 0], [0, 0], [1, -3], [1, -4]]
        pool.reset()
        assert pool.step([1, 2, 3, 4]).rewards.tolist() == [[1, -1], [1, -2], [1, -3], [1, -4]]
        pool.reset()
        with pool.rollouts(lambda obs: np.full(len(obs), 2), steps=3) as rollouts:
            assert next(rollouts).rewards[:, 0].tolist() == [[1, -2], [2, -2], [3, -2]]


class Keeping(Scripted):
    action_space = gymnasium.spaces.Box(-9, 9, ())

    def step(self, action: Any) -> Any:
        self.last = action
        return super().step(1)


@pytest.mark.usefixtures("kept_actors")
@pytest.mark.parametrize("backend", ["serial", "process"])
def test_actions_as_given_keep_their_dtype(backend: Any) -> None:
    given = np.linspace(0, 1, 4)
    with Pool([Keeping] * 4, backend=remuda.Ray(shards=2, backend=backend)) as pool:
        pool.reset()
        pool.send(given, as_given=True)
        pool.recv()
        last = pool.get_attr("last")
        assert [one.dtype for one in last] == [np.float64] * 4 and np.stack(last).tolist() == given.tolist()
        pool.step(given)
        assert {one.dtype for one in pool.get_attr("last")} == {np.dtype(np.float32)}


# -- interrupts ----------------------------------------------------------------------------------------

PACKAGE = Path(remuda.__file__).parent
NUM_ENVS = 4
STRIDE = 1 if MINUTES else 11  # the distance of the steps of the interpreter at which calls are interrupted


def interrupted(n: int, within: Path, function: Any, *arguments: Any) -> tuple[bool, Any]:
    """Calls a function and interrupts it at the interpreter's n-th step in the files of the folder `within`.

    Returns whether it was interrupted, and the result.
    """
    with interrupting(n, (str(within),)) as hit:
        try:
            return bool(hit), function(*arguments)
        except Interrupt:
            return True, None


@pytest.mark.usefixtures("kept_actors")
@pytest.mark.parametrize("faults", ["raise", "restart"])
def test_interrupted_steps_are_made_once(faults: Any) -> None:
    """A signal handler raises at any point of a call: no step is lost or repeated."""
    common: Any = {"seeding": "per_episode", "faults": faults}
    with (
        Pool([Scripted] * NUM_ENVS, backend="serial", **common) as twin,
        Pool([Scripted] * NUM_ENVS, backend=SERIAL, **common) as pool,
    ):
        assert rows_by_env(pool.reset(seed=3)) == rows_by_env(twin.reset(seed=3))
        come, step = True, 0
        while come:
            come, _ = interrupted(step, PACKAGE / "_cluster", pool.send, actions(step, range(NUM_ENVS)))
            if not pool.pending:
                pool.send(actions(step, range(NUM_ENVS)))
            came, batch = interrupted(step, PACKAGE / "_cluster", pool.recv)
            come |= came
            batch = pool.recv() if batch is None else batch
            assert rows_by_env(batch) == rows_by_env(twin.step(actions(step, range(NUM_ENVS))))
            step += 1
        assert step > 5


@pytest.mark.usefixtures("kept_actors")
def test_interrupted_calls_are_made_once() -> None:
    with Pool([Faulty] * NUM_ENVS, backend=SERIAL) as pool:
        come, n, calls = True, 0, 0
        while come:
            come, call = interrupted(n, PACKAGE, pool.call_async, "poke")
            if call is None:
                pool.call("poke")  # it is unknown whether the first call was sent
                counts = set(pool.get_attr("pokes"))
                assert len(counts) <= 2 and min(counts) >= calls + 1
                pool.set_attr("pokes", calls)
            else:
                came, counted = interrupted(n, PACKAGE, call.result)
                come |= came
                assert (call.result() if counted is None else counted) == [calls + 1] * NUM_ENVS
                calls += 1
            n += STRIDE
