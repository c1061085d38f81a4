"""A forked child of the program, such as a data loader, has its own copy of held batches, and cannot use the pool."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from pool_envs import CountingEnv, assert_same, begun, counting, hooked
from rollout_envs import fill

from remuda import Batch, Pool, StateError
from remuda._system.interpreter import has_gil

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux has worker processes"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning"),
]


class Child:
    """A forked child. `ask` calls its function in it and returns the result."""

    def __init__(self, work: Callable[[], Any]) -> None:
        go, self._go = os.pipe()
        self._answer, answer_end = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._go)
            os.read(go, 1)
            status = 1
            try:
                os.write(answer_end, pickle.dumps(work()))
                status = 0
            finally:
                os._exit(status)
        os.close(go)
        os.close(answer_end)

    def ask(self) -> Any:
        """Makes the child call its function and waits for the child's exit."""
        os.write(self._go, b"!")
        os.close(self._go)
        with open(self._answer, "rb") as answer_end:
            answer = answer_end.read()
        assert os.waitpid(self.pid, 0)[1] == 0
        return pickle.loads(answer)


def arrays(batch: Batch) -> list[Any]:
    final_obs = None if batch.final_obs is None else batch.final_obs.copy()
    return [batch.obs.copy(), batch.rewards.copy(), batch.terminations.copy(), final_obs, dict(batch.infos.stack())]


def scored(env: Any, action: Any) -> Any:
    return env.observe(), float(action), env.steps == env.length, False, {"score": float(action)}


def test_a_childs_copies_keep_their_values_whatever_the_parent_writes_and_steps() -> None:
    """They stay valid after the parent drops the batches and reuses their memory many times."""

    def read() -> list[Any]:
        return [*map(arrays, held), rollout.obs.copy(), rollout.actions.copy(), rollout.rewards.copy()]

    def write() -> list[Any]:
        before = read()
        for array in (*(batch.obs for batch in held), rollout.obs):
            array[:] = -7
        return [before, read()]

    with begun(hooked(4, range(4), length=3, step=scored), num_workers=2, autoreset="same_step") as pool:
        pool.step([1] * 4)  # its info key has a column after this step
        rollout = fill(pool.rollout(3), 1)
        held = [pool.step([10 + i] * 4) for i in range(3)]
        before, kept = read(), held[0]
        assert any(batch.final_obs is not None for batch in held)
        child = Child(write)
        kept.obs[:] = rollout.obs[:] = -8
        held.clear()
        for i in range(20):
            pool.step([100 + i] * 4)
        seen, written = child.ask()
        assert_same(seen, before)
        assert all((obs == -7).all() for obs in (*(batch[0] for batch in written[:3]), written[3]))
        assert (kept.obs == -8).all() and (rollout.obs == -8).all() and kept.rewards.tolist() == [10] * 4


def test_a_child_may_read_batches_of_parts_and_of_a_closed_pool() -> None:
    pool = Pool(counting(4), num_workers=2)
    whole = pool.reset()
    left, right = pool.split(2)
    halves = [left.step([1, 2]), right.step([3, 4])]
    held = [whole, *halves]
    before = [arrays(batch) for batch in held]
    children = [Child(lambda: [arrays(batch) for batch in held])]
    pool.close()
    children.append(Child(lambda: [arrays(batch) for batch in held]))
    del whole, halves, held
    for child in children:
        np.testing.assert_equal(child.ask(), before)


@pytest.mark.parametrize("faults", ["raise", "restart", "resume"])
@pytest.mark.parametrize("holds", [True, False])
def test_a_child_does_not_keep_the_pools_memory_allocated(faults: Any, holds: bool) -> None:
    """A child has no mapping and no descriptor of the shared memory. Either would keep the memory allocated."""

    def look() -> tuple[list[str], list[str]]:
        maps = [line for line in Path("/proc/self/maps").read_text().splitlines() if "memfd:remuda (" in line]
        links = [Path(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]
        # excludes the descriptor that `listdir` used
        targets = [os.readlink(link) for link in links if link.is_symlink()]
        return maps, [target for target in targets if "memfd:remuda (" in target]

    with Pool(counting(2), faults=faults, num_workers=None) as pool:
        batch = pool.reset()
        if not holds:
            del batch
        maps, descriptors = look()
        assert (len(maps), len(descriptors)) == (1, 1)
        assert Child(look).ask() == ([], [])


def test_a_childs_calls_of_the_pool_are_refused() -> None:
    def use() -> list[str]:
        return [
            refusal(pool.reset), refusal(lambda: pool.step([0, 0])), refusal(pool.recv), refusal(pool.stats),
            refusal(pool.close), refusal(lambda: pool.call("tag")),
        ]  # fmt: skip

    def refusal(call: Callable[[], Any]) -> str:
        with pytest.raises(StateError) as raised:
            call()
        return str(raised.value)

    with begun(counting(2)) as pool:
        messages = Child(use).ask()
        assert all(
            f"this pool belongs to process {os.getpid()}, got a call from its forked copy" in text for text in messages
        )
        assert pool.step([1, 2]).rewards.tolist() == [1, 2]
        child = Child(lambda: None)  # a child that is killed does not disturb the pool either
        os.kill(child.pid, signal.SIGKILL)
        os.waitpid(child.pid, 0)
        os.close(child._go)
        os.close(child._answer)
        assert pool.step([1, 2]).rewards.tolist() == [1, 2]


def test_a_child_may_fork_and_make_pools_of_its_own() -> None:
    def grow() -> list[Any]:
        batch.obs[:] = 5
        child = Child(lambda: batch.obs.copy())
        batch.obs[:] = 6
        with Pool(counting(2), start_method="fork", num_workers=None) as own:
            return [child.ask(), own.reset().obs.copy()]

    with Pool(counting(2), num_workers=None) as pool:
        batch = pool.reset()
        before = batch.obs.copy()
        child_arrays, fresh = Child(grow).ask()
        assert (child_arrays == 5).all()
        np.testing.assert_array_equal(fresh, before)
        np.testing.assert_array_equal(batch.obs, before)


def test_a_factory_may_hold_a_batch_of_another_pool() -> None:
    """A forked worker has its own copy of the batch, with the values at the time of the fork."""
    with Pool(counting(2), num_workers=None) as pool:
        batch = pool.step([7, 8]) if pool.reset() else None
        assert batch is not None
        with Pool([lambda: CountingEnv(tag=int(batch.obs[1, 3]))], start_method="fork", num_workers=None) as other:
            del batch
            for _ in range(20):
                pool.step([1, 2])
            assert other.call("tag") == [8]


def test_a_closed_pools_memory_is_freed_though_another_pool_has_forked_workers() -> None:
    pool = begun(counting(2))
    with Pool(counting(1), start_method="fork", num_workers=None) as other:
        maps = other.apply(lambda env: Path("/proc/self/maps").read_text())[0]
        assert maps.count("memfd:remuda") == 1  # the other pool's own memory
        pool.close()


class Filling(gymnasium.Env[Any, Any]):
    observation_space = spaces.Box(0, 255, (1 << 16,), np.uint8)
    action_space = spaces.Discrete(256)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return np.zeros(1 << 16, np.uint8), {}

    def step(self, action: Any) -> Any:
        return np.full(1 << 16, action, np.uint8), 0.0, False, False, {}


def test_a_fork_copies_only_held_frames() -> None:
    """A child's memory, and the duration of a fork, grow with the size of the held batches, not of the pool."""

    def private_bytes() -> int:
        address = batch.obs.ctypes.data
        for entry in Path("/proc/self/smaps").read_text().split("VmFlags"):
            lines = entry.splitlines()
            head = next((line for line in lines if "-" in line.split(" ", 1)[0]), "0-0 ")
            first, last = (int(number, 16) for number in head.split(" ", 1)[0].split("-"))
            if first <= address < last:
                return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Rss:"))
        return -1

    with begun([Filling] * 16, num_workers=2, frames=32) as pool:
        for i in range(40):
            batch = pool.step([i] * 16)
        held = 16 << 16
        assert held <= Child(private_bytes).ask() < 4 * held


@pytest.mark.skipif(not has_gil(), reason="only the GIL keeps the thread where it is")
def test_a_child_drops_rollouts_while_a_thread_of_the_parent_reserves_memory() -> None:
    """The parent's thread is inside the core's `_reserve` without the GIL. No other call of the thread releases the
    GIL.
    """
    held: list[Any] = []

    def drop() -> bool:
        held.clear()
        return True

    with begun([Filling] * 2) as pool:
        held.append(fill(pool.rollout(2), 1))
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1000)
        try:
            other = threading.Thread(target=lambda: pool.rollout(500).close())  # 64 MB
            other.start()
            assert other.ident is not None
            while (frame := sys._current_frames().get(other.ident)) is None or frame.f_code.co_name != "_reserve":
                os.sched_yield()
            del frame
            child = Child(drop)
        finally:
            sys.setswitchinterval(interval)
        assert child.ask()
        other.join()
        held.clear()
