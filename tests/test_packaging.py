"""Building, installing and checking remuda, and the name of its distribution."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

import remuda

ROOT = Path(__file__).resolve().parents[1]

# -- building and installing ---------------------------------------------------------------------------


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


# -- the name, because `remuda` is another project's package on PyPI -----------------------------------


NAME = "remuda-rl"
FOLDERS = (".github", "benchmarks", "docs", "examples", "packaging", "src/remuda", "tests")
SUFFIXES = (".md", ".py", ".toml", ".txt", ".yml")


def files() -> Iterator[Path]:
    yield from (ROOT / name for name in ("CITATION.cff", "CONTRIBUTING.md", "Makefile", "README.md", "pyproject.toml"))
    yield from (path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in SUFFIXES)


def requirements(text: str) -> Iterator[str]:
    """Yields the requirements after each `pip install`, without quotes."""
    for line in re.findall(r"pip(?:\"?,)? \"?install([^`\n]*)", text):
        yield from (word.strip("'\"") for word in line.split())


def test_the_installed_distribution_has_the_name_and_the_version_of_the_citation() -> None:
    assert f'\nname = "{NAME}"' in (ROOT / "pyproject.toml").read_text()
    assert metadata.version(NAME) == remuda.__version__
    assert f"\nversion: {remuda.__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_a_release_has_its_part_of_the_changelog(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "packaging", tmp_path / "packaging")
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## Unreleased\n\n- new\n\n## 0.1.0 (a day)\n\n- first\n")

    def notes_of(version: str) -> subprocess.CompletedProcess[str]:
        script = tmp_path / "packaging/release_notes.py"
        return subprocess.run([sys.executable, script, version], capture_output=True, text=True, check=False)

    assert notes_of("0.1.0").stdout == "- first\n"
    missing = notes_of("0.2.0")
    assert missing.returncode != 0 and "expected a heading '## 0.2.0'" in missing.stderr


def test_workflows_pin_actions_by_commit() -> None:
    """A tag can be moved to other code. Each hash is followed by its version, which Dependabot reads."""
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        for action in re.findall(r"uses: (.*)", path.read_text()):
            assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action), (path, action)


def test_commands_name_the_distribution_and_its_extras() -> None:
    extras = set(metadata.metadata(NAME).get_all("Provides-Extra") or [])
    for path in files():
        text = path.read_text()
        for requirement in requirements(text):
            if (ours := re.match(r"(\.|remuda[\w-]*)(?:\[([\w,]*)\])?(?![\w/])", requirement)) is not None:
                assert ours[1] in (".", NAME), (path, requirement)
                assert {*(ours[2] or "").split(",")} - {""} <= extras, (path, requirement)
        assert not re.search(rf"\bremuda\[({'|'.join(extras)})\]", text), path
        assert path.suffix != ".txt" or not re.search(r"^remuda(?!-rl)", text, re.MULTILINE), path


def test_make_installs_the_wheel_that_it_has_built() -> None:
    """A name makes pip look for the package in an index, and the index may have another project's."""
    assert "remuda" not in " ".join(requirements((ROOT / "Makefile").read_text()))


# -- `make check` finds the tests of a change ----------------------------------------------------------


def test_a_change_has_tests_of_its_own_and_of_folders_that_import_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    check = runpy.run_path("packaging/check.py")
    for changed, tests in {
        "src/remuda/_engine/pool/part.py": {"tests/engine/pool"},
        "src/remuda/_training/tasks/task.py": {"tests/training"},
        "src/remuda/sb3/part.py": {"tests/faces/sb3"},
        "src/remuda/errors.py": {"tests/test_public_names.py", "tests/test_reference.py"},
        "tests/wire/test_blobs.py": {"tests/wire/test_blobs.py"},
        "tests/vector_reward_envs.py": {"tests/faces/test_vector_rewards.py"},
        "docs/pool.md": {"tests/test_docs.py"},
    }.items():
        assert tests <= set(check["_own_tests"]([Path(changed)])), changed
    found = set(check["_tests_of_importers"]([Path("src/remuda/_wire/codec.py")]))
    assert {"tests/worker", "tests/engine/startup"} <= found


# -- systems without POSIX features --------------------------------------------------------------------


ELSEWHERE = ROOT / "packaging" / "elsewhere.py"


@pytest.mark.skipif(sys.platform != "linux", reason="it takes away what Linux has")
def test_remuda_works_without_posix_modules() -> None:
    run = subprocess.run([sys.executable, ELSEWHERE], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout.endswith("the same without what only POSIX systems have\n")
