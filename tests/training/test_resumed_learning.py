"""PPO learns the same weights, to the last bit, whether or not workers are killed and hang, if episodes are resumed."""

from __future__ import annotations

import importlib
import os
import random
import signal
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from drawn import MINUTES, SEED
from programs import kill

import remuda
from remuda import FaultPolicy, Pool

torch = pytest.importorskip("torch")
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def learn(updates: int, accidents: random.Random | None) -> tuple[list[bytes], int]:
    """Trains the example's PPO. Returns the weights, and the number of restarts. `accidents`: draws kills and hangs."""
    example = importlib.import_module("torch_ppo")
    torch.manual_seed(0)
    faults = FaultPolicy("resume", step_timeout=1.0, reset_timeout=1.0, max_restarts=10**6, backoff=0)
    # the workers import no PyTorch, since the factory is not a function of this module
    fns = [partial(gymnasium.make, "CartPole-v1")] * 4
    with Pool(fns, faults=faults, num_workers=None, log_advice=False) as pool:
        pool.reset(seed=0)
        agent = example.Agent(pool.single_observation_space, pool.single_action_space)
        optimizer, device = torch.optim.Adam(agent.parameters(), lr=1e-3), torch.device("cpu")
        policy, hangs = example.policy_of(agent, device), 0

        def disturbed(obs: Any) -> Any:
            nonlocal hangs
            if accidents is not None and accidents.random() < 0.04:
                worker = accidents.choice(pool.workers)
                if hangs < 1 + MINUTES and accidents.random() < 0.1 and worker.pid is not None and worker.is_alive():
                    os.kill(worker.pid, signal.SIGSTOP)
                    hangs += 1
                elif worker.pid is not None and worker.is_alive():
                    kill(pool, worker.index)
            return policy(obs)

        for _, rollout in zip(range(updates), remuda.collect(pool, disturbed, steps=32, parts=1), strict=False):
            assert not rollout.faults
            example.learn(agent, optimizer, rollout, device)
        return [tensor.numpy().tobytes() for tensor in agent.state_dict().values()], pool.stats().restarts


def test_kills_and_hangs_change_no_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    threads, updates = torch.get_num_threads(), round(10 * (1 + 10 * MINUTES))
    torch.set_num_threads(1)  # sums of more threads may differ in the last bit
    try:
        expected, _ = learn(updates, None)
        weights, restarts = learn(updates, random.Random(SEED))
    finally:
        torch.set_num_threads(threads)
    assert restarts >= 5
    assert weights == expected
