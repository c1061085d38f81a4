"""The machine and the installed software, and the kind of workers that they support."""

from __future__ import annotations

import functools
import logging
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

_PACKAGES = (
    "remuda-rl",
    "gymnasium",
    "numpy",
    "stable-baselines3",
    "tianshou",
    "pufferlib-core",
    "DI-engine",
    "torchrl",
    "envpool",
    "ale-py",
    "mujoco",
    "torch",
)


def describe() -> str:
    """Returns a description of the machine and of Python in one line, to show under measurements."""
    return f"{cpu_model()}, {platform.system()}, Python {platform.python_version()}"


def cpu_model(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Returns the processor's name, or its architecture if the name is not known."""
    try:
        lines = cpuinfo.read_text("utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def versions() -> dict[str, str]:
    """Returns the versions of the measured libraries that are installed."""
    return {package: found for package in _PACKAGES if (found := _version(package)) is not None}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def backend_here(*, warns: bool = True) -> Literal["process", "thread"]:
    """Returns "process" on Linux, and "thread" elsewhere. `warns`: whether to log the consequence, once a program."""
    if sys.platform == "linux":
        return "process"
    if warns:
        _warn()
    return "thread"


@functools.cache
def _warn() -> None:
    logging.getLogger("remuda").warning(
        "remuda: expected Linux, which worker processes need, got %s: envs run in threads of this process instead. "
        "They share the GIL, so that steps written in Python do not run in parallel, and an env that crashes its "
        "process crashes the program. Pass backend='thread' to silence this",
        sys.platform,
    )


def is_installed(package: str) -> bool:
    """Returns whether a package can be imported, without importing it."""
    try:
        return find_spec(package) is not None
    except ValueError:  # raised if sys.modules has None for the package, which prevents its import
        return False
