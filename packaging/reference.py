"""Writes the docstrings into the pages of docs/reference, as plain Markdown that a code host shows too.

    python packaging/reference.py      after a change of a docstring, of a signature, or of a page

A page is written by hand. Between `<!-- docstring -->` and `<!-- end -->` it gets the text of the name in the heading
above; `<!-- docstring without: a, b -->` leaves out members. The package is read and not imported, so no framework is
needed. A member that several classes inherit is described at the first one, and the others link to it.
"""

from __future__ import annotations

import functools
import importlib.util
import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import griffe

PAGES = Path(__file__).resolve().parents[1] / "docs" / "reference"
MARK = re.compile(r"^(#+) (remuda[\w.]+)\n\n<!-- docstring(?: without: (.*?))? -->\n(.*?)^<!-- end -->$", re.M | re.S)
HEADING = re.compile(r"^#+ ([\w.]+)$", re.M)
WIDTH = 100
OVERVIEW_FROM = 4  # a class with as many members has a table of them
NOT_SHOWN = ("typing.Generic", "typing.Protocol", "abc.ABC", "object")  # as bases

NAME = r"[*\w.]+(?:\([^)]*\))?"
ENTRY = re.compile(rf"^({NAME}(?:,\s+{NAME})*)(?: \((.*?)\))?:\s", re.M)


class Entry(NamedTuple):
    """An entry of a section: a parameter, attribute, option or error, and its description."""

    names: list[str]
    default: str | None
    text: str


def sections(text: str) -> Iterator[tuple[str, str]]:
    """Yields a docstring's sections as (title, text). Text outside of sections has the title ""."""
    parts = re.split(r"^([A-Z][\w ]*):\n((?:(?: {4}.*)?(?:\n|\Z))+)", text, flags=re.M)
    for free, title, body in zip(parts[::3], [*parts[1::3], ""], [*parts[2::3], ""], strict=True):
        yield "", free.strip("\n")
        if title:
            yield title, textwrap.dedent(body).strip("\n")


def entries(text: str) -> list[Entry]:
    """Returns the entries of a section, or none if it is running text."""
    found = list(ENTRY.finditer(text)) if ENTRY.match(text) else []
    ends = [*(match.start() for match in found[1:]), len(text)]
    return [
        Entry(re.findall(NAME, match[1]), match[2], inspect.cleandoc(text[match.end() : end]))
        for match, end in zip(found, ends, strict=False)
    ]


def prose(text: str) -> str:
    """Returns text of a docstring as Markdown, where indented blocks are fenced, and roles are plain code."""
    parts = re.split(r"(?:^|\n)\n((?: {4}.*(?:\n|$)|\n(?= {4}|\n))+)", text)
    shown = list[str]()
    for words, block in zip(parts[::2], [*parts[1::2], ""], strict=True):
        plain = re.sub(r":\w+:`", "`", re.sub(r"``([^`\n]+)``", r"`\1`", words.strip("\n")))
        plain = re.sub(r"(?:^|\n+)(Raises|Returns|Yields): ", r"\n\n**\1:** ", plain).lstrip("\n")
        shown.append(re.sub("::$", ":", plain.removesuffix(" ::")))
        lines = textwrap.dedent(block).strip("\n")
        shown.append(lines and f"```{'pycon' if lines.startswith('>>>') else 'python'}\n{lines}\n```")
    return "\n\n".join(filter(None, shown))


def first_sentence(text: str) -> str:
    """Returns the first sentence of a docstring, for a cell of a table."""
    paragraph = " ".join(prose(text.partition("\n\n")[0]).split())
    sentence = re.match(r".*?\.(?= [^a-z\d]|$)|.*", paragraph)
    return sentence[0].rstrip(":").replace("|", r"\|") if sentence else ""


def code(signature: str) -> str:
    """Returns a signature as a block, in lines that end between parameters."""
    kept, depth = "", 0
    for char in signature:
        depth += (char in "([{") - (char in ")]}")
        kept += char if char != " " or (depth == 1 and kept.endswith(",")) else "\0"
    lines = textwrap.fill(kept, WIDTH, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
    return f"```python\n{lines}\n```".replace("\0", " ").replace("'", '"')  # griffe's quotes are those of `repr`


def signature(function: Any, name: str, *, with_result: bool = True) -> str:
    shown = re.sub(r"\((self|cls)(, )?", "(", function.signature(return_type=with_result, name=name), count=1)
    for one in function.parameters:
        if isinstance(one.default, griffe.ExprName):  # a constant
            value = function.modules_collection[one.default.canonical_path].value
            shown = shown.replace(f"= {one.default}", f"= {value}")
    return code(shown)


def text_of(docstring: str) -> Iterator[str]:
    """Yields the parts of a docstring in Markdown."""
    for title, body in sections(docstring):
        listed = entries(body) if title not in ("", "Returns", "Yields") else []
        if title and not listed:
            yield f"**{title}:** {prose(body)}"
        elif title:
            yield f"**{'Arguments' if title == 'Args' else title}:**"
        items = [f"{', '.join(f'`{name}`' for name in one.names)}: {prose(one.text)}" for one in listed]
        yield "\n".join(f"- {textwrap.indent(one, '  ').lstrip()}" for one in items) if title else prose(body)


def anchor(heading: str) -> str:
    """Returns the anchor of a heading, as code hosts and MyST make it."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def resolved(found: Any) -> Any:
    return found.final_target if found.is_alias else found


def described(found: Any, member: str | None = None) -> str:
    """Returns the docstring of a name or member, or that of the member that it overrides."""
    for one in (found, *found.mro()) if member else (found,):
        own = one.members.get(member) if member else one
        if own is not None and not own.is_alias and own.docstring:
            return str(own.docstring.value)
    return ""


class Reference:
    """The pages of the reference. `pages` has their texts as they should be, by file name."""

    def __init__(self) -> None:
        spec = importlib.util.find_spec("remuda")
        assert spec is not None and spec.origin is not None
        self._package: Any = griffe.load("remuda", search_paths=[Path(spec.origin).parents[1]], allow_inspection=False)
        order = re.findall(r"^\| \[.*?\]\(([\w.]+)\)", (PAGES / "index.md").read_text(), re.M)
        sources = {page: (PAGES / page).read_text() for page in order}
        self._names = {self._find(m[2]).canonical_path: m[2] for text in sources.values() for m in MARK.finditer(text)}
        self._members = dict[str, tuple[str, Any]]()  # the page and class where each member is described, by its path
        filled = {page: MARK.sub(functools.partial(self._fill, page), text) for page, text in sources.items()}
        self._homes = {name: page for page, text in filled.items() for name in HEADING.findall(text)}
        self.pages = {page: MARK.sub(functools.partial(self._link, page), text) for page, text in filled.items()}

    def _find(self, name: str) -> Any:
        return resolved(self._package[name.partition(".")[2]])

    def _fill(self, page: str, mark: re.Match[str]) -> str:
        found = self._find(mark[2])
        if found.is_function:
            parts = [signature(found, found.name), *text_of(described(found))]
        elif "typing.TypedDict" in self._bases([found, *found.mro()][-1]):
            parts = [*self._options(found, mark[1])]
        else:
            parts = [*self._class(found, page, mark[1], (mark[3] or "").split(", "))]
        text = "\n\n".join(filter(None, parts))
        return f"{mark[0][: mark.start(4) - mark.start()]}\n{text}\n\n<!-- end -->"

    def _link(self, page: str, mark: re.Match[str]) -> str:
        """Makes links of the names of other classes and functions, and of their members."""
        module = mark[2].rpartition(".")[0]

        def link(span: re.Match[str]) -> str:
            for full in (f"{module}.{span[1]}", f"remuda.{span[1]}", span[1], span[1].removeprefix("remuda.")):
                if full in self._homes and full != mark[2] and "." in full and re.search("[A-Z._]", span[1]):
                    home = self._homes[full]
                    return f"[`{span[1]}`]({'' if home == page else home}#{anchor(full)})"
            return span[0]

        parts = re.split(r"(^ *```.*?^ *```$|^#.*?$|\[`.*?\]\()", mark[0], flags=re.M | re.S)
        return "".join(part if i % 2 else re.sub(r"`([\w.]+)`", link, part) for i, part in enumerate(parts))

    def _class(self, cls: Any, page: str, level: str, without: list[str]) -> Iterator[str]:
        text = described(cls)
        parameters = {one.name.strip("*") for one in cls.parameters} - {"self"}
        known = {name.strip("*") for _, body in sections(text) for one in entries(body) for name in one.names}
        if parameters and parameters <= known and not cls.name.endswith("Error"):
            yield signature(resolved(cls.all_members["__init__"]), cls.name, with_result=False)
        bases = [base for base in self._bases(cls) if base not in NOT_SHOWN]
        if bases:
            yield f"Derives from {', '.join(f'`{base}`' for base in dict.fromkeys(bases))}."
        yield from text_of(text)

        own, others = dict[str, Any](), list[str]()
        for name, member in cls.all_members.items():
            found = resolved(member)
            if name.startswith("_") or name in without or not described(cls, name):
                continue
            home, shown_by = self._members.get(found.canonical_path, ("", None))
            if home == page or shown_by in cls.mro():
                others.append(f"[`{name}`]({'' if home == page else home}#{anchor(f'{shown_by.name}.{name}')})")
            else:
                own[name] = found
                self._members[found.canonical_path] = page, cls
        if len(own) >= OVERVIEW_FROM:
            rows = [f"| [`{x}`](#{anchor(f'{cls.name}.{x}')}) | {first_sentence(described(cls, x))} |" for x in own]
            yield "\n".join(["| member | |", "|---|---|", *rows])
        if others:
            yield f"It also has {', '.join(others)}."
        for name, found in own.items():
            yield f"{level}# {cls.name}.{name}"
            if found.is_function:
                yield signature(found, f"{cls.name}.{name}")
            elif found.annotation is not None:
                yield code(f"{cls.name}.{name}: {found.annotation}")
            yield from text_of(described(cls, name))

    def _bases(self, cls: Any) -> Iterator[str]:
        """Yields the public bases of a class. Those of a private class take its place."""
        for base in cls.bases:
            path = base if isinstance(base, str) else base.canonical_path
            try:
                found = resolved(self._package.modules_collection.get_member(path))
            except (KeyError, griffe.AliasResolutionError):
                yield path
                continue
            public = self._names.get(found.canonical_path)
            yield from [public] if public else self._bases(found)

    def _options(self, cls: Any, level: str) -> Iterator[str]:
        """Yields the keys of a typed dict: as a table and a text for each, if its docstring has their defaults."""
        keys = {name: member for name, member in cls.all_members.items() if not name.startswith("_")}
        parts = list(sections(described(cls)))
        yield from (prose(body) for title, body in parts if not title)
        options = [one for title, body in parts if title for one in entries(body)]
        if not options:
            yield f"Its keys: {', '.join(f'[`{name}`](#{name})' for name in keys)}."
            return
        rows = [f"| [`{x}`](#{x}) | `{default}` | {first_sentence(text)} |" for (x,), default, text in options]
        yield "\n".join(["| option | default | |", "|---|---|---|", *rows])
        for title, body in parts:
            if title:
                yield f"{level}# {title}"
                for (name,), default, text in entries(body):
                    kind = str(keys[name].annotation).replace("'", '"')
                    yield from (f"{level}## {name}", f"`{kind}`, default `{default}`", prose(text))


def main() -> None:
    for page, text in Reference().pages.items():
        (PAGES / page).write_text(text)


if __name__ == "__main__":
    main()
