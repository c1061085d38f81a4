"""Direct bases of classes: some libraries recognise an env by `type(env).__bases__`, and not by `isinstance`."""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Any

import pytest

from remuda._faces.frameworks import FRAMEWORKS

# some of the libraries use deprecated functions when they are imported
pytestmark = pytest.mark.filterwarnings("ignore")

LIBRARIES = {
    "gymnasium": ("gymnasium",),
    "pettingzoo": ("pettingzoo", "stable_baselines3"),
    **{face.removeprefix("remuda."): framework.modules for face, framework in FRAMEWORKS.items()},
}
# Classes of envs that users receive from functions.
UNNAMED = {
    "gymnasium": ["part.AsyncVectorEnvPart"],
    "pettingzoo": ["sb3.AgentsVecEnv"],
    "sb3": ["subproc_vec_env.SubprocVecEnvPart", "pool_vec_env._PoolVecEnv"],
}


def library_bases(bases: tuple[type[Any], ...], libraries: tuple[str, ...]) -> list[type[Any]]:
    return [base for base in bases if base.__module__.partition(".")[0] in libraries]


def classes_of(face: str) -> list[type[Any]]:
    package = import_module(f"remuda.{face}")
    public = [found for name in package.__all__ if inspect.isclass(found := getattr(package, name))]
    paths = [f"remuda.{face}.{path}".rpartition(".") for path in UNNAMED.get(face, ())]
    unnamed = [getattr(import_module(module), name) for module, _, name in paths]
    return [found for found in [*public, *unnamed] if found.__module__.startswith("remuda.")]


@pytest.mark.parametrize("face", LIBRARIES)
def test_a_subclass_of_a_librarys_class_has_one_as_a_direct_base(face: str) -> None:
    for library in LIBRARIES[face]:
        pytest.importorskip(library, reason=f"{face} is not tested in this environment")
    derived = [found for found in classes_of(face) if library_bases(found.__mro__, LIBRARIES[face])]
    assert derived
    assert [found for found in derived if not library_bases(found.__bases__, LIBRARIES[face])] == []
