"""Parses HTML pages: their elements and texts, and what a browser would fetch or run."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

VOID = {"meta"}
FETCHING = {"href", "xlink:href", "src", "srcset", "action", "data", "poster", "background"}


class Read(HTMLParser):
    """A parsed page.

    Attributes:
        elements: (tag, attributes) in order.
        texts: Of each tag, what stands in its elements, one after another.
    """

    def __init__(self, page: str | Path) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.source = page if isinstance(page, str) else page.read_text("utf-8")
        self.feed(self.source)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.texts.setdefault(tag, []).append("")
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        for tag in set(self._open):
            self.texts[tag][-1] += data

    def of(self, tag: str) -> list[dict[str, str | None]]:
        """Returns the attributes of all elements with this tag."""
        return [attributes for name, attributes in self.elements if name == tag]

    def check_self_contained(self) -> None:
        """Asserts that the page fetches and runs nothing, and forbids the browser to do so."""
        assert not {"script", "link", "iframe", "img", "object", "base"} & {tag for tag, _ in self.elements}
        for tag, attributes in self.elements:
            assert not any(name.startswith("on") for name in attributes), tag
            fetched = [value or "" for name, value in attributes.items() if name in FETCHING]
            # "#" refers to the page itself
            assert all(value.startswith(("data:", "#")) for value in fetched), (tag, fetched)
            urls = [part for value in attributes.values() for part in (value or "").split("url(")[1:]]
            assert all(url.startswith("#") for url in urls), (tag, urls)
        style = "".join(self.texts["style"])
        assert "url(" not in style and "@import" not in style
        assert any("default-src 'none'" in (meta.get("content") or "") for meta in self.of("meta"))
