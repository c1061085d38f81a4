"""The published figures: ``benchmarks/results.json``, which has a section for each benchmark.

All tables of the pages (`pages.py`) and the picture (`benchmarks/picture.py`) are generated from this file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .tables import Block, Table

FOLDER = Path(__file__).resolve().parents[1]
NAME = "results.json"


@dataclass(frozen=True)
class Section:
    """The result of a benchmark.

    Attributes:
        blocks: Tables, and paragraphs with notes and conditions, in the order in which a page shows them.
        warnings: Sentences about a measurement that should not be trusted. Pages and pictures show them.
    """

    blocks: Sequence[Block]
    warnings: Sequence[str] = ()

    @property
    def tables(self) -> list[Table]:
        return [block for block in self.blocks if isinstance(block, Table)]

    def shown(self) -> Iterator[Block]:
        """Yields the blocks of a page, with the warnings first, in bold."""
        yield from (f"**{warning}**" for warning in self.warnings)
        yield from self.blocks


def load(folder: Path = FOLDER) -> dict[str, Section]:
    """Returns the sections by their names. A name is that of the script, perhaps with ": " and a subject behind it."""
    found = json.loads((folder / NAME).read_text())
    return {name: Section([_block(one) for one in it["blocks"]], it["warnings"]) for name, it in found.items()}


def save(sections: Mapping[str, Section], folder: Path = FOLDER) -> None:
    content = {name: {"warnings": it.warnings, "blocks": [*map(_json, it.blocks)]} for name, it in sections.items()}
    text = json.dumps(content, indent=1, ensure_ascii=False)
    (folder / NAME).write_text(_LIST_OF_TEXTS.sub(lambda found: re.sub(r"\n *", " ", found[0]), text) + "\n")


_LIST_OF_TEXTS = re.compile(r"\[\n[^\[\]{}]*\]")
"""A list of texts, which has a line for each text. A row of a table is easier to read in one line."""


def _block(one: Any) -> Block:
    return one if isinstance(one, str) else Table(one["columns"], one["rows"])


def _json(block: Block) -> Any:
    return block if isinstance(block, str) else vars(block)
