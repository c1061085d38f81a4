"""The frameworks that faces stand for, and the error that says how to install a missing one."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec

from remuda.errors import MissingFrameworkError


@dataclass(frozen=True)
class Framework:
    """What a face needs beside remuda.

    Attributes:
        face: The face's package.
        name: As its authors write it.
        modules: What it is imported as; the first is the one that says whether it is installed.
        install: The command that installs it.
    """

    face: str
    name: str
    modules: tuple[str, ...]
    install: str

    @property
    def is_installed(self) -> bool:
        """Found out without importing it."""
        return _is_installed(self.modules[0])

    @contextmanager
    def needed(self) -> Iterator[None]:
        """Raise ``MissingFrameworkError`` where an import within fails for want of the framework."""
        try:
            yield
        except ModuleNotFoundError as error:
            missing = error.name or ""
            top = missing.partition(".")[0]
            if top not in self.modules:  # something else is missing, which says so best itself
                raise
            lack = "which is not installed"
            if _is_installed(top):
                lack = f"but what is installed as {top!r} has no {missing!r}"
            text = f"{self.face} needs {self.name}, {lack}: {self.install}"
            raise MissingFrameworkError(text, name=missing) from error


def _is_installed(module: str) -> bool:
    return sys.modules[module] is not None if module in sys.modules else find_spec(module) is not None


FRAMEWORKS = {
    framework.face: framework
    for framework in (
        Framework("remuda.alf", "ALF", ("alf",), "pip install git+https://github.com/HorizonRobotics/alf@pytorch"),
        Framework("remuda.ding", "DI-engine", ("ding",), "pip install DI-engine"),
        Framework("remuda.mlagents", "Unity ML-Agents", ("mlagents", "mlagents_envs"), "pip install mlagents"),
        Framework("remuda.sb3", "Stable-Baselines3", ("stable_baselines3",), "pip install stable-baselines3"),
    )
}
"""By face. Gymnasium is no question: remuda itself needs it."""
