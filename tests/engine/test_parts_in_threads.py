"""Random sequences of operations on parts, each in a thread of its own, compared with one part after another.

`make soak` draws more sequences, and others for each seed.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from drawn import MINUTES, SEED
from pool_envs import LevelEnv

from remuda import Batch, EnvError, FaultPolicy, Pool
from remuda._engine.pool.part import Part

FIRST = SEED * 1_000_000
POOLS, OPERATIONS, ENVS, LENGTH, BROKEN = 6, 25, 6, 5, 998


class StormEnv(LevelEnv):
    """Raises at the action `BROKEN`. Some infos have a number, others a text of any length."""

    def step(self, action: Any) -> Any:
        if action == BROKEN:
            raise ValueError("broken")
        obs, reward, terminated, truncated, info = super().step(action)
        if self.steps % 2 == 0:
            info["steps"] = self.steps
        if self.steps % 3 == 0:
            info["text"] = "x" * (self.steps * self.tag)
        return obs, reward, terminated, truncated, info


class Life:
    """One part, and what its operations have returned so far. The operations depend only on `seed`."""

    def __init__(self, part: Part, seed: int, *, resets_ahead: bool) -> None:
        """`resets_ahead`: whether it depends on timing how often an env was reset, and what a call finds at an end."""
        self._part, self._ids, self._draw = part, part.env_ids.tolist(), random.Random(seed)
        self._resets_ahead = resets_ahead
        self._columns = [0, 2, 3] if resets_ahead else [0, 1, 2, 3]
        self.seen: list[Any] = []

    def run(self) -> list[Any]:
        operations = [self.step, self.rollout, self.steps_of_some, self.states, self.fork, self.calls, self.replace]
        operations += [self.step, self.reset, self.reset_some, self.options, self.attributes, self.breakage, self.drop]
        self._note(self._part.reset(seed=self._draw.randrange(100)))
        for _ in range(OPERATIONS):
            operation = self._draw.choice(operations)
            self.seen.append(operation.__name__)
            operation()
        return self.seen

    def _note(self, batch: Batch) -> None:
        infos = [[info.get(key) for key in ("steps", "text", "episode_seed")] for info in batch.infos]
        rows = [
            batch.obs[:, self._columns],
            batch.rewards,
            batch.terminations,
            batch.truncations,
            *batch.extras.values(),
        ]
        columns = [*(column.tolist() for column in rows), infos]
        self.seen.append(sorted(zip(batch.env_ids.tolist(), *columns, strict=True), key=lambda row: row[0]))

    def _actions(self) -> np.ndarray[Any, Any]:
        return np.array([self._draw.randrange(10) for _ in self._ids])

    def _some(self) -> list[int]:
        return sorted(self._draw.sample(self._ids, self._draw.randint(1, len(self._ids))))

    # -- operations ------------------------------------------------------------------------------------------

    def step(self) -> None:
        self._note(self._part.step(self._actions()))

    def steps_of_some(self) -> None:
        some = self._some()
        self._part.send(self._actions()[: len(some)], some)
        self._note(self._part.recv())

    def breakage(self) -> None:
        actions = self._actions()
        actions[self._draw.randrange(len(actions))] = BROKEN
        try:
            self._note(self._part.step(actions))
        except EnvError as error:
            self.seen.append([failure.env_id for failure in error.failures])
            self._part.discard()
        self._note(self._part.reset())  # an env that was rebuilt has no state before

    def drop(self) -> None:
        self._part.send(self._actions())
        self._part.discard()

    def reset(self) -> None:
        self._note(self._part.reset(options=self._draw.choice([None, {"level": 9}])))

    def reset_some(self) -> None:
        self._note(self._part.reset(env_ids=self._some()))

    def options(self) -> None:
        self._part.set_reset_options({"level": self._draw.randrange(5)}, self._some())

    def attributes(self) -> None:
        self._part.set_attr("mark", self._draw.choice([1, "y" * 20_000]), lasting=True)
        self.seen.append(self._part.get_attr("mark"))

    def calls(self) -> None:
        some = self._some()
        call = self._part.apply_async(lambda env: (env.tag, env.steps), env_ids=some)
        self._part.send(self._actions())
        found = call.result()
        self.seen.append([tag for tag, _ in found] if self._resets_ahead else found)
        self._note(self._part.recv())

    def states(self) -> None:
        some = self._some()
        states = self._part.get_state(some, state_fns="attributes")
        self.step()
        self._note(self._part.set_state(states, some))

    def fork(self) -> None:
        some = self._some()
        self._note(self._part.fork_state(some[0], some, state_fns="attributes"))

    def replace(self) -> None:
        some = self._some()
        self._part.replace(some, [(lambda tag=i: StormEnv(100 + tag, LENGTH)) for i in some])  # type: ignore[misc]
        self._note(self._part.reset(env_ids=some))

    def rollout(self) -> None:
        last = self._draw.randrange(6)
        rollout = self._part.rollout(4)
        for t, step in enumerate(rollout):
            step.act(self._actions())
            if t == last:
                break
        rollout.close()
        valid = rollout.valid
        self.seen.append((rollout.obs[:-1][valid][:, self._columns].tolist(), rollout.rewards[valid].tolist()))


def drawn_options(seed: int) -> dict[str, Any]:
    draw = random.Random(seed)
    options: dict[str, Any] = {
        "autoreset": draw.choice(["next_step", "same_step"]),
        "seeding": draw.choice(["gymnasium", "per_episode"]),
        "faults": draw.choice(["raise", FaultPolicy("restart", max_restarts=OPERATIONS, backoff=0)]),
        "num_workers": draw.choice([2, 3, 6]),
        "frames": draw.choice([1, 4]),
        "object_bytes": draw.choice([4096, 1 << 16]),
    }
    if draw.random() < 0.5:
        options["extras"] = {"steps": lambda env: env.steps}
    if options["autoreset"] == "next_step" and draw.random() < 0.5:
        options["resets_ahead"] = True
    return options


def lives(seed: int, backend: Any) -> list[Any]:
    """Runs a life in each part of a pool: in threads, or with the serial backend one after another.

    Returns what the operations have returned.
    """
    options = drawn_options(seed)
    factories = [(lambda tag=i: StormEnv(tag, LENGTH)) for i in range(ENVS)]  # type: ignore[misc]
    with Pool(factories, backend=backend, **options) as pool:
        ahead = "resets_ahead" in options
        drawn = [Life(part, seed + i, resets_ahead=ahead) for i, part in enumerate(pool.split(2 + seed % 2))]
        if backend == "serial":
            return [life.run() for life in drawn]
        with ThreadPoolExecutor(len(drawn)) as threads:
            return list(threads.map(Life.run, drawn))


def seeds() -> Iterator[int]:
    end = time.monotonic() + 60 * MINUTES
    yield from range(FIRST, FIRST + POOLS)
    seed = FIRST + POOLS
    while time.monotonic() < end:
        yield seed
        seed += 1


@pytest.mark.watchdog(600 + 60 * MINUTES)
@pytest.mark.parametrize("backend", ["process", "thread"])
def test_parts_in_threads_return_the_same_as_one_after_another(backend: str) -> None:
    for seed in seeds():
        expected, got = lives(seed, "serial"), lives(seed, backend)
        assert got == expected, f"seed {seed}: {drawn_options(seed)}"
