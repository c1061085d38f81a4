"""What the programs of tests begin with: `from script_head import *`."""

# ruff: noqa: F401, F403

import ctypes
import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from pool_envs import *

from remuda import *
from remuda._engine.options import settings

settings.DEFAULT_NUM_WORKERS = None  # as in `conftest.py`


def say(value: Any) -> None:
    sys.stdout.flush()
    os.write(1, json.dumps(value).encode() + b"\n")  # at once: workers say something at the same time


def pids(pool: Any) -> list[int]:
    return [worker.pid for worker in pool.workers]


def hold_the_gil(*_: Any) -> None:
    """In native code, for ever."""
    ctypes.PyDLL(None).pause()


def burn_the_cpu(*_: Any) -> None:
    """In native code, for as good as ever, with the GIL."""
    re.match("(a+)+$", "a" * 100 + "b")


def wait_for_ever(*_: Any) -> None:
    threading.Event().wait()
