"""A page: one HTML file that fetches nothing, and that no text on it can make do so."""

from __future__ import annotations

import os
from pathlib import Path

from remuda._reports.markup import Html, element, escaped, joined, pairs
from remuda._reports.origin import Origin

# What is not in the file is not to be had, and nothing on the page is run.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; media-src data:"

_STYLE = """
:root { color-scheme: light dark; --page: #fff; --ink: #1c2329; --faint: #5d6a74; --rule: #dfe4e8; --panel: #f4f6f7;
  --best: #1b7f5c; --bar: #a9b4bd; --mark: #b5482a; --dot: #1c2329; }
@media (prefers-color-scheme: dark) { :root { --page: #14191d; --ink: #e4e9ec; --faint: #9aa7b0; --rule: #313a41;
  --panel: #1d242a; --best: #46b98c; --bar: #586570; --mark: #f08a66; --dot: #e4e9ec; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 62rem; padding: 1.5rem 1rem 3rem; background: var(--page); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; overflow-wrap: break-word; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 .5rem; }
h2 { font-size: 1.1rem; margin: 2.2rem 0 .6rem; }
.lead { font-size: 1.1rem; margin: 0 0 1.5rem; }
.note, figcaption, footer { color: var(--faint); font-size: .9rem; }
footer { margin-top: 2.5rem; border-top: 1px solid var(--rule); padding-top: .8rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .7rem; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--rule); }
th { font-weight: 600; }
thead th { color: var(--faint); font-weight: 500; }
th:first-child { text-align: left; padding-left: 0; }
tr.best th, tr.best td { color: var(--best); font-weight: 600; }
pre { background: var(--panel); padding: .8rem 1rem; border-radius: 6px; overflow-x: auto; font-size: .875rem; }
pre.wrapped { white-space: pre-wrap; overflow-wrap: anywhere; }
code { font-family: ui-monospace, monospace; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1rem; margin: 0; font-size: .9rem; }
dt { color: var(--faint); } dd { margin: 0; min-width: 0; overflow-wrap: anywhere; }
ul { padding-left: 1.2rem; } li { margin: .2rem 0; }
details { margin: 1rem 0; } summary { cursor: pointer; color: var(--faint); }
svg { display: block; overflow: visible; font-size: 13px; }
svg text { fill: var(--faint); } svg text.name { fill: var(--ink); } svg text.mark { fill: var(--mark); }
rect.best { fill: var(--best); } rect.bar { fill: var(--bar); } .dot { fill: var(--dot); opacity: .5; }
line.axis { stroke: var(--rule); } line.mark { stroke: var(--mark); stroke-dasharray: 5 4; }
figure { margin: 0 0 1rem; } video { max-width: 100%; border-radius: 6px; }
@media (max-width: 30rem) { dl { grid-template-columns: 1fr; } dd { margin-bottom: .4rem; } }
"""


class Page:
    """A page as it is written, from top to bottom. Texts are escaped; what `markup` and `charts` make is not."""

    def __init__(self, title: str, lead: str) -> None:
        """`lead`: what it comes to, in a sentence."""
        self._title = title
        self._parts: list[Html] = [element("h1", title), element("p", lead, class_="lead")]

    def section(self, heading: str, *content: object) -> None:
        """A heading and what follows it; without any content, nothing."""
        shown = [escaped(part) for part in content if part]
        if shown:
            self._parts += [element("h2", heading), *shown]

    def origin(self, origin: Origin) -> None:
        """The section that says where the figures come from."""
        self.section("Command", element("pre", element("code", origin.command), class_="wrapped"))
        self.section("Machine", pairs(origin.facts))
        self.section("Versions", pairs(origin.versions))
        when = f"{origin.written:%Y-%m-%d %H:%M:%S %z}".strip()
        remuda = dict(origin.versions).get("remuda", "")
        self._parts.append(element("footer", f"Written by remuda {remuda}".strip(), f" on {when}."))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it, as UTF-8; the folder is made if there is none."""
        file = Path(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        # A name may hold what is no character (of a path in another encoding): it is shown as a reference to one.
        file.write_bytes(self.as_text().encode("utf-8", "xmlcharrefreplace"))

    def as_text(self) -> str:
        """The whole file."""
        head = [
            Html('<meta charset="utf-8">'),
            Html(f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'),
            Html('<meta name="viewport" content="width=device-width, initial-scale=1">'),
            element("title", self._title),
            element("style", Html(_STYLE)),
        ]
        body = element("body", "\n", joined(self._parts), "\n")
        whole = element("html", "\n", element("head", "\n", joined(head), "\n"), "\n", body, "\n", lang="en")
        return f"<!doctype html>\n{whole}\n"
