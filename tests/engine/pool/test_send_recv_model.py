"""Random sequences of sends and receives, compared with a model of the pool."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from drawn import draws
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from pool_envs import (
    CountingEnv,
    HookedEnv,
    counting,
    hooked,
)

from remuda import Batch, Pool, StateError


class Model(RuleBasedStateMachine):
    """A pool of counting envs and a plain model of it.

    Draws may not depend on the order in which results arrive, because that order is random with threads.
    """

    backend: Any = "serial"
    num_envs = 4
    length = 3

    @initialize(
        num_workers=st.integers(1, 4),
        frames=st.integers(1, 4),
        mode=st.sampled_from(["next_step", "disabled", "background"]),
    )
    def start(self, num_workers: int, frames: int, mode: Any) -> None:
        self.mode = mode
        self.pool = Pool(
            counting(self.num_envs, self.length),
            backend=self.backend,
            num_workers=num_workers,
            frames=frames,
            autoreset=mode,
        )
        self.envs = [CountingEnv(tag, self.length) for tag in range(self.num_envs)]
        self.done = [False] * self.num_envs
        self.expected: dict[int, tuple[list[int], float, bool]] = {}  # expected results of the envs in flight
        self.reset = [False] * self.num_envs
        self.next_action = 0
        self.calls: list[tuple[Any, list[int]]] = []
        self.held: list[tuple[Batch, list[float]]] = []

    def _idle(self, env_ids: Sequence[int], must_be_reset: bool = True) -> list[int]:
        return [i for i in env_ids if i not in self.expected and (self.reset[i] or not must_be_reset)]

    def _note(self, i: int, reward: float = 0.0, done: bool = False) -> None:
        self.expected[i] = (self.envs[i].observe().tolist(), reward, done)

    def _begin_episode(self, i: int) -> None:
        self.envs[i].reset()
        self.reset[i], self.done[i] = True, False

    @rule(ids=st.permutations(range(4)), count=st.integers(0, 4))
    def send_reset(self, ids: list[int], count: int) -> None:
        ids = self._idle(ids[:count], must_be_reset=False)
        self.pool.send_reset(env_ids=ids)
        for i in ids:
            self._begin_episode(i)
            self._note(i)

    @rule(ids=st.permutations(range(4)), count=st.integers(1, 4), as_arrays=st.booleans())
    def send(self, ids: list[int], count: int, as_arrays: bool) -> None:
        ids = self._idle(ids[:count])
        actions = [self.next_action + k for k in range(len(ids))]
        self.next_action = (self.next_action + len(ids)) % 900
        if as_arrays:
            self.pool.send(np.array(actions, np.int64), env_ids=np.array(ids, np.int64))
        else:
            self.pool.send(actions, env_ids=ids)
        for i, action in zip(ids, actions, strict=True):
            if self.done[i] and self.mode == "next_step":
                self._begin_episode(i)
                self._note(i)
            else:
                _, reward, self.done[i], _, _ = self.envs[i].step(action)
                self._note(i, reward, self.done[i])

    @rule(ids=st.permutations(range(4)), count=st.integers(1, 4))
    def observe(self, ids: list[int], count: int) -> None:
        ids = self._idle(ids[:count])
        self.pool.request_obs(env_ids=ids)
        for i in ids:
            self._note(i)

    @rule(
        min_envs=st.one_of(st.none(), st.integers(0, 4)),
        max_envs=st.one_of(st.none(), st.integers(0, 5)),
        timeout=st.sampled_from([None, 0, 0.001]),
        order=st.sampled_from(["arrival", "slot"]),
        hold=st.booleans(),
    )
    def recv(self, min_envs: int | None, max_envs: int | None, timeout: float | None, order: Any, hold: bool) -> None:
        pending = len(self.expected)
        if not pending:
            with pytest.raises(StateError, match="got none"):
                self.pool.recv(min_envs, timeout, max_envs)
            return
        batch = self.pool.recv(min_envs, timeout, max_envs, order)
        limit = pending if max_envs is None else max_envs
        least = pending if min_envs is None else min_envs
        assert len(batch) <= limit
        if timeout is None:
            assert len(batch) >= min(least, limit, pending)
        for row, i in enumerate(batch.env_ids.tolist()):
            obs, reward, done = self.expected.pop(i)  # a second result of the env would raise a KeyError
            assert batch.obs[row].tolist() == obs
            assert (batch.rewards[row], batch.terminations[row], batch.truncations[row]) == (reward, done, False)
            if done and self.mode == "background":
                self._begin_episode(i)
                self._note(i)
        if order == "slot":
            assert batch.env_ids.tolist() == sorted(batch.env_ids.tolist())
        if hold:
            self.held.append((batch, batch.rewards.tolist()))

    @rule(which=st.integers(0, 3))
    def send_to_an_env_in_flight(self, which: int) -> None:
        if self.expected:
            idle = self._idle(range(4))
            busy = sorted(self.expected)[which % len(self.expected)]
            with pytest.raises(StateError):
                self.pool.send([1] * (len(idle) + 1), env_ids=[*idle, busy])

    @rule()
    def discard(self) -> None:
        self.pool.discard()
        for i, (_, _, done) in self.expected.items():
            if done and self.mode == "background":
                self._begin_episode(i)
        self.expected.clear()

    @rule(ids=st.permutations(range(4)), count=st.integers(0, 4))
    def call(self, ids: list[int], count: int) -> None:
        """A call of an env runs after all commands that were sent to the env earlier."""
        self.calls.append((self.pool.call_async("get_wrapper_attr", "total_steps", env_ids=ids[:count]), [
            self.envs[i].total_steps for i in ids[:count]
        ]))  # fmt: skip

    @precondition(lambda self: self.calls)
    @rule(which=st.integers(0, 100))
    def answer(self, which: int) -> None:
        call, expected = self.calls.pop(which % len(self.calls))
        assert call.result() == expected
        assert call.done
        assert call.result() == expected

    @precondition(lambda self: self.held)
    @rule(which=st.integers(0, 100))
    def drop(self, which: int) -> None:
        self.held.pop(which % len(self.held))

    @invariant()
    def nothing_is_overwritten(self) -> None:
        for batch, reward in getattr(self, "held", []):
            assert batch.rewards.tolist() == reward

    @invariant()
    def pending_counts_envs_in_flight(self) -> None:
        if hasattr(self, "pool"):
            assert self.pool.pending == len(self.expected)

    def teardown(self) -> None:
        if hasattr(self, "pool"):
            self.pool.close()


class ThreadModel(Model):
    backend = "thread"


TestModelOnSerial = Model.TestCase
TestModelOnSerial.settings = draws(40, stateful_step_count=40)
TestModelOnThreads = ThreadModel.TestCase
TestModelOnThreads.settings = draws(15, stateful_step_count=40)


def dawdle(env: HookedEnv, action: int) -> None:
    time.sleep((17 * env.tag + 31 * int(action)) % 7 * 1e-4)  # varying durations make results arrive in any order


@pytest.mark.parametrize("seed", range(4))
def test_a_random_walk_on_processes(seed: int) -> None:
    """One long random walk instead of many short ones, because starting processes is slow."""
    rng = np.random.default_rng(seed)
    n = 5
    envs = hooked(n, range(n), step=dawdle) if seed % 2 else counting(n)
    with Pool(envs, num_workers=int(rng.integers(1, n + 1))) as pool:
        pool.reset()
        steps, expected = [0] * n, {}
        for _ in range(600):
            idle = [i for i in range(n) if i not in expected]
            ids = rng.permutation(idle)[: rng.integers(0, len(idle) + 1)].tolist()
            actions = rng.integers(0, 1000, len(ids))
            pool.send(actions, env_ids=np.array(ids, np.int64) if rng.integers(2) else ids)
            for i, action in zip(ids, actions.tolist(), strict=True):
                steps[i] += 1
                expected[i] = (steps[i], action)
            if expected:
                timeout, order = [None, 0, 1e-4][rng.integers(3)], ["arrival", "slot"][rng.integers(2)]
                batch = pool.recv(int(rng.integers(0, 3)), timeout, int(rng.integers(1, n + 1)), order)  # type: ignore[arg-type]
                for row, i in enumerate(batch.env_ids.tolist()):
                    assert tuple(batch.obs[row, 2:].tolist()) == expected.pop(i)
            assert pool.pending == len(expected)
