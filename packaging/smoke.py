"""Tests a wheel, in an environment with only the wheel and its requirements.

    python packaging/smoke.py

Envs are stepped on every backend of this system, and must give the same rewards on each. On Linux a worker process is
killed: its envs must come back, and no process may be left when the pool is closed. On other systems the process
backend must raise `NotImplementedError`.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

import gymnasium
import numpy as np

import remuda

HAS_PROCESSES = sys.platform == "linux"
PATIENCE = 60.0  # the seconds from a kill within which the faults must be reported and the successor must run
NUM_ENVS = 4


class Walk(gymnasium.Env[Any, Any]):
    """A random walk with episodes of ten steps."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float64)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.at, self.left = np.zeros(3), 10
        return self.at.copy(), {}

    def step(self, action: Any) -> Any:
        self.at += self.np_random.normal(size=3) + int(action)
        self.left -= 1
        return self.at.copy(), float(self.at.sum()), False, self.left == 0, {"left": self.left}


def rewards(backend: Any, **options: Any) -> list[list[float]]:
    """Steps a pool 50 times. Returns the rewards of each step."""
    with remuda.Pool([Walk] * NUM_ENVS, backend=backend, **options) as pool:
        pool.reset(seed=0)
        actions = np.arange(NUM_ENVS) % 2
        return [pool.step(actions).rewards.tolist() for _ in range(50)]


def kill_a_worker() -> None:
    """Kills one of two workers, and checks that its envs come back and that no process is left."""
    with remuda.Pool([Walk] * NUM_ENVS, num_workers=2, faults="restart") as pool:
        pool.reset(seed=0)
        os.kill(pool.workers[0].pid, signal.SIGKILL)
        killed_at, faults = time.monotonic(), 0
        while pool.stats().restarts == 0 or faults < NUM_ENVS // 2:
            assert time.monotonic() - killed_at < PATIENCE, f"{pool.stats()}, {faults} faults"
            batch = pool.step(np.zeros(NUM_ENVS, np.int64))
            faults += sum("fault" in batch.infos[i] for i in range(NUM_ENVS))
        pids = [worker.pid for worker in pool.workers]
    left = [pid for pid in pids if os.path.exists(f"/proc/{pid}")]
    assert not left, f"expected no process after close(), got {left}"


def refuse_processes() -> None:
    told = ""
    try:
        remuda.Pool([Walk], backend="process")
    except NotImplementedError as error:
        told = str(error)
    assert "use backend='thread' or 'serial'" in told, f"expected worker processes to be refused, got {told!r}"


def main() -> None:
    expected = rewards("serial")
    assert len(expected) == 50
    assert rewards("thread") == expected
    if HAS_PROCESSES:
        assert rewards("process") == expected
        assert rewards("process", num_workers=2, start_method="spawn") == expected
        kill_a_worker()
    else:
        refuse_processes()
    print(f"remuda {remuda.__version__} on Python {sys.version.split()[0]}, NumPy {np.__version__}: all is well")


if __name__ == "__main__":
    main()
