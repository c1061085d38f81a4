"""The pages with the published tables, both generated from results.json: ``RESULTS.md`` and parts of ``README.md``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from . import results
from .results import FOLDER, Section
from .tables import Block, markdown, table

README = "README.md"
FULL = "RESULTS.md"
BEGINNING = """# Benchmark results in full

All tables of the benchmarks. [README.md](README.md) explains them. This page is generated from `results.json`. With
`--readme` a script stores its tables there. `python benchmarks/picture.py` writes the pages and the picture again."""
SMALL: dict[str, Sequence[str]] = {
    "throughput": (
        *("workload", "envs"),
        *(f"{name}, of ideal" for name in ("remuda", "remuda-1-per-env", "gymnasium", "sb3")),
    ),
    "uneven": ("workload", "recv", "spares", "goal", "at best", "reached", ""),
    "startup": ("start method", "contender", "start-up", "PSS a worker"),
}
"""The columns of the small tables in README.md, by section. A table stands between two comments with its name."""


def store(name: str, section: Section, folder: Path = FOLDER) -> None:
    """Stores a section in results.json, and writes the pages again."""
    sections = {**results.load(folder), name: section}
    results.save(sections, folder)
    write(sections, folder)


def write(sections: Mapping[str, Section], folder: Path = FOLDER) -> None:
    readme = with_small_tables((folder / README).read_text(), sections)
    (folder / FULL).write_text(full_page(sections))
    (folder / README).write_text(readme)


def full_page(sections: Mapping[str, Section]) -> str:
    """Returns RESULTS.md: all blocks of all sections, below a heading for each script."""
    return markdown([BEGINNING, *_all_blocks(sections)]) + "\n"


def _all_blocks(sections: Mapping[str, Section]) -> Iterator[Block]:
    scripts = dict.fromkeys(map(_script, sections))
    for script in scripts:
        yield f"## `{script}.py`"
        for name, section in sections.items():
            if _script(name) == script:
                yield from section.shown()


def _script(name: str) -> str:
    return name.partition(": ")[0]


def with_small_tables(text: str, sections: Mapping[str, Section]) -> str:
    """Returns README.md with its small tables. Raises ValueError if it has no place for one of them."""
    for name, columns in SMALL.items():
        begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
        before, found, rest = text.partition(begin)
        _, found_end, after = rest.partition(end)
        if not (found and found_end):
            raise ValueError(f"expected {begin} and {end} in {README}, got neither")
        text = f"{before}{begin}\n{markdown(small(sections[name], columns))}\n{end}{after}"
    return text


def small(section: Section, columns: Sequence[str]) -> list[Block]:
    """Returns the warnings of a section, and some columns of its first table, without repeated rows."""
    first = section.tables[0]
    places = [first.columns.index(column) for column in columns if column in first.columns]
    rows = dict.fromkeys(tuple(row[place] for place in places) for row in first.rows)
    return [*Section([], section.warnings).shown(), table([first.columns[place] for place in places], rows)]
