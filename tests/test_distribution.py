"""All texts call the distribution by its name, because `remuda` is another project's package on PyPI."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import remuda

ROOT = Path(__file__).resolve().parents[1]
NAME = "remuda-rl"
FOLDERS = (".github", "benchmarks", "docs", "examples", "packaging", "src/remuda", "tests")
SUFFIXES = (".md", ".py", ".toml", ".txt", ".yml")


def files() -> Iterator[Path]:
    yield from (ROOT / name for name in ("CITATION.cff", "CONTRIBUTING.md", "Makefile", "README.md", "pyproject.toml"))
    yield from (path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in SUFFIXES)


def declared_extras() -> set[str]:
    return set(metadata.metadata(NAME).get_all("Provides-Extra") or [])


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
    extras = declared_extras()
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
