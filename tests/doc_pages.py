"""Reads documentation pages, and runs the code of all of them in one program, because most of the time would be spent
on starting programs.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

# Reads a page per line, and answers each with its failure. Each page has its own names, directory and output, and all
# pools that it opened are closed after it.
PROGRAM = """
import gc, json, os, sys, traceback, warnings
from gymnasium.envs.registration import registry

answers = os.fdopen(os.dup(1), "w")
sys.path += sys.argv[1:]
before = dict(os.environ), list(sys.path), dict(registry)

def run(page):
    os.chdir(page["directory"])
    output = os.open(page["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(output, stream)
    os.close(output)
    namespace, line = {"__name__": "docs"}, 0
    try:
        for line, code in page["blocks"]:
            exec(page["prelude"], namespace)
            exec(compile("\\n" * (line - 1) + code, page["name"], "exec"), namespace)
            for value in list(namespace.values()):
                if type(value).__module__.startswith("remuda") and hasattr(value, "close"):
                    value.close()
        exec(page["epilogue"], namespace)
        return ""
    except BaseException:
        traceback.print_exc()
        return f"the block at {page['name']}:{line} fails"
    finally:
        namespace.clear()
        os.environ.clear()
        os.environ.update(before[0])
        sys.path[:] = before[1]
        registry.clear()  # each worker is told what is in it beside Gymnasium's own
        registry.update(before[2])
        gc.collect()
        sys.stdout.flush()
        sys.stderr.flush()

for told in sys.stdin:
    with warnings.catch_warnings():  # workers import what filters name: frameworks add some
        failed = run(json.loads(told))
    print(json.dumps(failed), file=answers, flush=True)
"""


def written(page: Path) -> str:
    """Returns what was written for a page: without the docstrings in it, and with empty lines in their place."""
    inserted = re.compile(r"^<!-- docstring.*?^<!-- end -->$", re.MULTILINE | re.DOTALL)
    return inserted.sub(lambda found: "\n" * found[0].count("\n"), page.read_text())


def output_blocks(page: Path) -> list[str]:
    """Returns the blocks of output in a page."""
    return re.findall(r"^```text\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


def shape(output: str) -> str:
    """Returns output with one space between words, and without what varies: process ids."""
    return re.sub(r"\bpid \d+", "pid", " ".join(output.split()))


def filled(text: str, contents: Mapping[str, str]) -> str:
    """Returns a page with new contents between `<!-- name -->` and the next `<!-- end -->`, by name."""
    for name, content in contents.items():
        pattern = rf"(<!-- {name} -->\n).*?(<!-- end -->)"
        text, found = re.subn(pattern, lambda m, new=content: f"{m[1]}\n{new}\n\n{m[2]}", text, flags=re.DOTALL)  # type: ignore[misc]
        assert found == 1, f"expected one place for {name!r}, got {found}"
    return text


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, ["---"] * len(head), *lines])


class Reader:
    """The program that runs pages. As a context manager it checks the program's end.

    `paths`: where the program looks for modules that are not installed. `cluster`: the address of a Ray cluster.
    """

    def __init__(self, paths: Sequence[str] = (), cluster: str = "local") -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *paths],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # One thread, because several would wait for each other in loops. At Ray's niceness of 15, the actors of a
            # cluster that a page starts would get next to nothing of a busy core.
            env={**os.environ, "OMP_NUM_THREADS": "1", "RAY_ADDRESS": cluster, "RAY_worker_niceness": "0"},
        )

    def read(
        self, name: str, blocks: Sequence[tuple[int, str]], directory: Path, prelude: str = "", epilogue: str = ""
    ) -> None:
        """Runs blocks of (first line number, code), each after the prelude. Raises AssertionError if one fails."""
        output = directory.with_name(f"{directory.name}.output")
        page = {"name": name, "blocks": blocks, "prelude": prelude, "epilogue": epilogue}
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps({**page, "directory": str(directory), "output": str(output)}) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        written = output.read_text()
        assert answer, f"{name} has ended the program\n{written}"
        assert json.loads(answer) == "", written
        assert "Logging error" not in written, written

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        _, written = self._process.communicate()
        assert error is not None or (self._process.returncode, written) == (0, "")
