"""Envs that keep memory. Workers import this by name."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
from pool_envs import CountingEnv

LEAK = 64 << 20  # bytes an episode


class LeakyEnv(CountingEnv):
    """Each of its episodes keeps memory; in a process of its own, if that is asked for."""

    def __init__(self, tag: int, length: int, *, outside: bool = False) -> None:
        super().__init__(tag, length)
        self.outside, self.leaked, self.started = outside, list[Any](), list[Any]()

    def reset(self, **arguments: Any) -> Any:
        if self.outside:
            program = f"x = bytearray({LEAK}); print(1, flush=True); input()"
            simulator = subprocess.Popen([sys.executable, "-c", program], stdin=-1, stdout=-1)
            assert simulator.stdout is not None
            simulator.stdout.readline()  # it has its memory by now
            self.started.append(simulator)
        else:
            self.leaked.append(np.ones(LEAK, np.uint8))
        return super().reset(**arguments)
