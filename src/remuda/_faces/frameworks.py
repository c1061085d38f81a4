"""The frameworks that faces imitate, their imports, and the error for a missing one, which names the remedy."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from remuda.errors import MissingFrameworkError


@dataclass(frozen=True)
class Framework:
    """A framework that a face needs.

    Attributes:
        face: The face's package.
        name: The framework's name, as its authors write it.
        modules: Its modules; the first shows whether it is installed.
        install: The command that installs it.
    """

    face: str
    name: str
    modules: tuple[str, ...]
    install: str

    @property
    def is_installed(self) -> bool:
        """Whether the framework is installed. The framework is not imported."""
        return _is_installed(self.modules[0])

    @contextmanager
    def needed(self) -> Iterator[None]:
        """A context manager: raises ``MissingFrameworkError`` if an import of the framework fails inside the block."""
        try:
            yield
        except ModuleNotFoundError as error:
            missing = error.name or ""
            top = missing.partition(".")[0]
            if top not in self.modules:  # another package is missing: the original error names that package
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
"""The frameworks by face, except Gymnasium, which remuda itself needs."""


def lazily(
    package: str, names: Collection[str], modules: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Returns the functions ``__getattr__`` and ``__dir__`` for a face's package.

    Names are imported when they are first used, because a worker needs only the face's worker module.

    Args:
        package: The face's package.
        names: The names that it exports.
        modules: The module of each name; all other names are in ``errors``.
    """
    framework = FRAMEWORKS[package]

    def load(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        with framework.needed():
            return getattr(import_module(f"{package}.{modules.get(name, 'errors')}"), name)

    def listed() -> list[str]:
        """Returns only the names that can be imported: ``help()`` and similar tools import each listed name."""
        present = vars(sys.modules[package])
        return sorted({*present, *names} if framework.is_installed else present)

    return load, listed
