"""The documentation site: `make docs` builds it into build/docs, with warnings as errors."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import remuda

project = "remuda"
author = "The remuda founders"
project_copyright = author
release = version = remuda.__version__
DOCS = Path(__file__).resolve().parent
REPOSITORY = "https://github.com/remuda-rl/remuda"

extensions = ["myst_parser", "sphinx_copybutton"]
root_doc = "index"
exclude_patterns = ["requirements.txt", "drawings"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
highlight_language = "default"

html_theme = "furo"
html_title = "remuda"
html_favicon = "_static/icon.svg"
html_static_path = ["_static"]
html_css_files = ["remuda.css"]
html_theme_options = {"source_repository": REPOSITORY, "source_branch": "main", "source_directory": "docs/"}
copybutton_exclude = ".linenos, .gp, .go"

# -- the pages are plain Markdown, so that a code host shows them too -------------------------------------


def lead_out(_app: Any, page: str, source: list[str]) -> None:
    """Replaces links to files outside docs/ by links to the repository on GitHub."""
    up = re.escape("../" * (page.count("/") + 1))
    source[0] = re.sub(rf"\]\({up}(?!\.\.)([\w./-]+)(#[\w-]+)?\)", _address, source[0])


WHOLE = {"changelog": "CHANGELOG.md", "contributing": "CONTRIBUTING.md", "formal": "formal/README.md"}
"""Pages that are files outside docs/. For a reader on the code host, the page itself only links to the file."""


def read_whole(_app: Any, page: str, source: list[str]) -> None:
    if page in WHOLE:
        source[0] = re.sub(r"\]\((?!http|#)(docs/)?", _from_docs, (DOCS.parent / WHOLE[page]).read_text())


def _from_docs(link: re.Match[str]) -> str:
    return "](" if link[1] else "](../"


def add_contents(_app: Any, page: str, source: list[str]) -> None:
    """Makes each item of a list or table of an index that begins with a link to a page an entry of the contents."""
    if page.rpartition("/")[2] == "index":
        for section in re.split(r"^## ", source[0], flags=re.MULTILINE):
            pages = re.findall(r"^(?:-|\|) \[[^\]]*\]\(([\w./-]+)\.md\)", section, re.MULTILINE)
            title = section.partition("\n")[0]
            caption = [] if title.startswith("#") else [f":caption: {title}"]  # above the first heading there is none
            if pages:
                source[0] += "\n".join(["\n```{toctree}", ":hidden:", *caption, "", *pages, "```", ""])


def _address(link: re.Match[str]) -> str:
    return f"]({REPOSITORY}/blob/main/{link[1]}{link[2] or ''})"


def setup(app: Any) -> None:
    for change in (read_whole, lead_out, add_contents):
        app.connect("source-read", change)
