"""Building and installing remuda: errors name missing tools, and dependencies have no upper bounds."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def find_tool(name: str) -> str:
    found = shutil.which(name, path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    assert found is not None
    return found


def configure(folder: Path, *options: str, **variables: str) -> str:
    """Returns the errors of CMake when its configuration of the build fails."""
    command = [find_tool("cmake"), "-S", str(ROOT), "-B", str(folder / "build"), "-G", "Ninja"]
    command += [f"-DCMAKE_MAKE_PROGRAM={find_tool('ninja')}", f"-DPython_EXECUTABLE={sys.executable}", *options]
    environment = {name: value for name, value in os.environ.items() if name not in ("CXX", "CC")}
    run = subprocess.run(command, capture_output=True, text=True, env={**environment, **variables}, check=False)
    assert run.returncode != 0, run.stdout
    return " ".join(run.stderr.split())


def test_a_missing_compiler_and_missing_headers_are_named_with_their_packages(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    errors = configure(tmp_path, PATH=str(tmp_path / "empty"))
    assert "expected a C++20 compiler, found none. Install one: Debian, Ubuntu: apt-get install g++" in errors
    assert "Fedora, RHEL: dnf install gcc-c++" in errors
    assert "In a clone, `make demo` brings one from PyPI" in errors
    errors = configure(tmp_path / "other", f"-DPython_INCLUDE_DIR={tmp_path / 'empty'}")
    package = f"python{'.'.join(map(str, sys.version_info[:2]))}-dev"
    assert f"found no Python.h. Install them: Debian, Ubuntu: apt-get install python3-dev (or {package}" in errors
    assert "Fedora, RHEL: dnf install python3-devel" in errors


def test_the_demo_announces_its_slow_steps() -> None:
    options = ["--dry-run", "--always-make", "COMPILER=build/compiler/c++", "VENV=none", "demo"]
    run = subprocess.run(["make", *options], cwd=ROOT, capture_output=True, text=True, check=True)
    lines = run.stdout.splitlines()
    for text, command in {
        "making the environment none": "-m venv none",
        "found no C++ compiler: installing zig": "pip install --quiet",
        "compiling remuda, silently: some minutes": "pip wheel",
        "installing remuda and Gymnasium in none": "pip install --quiet build/wheel",
    }.items():
        announced = next(i for i, line in enumerate(lines) if text in line)
        assert any(command in line for line in lines[announced + 1 : announced + 5]), text


def test_a_build_writes_nothing_into_the_checkout() -> None:
    """The checkout may be read-only. Without a setting, scikit-build-core builds in a temporary folder."""
    assert not re.search(r"^build-dir", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)


def test_dependencies_of_users_have_no_upper_bounds() -> None:
    requirements = metadata.requires("remuda-rl")
    assert requirements
    for requirement in requirements:
        assert re.fullmatch(r"[\w.-]+>=[\d.]+( *; *extra == [\"']\w+[\"'])?", requirement), requirement
    assert not [one for one in requirements if re.match("torch|typer|pydantic", one)]


@pytest.mark.parametrize("folder", ["", "faces/ding_", "faces/mlagents_", "faces/old_gymnasium_"])
def test_pytorch_is_pinned_for_the_tests(folder: str) -> None:
    text = (ROOT / "tests" / f"{folder}requirements.txt").read_text()
    assert re.search(r"^torch==[\d.]+$", text, re.MULTILINE)
