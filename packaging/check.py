"""Runs the tests that the changes since the branch point touch, within two minutes on two cores (`make check`).

These are the tests of each changed folder, then those of the folders that import it. The table of CPU seconds in
CONTRIBUTING.md says how many fit. The program prints what it leaves out.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

_SECONDS = 150  # CPU seconds of tests, beside those of the style and the types
_OF_THE_CORE = ["tests/engine/pool", "tests/worker"]  # Python tests that reach most of `src/core`
_ELSEWHERE = ("tests/cluster", "tests/faces/ding", "tests/faces/mlagents")  # these need minutes or other environments
_ROW = re.compile(r"^\| `([^`]+)` \| (\d+) \|$", re.MULTILINE)


def main() -> int:
    costs = {group: int(cpu) for group, cpu in _ROW.findall(Path("CONTRIBUTING.md").read_text("utf-8"))}
    changed = [Path(name) for name in _changed()]
    wanted = list(dict.fromkeys([*_own_tests(changed), *_tests_of_importers(changed)]))
    chosen, left_out, sum_of_costs = [], [], 0
    for tests in wanted:
        cost = sum(cpu for group, cpu in costs.items() if group == tests or group.startswith(f"{tests}/"))
        fits = (not chosen or sum_of_costs + cost <= _SECONDS) and not tests.startswith(_ELSEWHERE)
        (chosen if fits else left_out).append(tests)
        sum_of_costs += cost if fits else 0
    code = 0
    if any(path.parts[:2] in (("src", "core"), ("tests", "core")) for path in changed):
        code |= subprocess.call(["make", "--no-print-directory", "core-test"])
    if chosen:
        print("tests:", *chosen, flush=True)
        code |= subprocess.call([sys.executable, "-m", "pytest", "-q", "--numprocesses", "4", *chosen])
    rest = ", ".join(left_out) or "tests of folders that import nothing of the change"
    print("left out; `make test` has them:", rest)
    return code


def _changed() -> Iterator[str]:
    """Yields the files that differ from the branch point, or from the last commit on the main branch."""
    upstream = next((name for name in ("origin/main", "main") if _git("rev-parse", "--verify", "-q", name)), "HEAD")
    yield from _git("diff", "--name-only", (_git("merge-base", "HEAD", upstream) or ["HEAD"])[0])
    yield from _git("ls-files", "--others", "--exclude-standard")


def _git(*command: str) -> list[str]:
    return subprocess.run(["git", *command], stdout=subprocess.PIPE, text=True, check=False).stdout.splitlines()


def _own_tests(changed: list[Path]) -> Iterator[str]:
    for path in changed:
        if path.parts[0] == "tests" and path.name.startswith("test_"):
            yield str(path)
        elif path.parts[0] == "tests" and path.suffix == ".py":
            yield from _files_with(rf"^(from|import) {path.stem}\b", "tests")
        elif path.parts[:2] == ("src", "core"):
            yield from _OF_THE_CORE
        elif path.parts[:2] == ("src", "remuda"):
            yield _tests_of(path)
            yield "tests/test_reference.py"
        elif path.suffix == ".md":
            yield "tests/test_docs.py"


def _tests_of_importers(changed: list[Path]) -> Iterator[str]:
    for folder in {path.parent for path in changed if path.parts[:2] == ("src", "remuda") and len(path.parts) > 3}:
        module = re.escape(".".join(folder.parts[1:]))
        yield from {_tests_of(Path(name)) for name in _files_with(rf"^\s*(from|import) {module}\b", "src/remuda")}


def _tests_of(source: Path) -> str:
    """Returns the folder of tests that mirrors the nearest folder of a file in `src/remuda`."""
    folders = [part.lstrip("_") for part in source.parent.parts[2:]]
    while folders and not Path("tests", *folders).is_dir() and not Path("tests/faces", *folders).is_dir():
        folders.pop()
    found = Path("tests", *folders) if Path("tests", *folders).is_dir() else Path("tests/faces", *folders)
    return str(found) if folders else "tests/test_public_names.py"


def _files_with(pattern: str, top: str) -> list[str]:
    return sorted(_git("grep", "-lE", pattern, "--", f"{top}/**.py", f"{top}/*.py"))


if __name__ == "__main__":
    sys.exit(main())
