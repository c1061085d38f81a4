"""Checks how plain the English of docstrings, comments and documentation is, by habits that make prose hard to read.

    python packaging/prose.py          fails if the share of texts with a habit is above the habit's limit
    python packaging/prose.py --list   every text with a habit, by file and line

A text is the first paragraph of a docstring, a run of comment lines, or a paragraph of Markdown. A habit is no mistake
in itself, so each has a limit. Code between backticks does not count.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeAlias

ROOT = Path(__file__).parents[1]
SETS = {
    "src/remuda": ("src/remuda",),
    "src/core": ("src/core", "src/watcher"),
    "documentation": (
        "docs",
        "README.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "SECURITY.md",
        "benchmarks",
        "examples",
        "formal",
    ),
}
MIN_WORDS = 4
MOST_SHOWN = 160  # the number of characters of a text that are printed

Line: TypeAlias = tuple[int, str]
"""The number of a text's first line, and the text."""


class Habit(NamedTuple):
    """A habit that makes prose hard to read.

    Attributes:
        limit: The largest share of texts that may have it.
        instead: What to write instead.
        pattern: Matches the habit in a text.
    """

    limit: float
    instead: str
    pattern: re.Pattern[str]


def words(*alternatives: str) -> re.Pattern[str]:
    return re.compile(rf"\b({'|'.join(alternatives)})\b", re.IGNORECASE)


HABITS = {
    "persons": Habit(
        0.01,
        "name the component: the worker, the pool, the caller, this function",
        words("who(ever|m|se)?", "(no|some|any|every)body", "he", "him(self)?", "his", "oneself"),
    ),
    "openers": Habit(
        0.01,
        "open with a verb in the third person, or with a noun",
        re.compile(r"^(?!(As|So) (far|soon|long) as)(Wh(at|ere|o|om|ose)(ever)?|The same|Of|As|That|Those|So)\b"),
    ),
    "archaic": Habit(
        0.01,
        "use modern words: rebuilt, recently, no longer, permanently, except",
        words(
            "anew",
            "of late",
            "any more",
            "there(of|after)",
            "wherein",
            "whence",
            "for good",
            "by and by",
            "(save|but) for",
            "is none",
            "(is|are) to be",
        ),
    ),
    "personified": Habit(
        0.06,
        "use the field's verbs: receive, report, return, detect, request",
        words(
            "knows?",
            "tells?",
            "told",
            "wants?",
            "ask(s|ed)?",
            "sa(ys?|id)",
            "hears?",
            "heard",
            "speaks?",
            "notices?",
            "finds? out",
            "deals? with",
            "comes? of",
            "goes on",
            "is through",
            "is up to",
        ),
    ),
}


def runs(lines: Iterator[Line]) -> Iterator[Line]:
    """Joins the texts of neighbouring lines."""
    first, joined = 0, list[str]()
    for line, text in lines:
        if joined and line != first + len(joined):
            yield first, " ".join(joined)
            joined = []
        first = first if joined else line
        joined.append(text)
    if joined:
        yield first, " ".join(joined)


def in_python(source: str) -> Iterator[Line]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield getattr(node, "lineno", 1), (ast.get_docstring(node) or "").split("\n\n")[0]
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    yield from runs((token.start[0], token.string.lstrip("#: ")) for token in tokens if token.type == tokenize.COMMENT)


def in_cpp(source: str) -> Iterator[Line]:
    found = ((line, re.search(r'(?:^|[^:"])//+\s?(.*)$', text)) for line, text in enumerate(source.splitlines(), 1))
    yield from runs((line, match[1]) for line, match in found if match)


def in_markdown(source: str) -> Iterator[Line]:
    def prose() -> Iterator[Line]:
        is_code = is_docstring = False
        for line, text in enumerate(source.splitlines(), 1):
            is_code ^= text.lstrip().startswith("```")
            is_docstring = text.startswith("<!-- docstring") or (is_docstring and text != "<!-- end -->")
            if not (is_code or is_docstring) and text.strip() and not text.startswith(("```", "    ", "|", "#", "<")):
                yield line, text.strip(" -*:")

    yield from runs(prose())


READERS = {".py": in_python, ".cpp": in_cpp, ".hpp": in_cpp, ".md": in_markdown}


def texts(places: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yields the place and the content of each text that is long enough to count."""
    for place in (ROOT / name for name in places):
        for path in [place] if place.is_file() else sorted(place.rglob("*")):
            if (reader := READERS.get(path.suffix)) is None:
                continue
            for line, text in reader(path.read_text()):
                plain = re.sub(r"``?[^`]*``?", "X", " ".join(text.split()))
                if len(plain.split()) >= MIN_WORDS:
                    yield f"{path.relative_to(ROOT)}:{line}", plain


def check(name: str, *, lists: bool) -> bool:
    """Prints the share of a file set's texts that have each habit. Returns whether all shares are within the limits."""
    found, within = list(texts(SETS[name])), True
    for habit, (limit, instead, pattern) in HABITS.items():
        lapses = [(place, text) for place, text in found if pattern.search(text)]
        is_within = len(lapses) <= limit * len(found)
        within &= is_within
        print(f"{name}: {habit}: {len(lapses) / len(found):.1%} of {len(found)} texts, limit {limit:.0%}")
        if not is_within:
            print(f"    too many: {instead}")
        if lists or not is_within:
            for place, text in lapses:
                print(f"    {place}: {text[:MOST_SHOWN]}")
    return within


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print every text with a habit")
    options = parser.parse_args()
    results = [check(name, lists=options.list) for name in SETS]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
