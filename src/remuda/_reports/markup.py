"""HTML in pieces: every text is escaped unless it is HTML already, so nothing that a user has named becomes markup."""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Sequence
from pathlib import Path


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def escaped(text: object) -> Html:
    """As HTML that shows this text."""
    return text if isinstance(text, Html) else Html(html.escape(str(text)))


def joined(parts: Iterable[object]) -> Html:
    """One after another."""
    return Html("\n".join(escaped(part) for part in parts))


def element(tag: str, *content: object, **attributes: object) -> Html:
    """An element. `attributes`: a trailing underscore is left out, others become hyphens; False or None: not there."""
    written = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{html.escape(str(value))}"'
        for name, value in attributes.items()
        if value is not None and value is not False
    )
    return Html(f"<{tag}{written}>{''.join(escaped(part) for part in content)}</{tag}>")


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], best: int | None = None) -> Html:
    """A table that scrolls by itself where it is too wide. The first column names its row; `best`: the row to mark."""
    head = element("tr", *(element("th", column, scope="col") for column in columns))
    body = [
        element(
            "tr",
            element("th", row[0], scope="row"),
            *(element("td", cell) for cell in row[1:]),
            class_="best" if number == best else None,
        )
        for number, row in enumerate(rows)
    ]
    whole = element("table", element("thead", head), element("tbody", *body))
    return element("div", whole, class_="wide", tabindex=0)  # so that the keyboard can scroll it, too


def pairs(rows: Iterable[tuple[object, object]]) -> Html:
    """Names and their values."""
    return element("dl", *(part for name, value in rows for part in (element("dt", name), element("dd", value))))


def code(text: str) -> Html:
    """Lines to be copied."""
    return element("pre", element("code", text), tabindex=0)


def bullets(lines: Iterable[object]) -> Html:
    """A list, or nothing where there are no lines."""
    items = [element("li", line) for line in lines]
    return element("ul", *items) if items else Html("")


def folded(summary: str, *content: object) -> Html:
    """Shown when somebody asks for it."""
    return element("details", element("summary", summary), *content)


def video(path: Path) -> Html:
    """The video itself, in the page."""
    data = base64.b64encode(path.read_bytes()).decode()
    player = element("video", src=f"data:video/mp4;base64,{data}", controls="", preload="metadata")
    return element("figure", player, element("figcaption", path.name))
