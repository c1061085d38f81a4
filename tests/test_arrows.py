"""The allowed imports between the packages of remuda."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "remuda"

FACES = {"alf", "ding", "gymnasium", "mlagents", "pettingzoo", "sb3"}
# Each package, and the packages that it may import. `remuda` stands for the engine's public names.
ARROWS = {
    **{name: set() for name in ("_wording", "_keywords", "_copying", "_factories", "_error_frames", "_seeds", "_core")},
    "errors": {"_wording"},
    "__main__": {"cli"},
    "_system": {"_core", "errors"},
    "_tensors": {"_core", "_system", "errors"},
    "_wire": {"_core", "_system", "_wording", "errors"},
    "_crash": {"_core", "_wire", "errors"},
    "_progress": {"errors", "_wording"},
    "_relay": {"_core", "_system", "_wire", "_progress"},
    "_worker": {"_core", "_system", "_wire", "_relay", "_crash", "_seeds", "_wording", "errors"},
    "_backends": {"_core", "_wire", "_relay", "_progress", "_worker", "_system", "errors", "_wording"},
    "_engine": {
        *("_core", "_wire", "_relay", "_worker", "_system", "_crash", "_backends", "_tensors", "_progress", "errors"),
        *("_keywords", "_copying", "_factories", "_seeds", "_wording", "_error_frames"),
    },
    "stats": {"_engine"},
    "_faces": {"remuda", "stats", "errors", "_copying", "_factories", "_system", "_wire"},
    "alf": {"remuda", "errors", "_faces", "_factories", "_keywords", "_wording"},
    "ding": {"remuda", "errors", "_faces", "_factories", "_keywords", "_videos"},
    "gymnasium": {"remuda", "errors", "_faces", "_wire", "_keywords"},
    "mlagents": {"remuda", "errors", "_faces", "_wire", "_keywords"},
    "pettingzoo": {"remuda", "errors", "_faces", "_wire", "_keywords", "_wording"},
    "sb3": {"remuda", "errors", "_faces", "_factories", "_keywords", "_wording"},
    "_bench": {"remuda", "_factories", "_system"},
    "_cluster": {  # a backend, too
        *("remuda", "stats", "errors", "_wording", "_core", "_wire", "_relay", "_worker", "_backends", "_engine"),
        *("_keywords", "_factories", "_progress", "_training", "_system"),
    },
    "_training": {
        *("remuda", "errors", "_error_frames", "_seeds", "_wire", "_progress", "_videos", "_worker"),
        *("_keywords", "_factories", "_wording"),
    },
    "_replay": {"remuda", "errors", "_factories", "_wording", "_core", "_wire", "_worker", "_crash"},
    "_videos": {"_worker", "_factories", "_system", "errors"},
    "_watch": {"_core", "_wire", "_relay", "_engine"},
    "_doctor": {"remuda", "errors", "_engine", "_worker", "_crash", "_training"},
    "cli": {"remuda", "errors", "_bench", "_doctor", "_system", "_crash", "_replay", "_watch"},
}

# The packages of the engine, and of clusters. Each imports only itself and earlier ones of its package.
LAYERS = {
    "_engine": ("stats", "options", "batches", "supervision", "tracing", "commands", "startup", "rollouts", "pool"),
    "_cluster": ("shard", "ray", "driver"),
}


def imported(path: Path) -> set[str]:
    """Returns the modules and names that a file imports: also in functions, only for types, or by `import_module`."""
    found = set[str]()
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Import(names):
                found |= {alias.name for alias in names}
            case ast.ImportFrom(str(module), names, 0):
                found |= {f"{module}.{alias.name}" for alias in names}
            case ast.Call(ast.Name("import_module") | ast.Attribute(_, "import_module"), [ast.Constant(str(name)), *_]):
                found.add(name)
    return found


def packages(path: Path) -> set[str]:
    """Returns the packages that a file imports."""
    parts = [name.split(".") for name in imported(path)]
    return {name[1] if name[1:] and name[1] in ARROWS else "remuda" for name in parts if name[0] == "remuda"}


def files() -> list[Path]:
    return [path for path in sorted(PACKAGE.rglob("*.py")) if path != PACKAGE / "__init__.py"]


def test_packages_import_only_allowed_packages() -> None:
    for path in files():
        package = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        assert packages(path) <= ARROWS[package] | {package}, path


def module_of(path: Path) -> str:
    return ".".join(("remuda", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")


@pytest.mark.parametrize("package", LAYERS)
def test_packages_have_layers(package: str) -> None:
    layers = LAYERS[package]
    for place, layer in enumerate(layers):
        above = tuple(f"remuda.{package}.{name}." for name in layers[place + 1 :])
        for path in (PACKAGE / package / layer).glob("*.py"):
            assert not {name for name in imported(path) if name.startswith(above)}, path


def test_no_files_import_each_other_in_a_circle() -> None:
    modules = {module_of(path): imported(path) for path in files()}
    public = {f"remuda.{name.rpartition('.')[2]}": name for name in imported(PACKAGE / "__init__.py")}

    def module_with(name: str) -> str:
        name = public.get(name, name)
        return name if name in modules else name.rpartition(".")[0]

    graph = {module: {module_with(name) for name in names} - {module} for module, names in modules.items()}
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the files


def test_the_core_does_not_refer_to_gymnasium() -> None:
    for path in (ROOT / "src" / "core").rglob("*.?pp"):
        code = [line.split("//")[0] for line in path.read_text().splitlines()]
        assert "gymnasium" not in "\n".join(code).lower(), path


def test_macros_of_cpython_exist_in_the_stable_abi() -> None:
    """Only wheels for Python 3.12 and newer use the stable ABI, so other builds would not reveal a missing macro."""
    macro = re.compile(r"\bPy(?!Array_|DataType_|TypeNum_|BUF_|Exc_)[A-Z][A-Za-z]*_[A-Z]{2}\w*")
    header = ROOT / "src" / "core" / "python" / "numpy_api.hpp"
    known = set(macro.findall(header.read_text()))
    for path in (ROOT / "src" / "core").rglob("*.?pp"):
        text = path.read_text()
        used = set(macro.findall(text))
        assert used <= known, f"{path}: use a function of the limited API, or name one for it in {header.name}"
        includes = path == header or re.search(r'#include "python/(numpy_api|arrays)\.hpp"', text)
        assert not used or includes, f"{path} uses {used} and does not include {header.name}"


LEARNERS = ("torch", "stable_baselines3", "alf", "ding", "treetensor", "mlagents")
SHOWING = ("typer", "rich", "matplotlib")


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("remuda", (*LEARNERS, *SHOWING, "ray")),
        ("remuda.cli.app", SHOWING),
        ("remuda.alf.worker", ("torch", "stable_baselines3", "alf")),
        ("remuda.sb3.worker", ("torch", "stable_baselines3", "alf")),
        ("remuda.mlagents", ("torch", "mlagents")),
    ],
)
def test_an_import_imports_nothing_that_it_does_not_need(module: str, absent: tuple[str, ...]) -> None:
    """Neither does a face import its framework, nor the workers' side of a face a learner."""
    script = f"import sys, {module}; print([name for name in {absent!r} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


@pytest.mark.parametrize("pattern", ["src/core/**/*.?pp", "src/remuda/**/*.py", "tests/**/*.?pp", "tests/**/*.py"])
def test_no_file_is_longer_than_750_lines(pattern: str) -> None:
    lengths = {path: len(path.read_text().splitlines()) for path in ROOT.glob(pattern)}
    assert not {str(path.relative_to(ROOT)): length for path, length in lengths.items() if length > 750}


def test_tests_mirror_the_folders_of_the_source() -> None:
    """Tests of faces are in `tests/faces`. Each other package has a folder of its name, without the underscore."""
    folders = {path.parent.relative_to(ROOT / "tests") for path in ROOT.glob("tests/*/**/test_*.py")}
    packages = {Path(*path.relative_to(PACKAGE).parts) for path in PACKAGE.rglob("*/") if path.is_dir()}
    names = {package: str(package).removeprefix("_") for package in packages}
    mirrored = {Path("faces", package) if str(package) in FACES else Path(name) for package, name in names.items()}
    assert folders - {Path("faces"), Path("soak")} <= mirrored
