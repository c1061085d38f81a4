"""Envs that leak memory. Workers import this module by name."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
from pool_envs import CountingEnv

LEAK = 64 << 20  # bytes per episode


class LeakyEnv(CountingEnv):
    """Leaks memory in each episode, in its own process or with `outside=True` in a child process."""

    def __init__(self, tag: int, length: int, *, outside: bool = False) -> None:
        super().__init__(tag, length)
        self.outside, self.leaked, self.started = outside, list[Any](), list[Any]()

    def reset(self, **arguments: Any) -> Any:
        if self.outside:
            program = f"x = bytearray({LEAK}); print(1, flush=True); input()"
            simulator = subprocess.Popen([sys.executable, "-c", program], stdin=-1, stdout=-1)
            assert simulator.stdout is not None
            simulator.stdout.readline()  # the child has allocated its memory
            self.started.append(simulator)
        else:
            self.leaked.append(np.ones(LEAK, np.uint8))
        return super().reset(**arguments)
