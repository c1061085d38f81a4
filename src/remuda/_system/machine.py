"""Describes the machine and the software of a measurement."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

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
