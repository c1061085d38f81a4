"""The documentation site: `make docs` builds it into build/docs, with warnings as errors."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Generic, get_origin

import remuda

project = "remuda"
author = "The remuda founders"
project_copyright = author
release = version = remuda.__version__
DOCS = Path(__file__).resolve().parent
REPOSITORY = "https://github.com/remuda-rl/remuda"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
root_doc = "index"
exclude_patterns = ["requirements.txt", "drawings"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
highlight_language = "default"
default_role = "code"  # docstrings put code between single backticks, as in Markdown

html_theme = "furo"
html_title = "remuda"
html_favicon = "_static/icon.svg"
html_static_path = ["_static"]
html_css_files = ["remuda.css"]
html_theme_options = {"source_repository": REPOSITORY, "source_branch": "main", "source_directory": "docs/"}
copybutton_exclude = ".linenos, .gp, .go"

# -- the reference, from the docstrings ------------------------------------------------------------------

# Sphinx imports the faces with mocks of the libraries that they imitate. ALF has a stand-in instead of a
# mock: ALF's decorator must return the face's classes, which a mock of the decorator would not.
autodoc_mock_imports = [
    *("ding", "ditk", "easydict", "mlagents", "mlagents_envs", "stable_baselines3", "torch", "treetensor", "treevalue")
]
sys.path.insert(0, str(DOCS.parent / "tests" / "faces" / "support" / "alf_stand_in"))
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_custom_sections = [
    *((name, "params_style") for name in ("Workers", "Episodes", "Shared memory", "Faults and reports", "Each has")),
    ("Attributes", "params_style"),  # otherwise napoleon reads `a, b: text` as one name with types
]
suppress_warnings = ["ref.python"]  # errors of faces and of the engine share names, which Sphinx reports
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100


def mark_code(_app: Any, _kind: str, _name: str, _found: Any, _options: Any, lines: list[str]) -> None:
    """Marks indented paragraphs of a docstring as code blocks. Sphinx would show them as quotations."""
    for i in range(len(lines) - 1, 1, -1):
        begins = lines[i].startswith("    ") and not lines[i - 1].strip()
        before = next((line for line in reversed(lines[: i - 1]) if line.strip()), "")
        is_prompt = lines[i].lstrip().startswith(">>>")
        if begins and not before.startswith(" ") and not before.endswith("::") and not is_prompt:
            lines[i:i] = ["::", ""]


def show_docstrings(_app: Any, page: str, source: list[str]) -> None:
    """Puts the docstring of a name in place of each line of the reference that has only the name, in bold.

    A comment behind the name may have options of autodoc, separated by semicolons, and also `signature: (...)` and
    `methods: ...`, for what autodoc cannot find.
    """
    if page.startswith("reference/"):
        source[0] = re.sub(r"^\*\*`([\w.]+)`\*\*(?: <!-- (.*) -->)?$", _directive, source[0], flags=re.MULTILINE)


def _directive(name: re.Match[str]) -> str:
    last = name[1].rpartition(".")[2]
    is_exception = last.endswith("Error") or last == "RemoteTraceback"
    kind = "function" if last[0].islower() else "exception" if is_exception else "class"
    options = dict(option.partition(": ")[::2] for option in name[2].split("; ")) if name[2] else {}
    head = f".. auto{kind}:: {name[1]}{options.pop('signature', '')}"
    methods = filter(None, options.pop("methods", "").split(", "))
    lines = [*(f"   :{option}: {value}" for option, value in options.items()), ""]
    lines += [f"   .. automethod:: {method}" for method in methods]
    return "\n".join(["```{eval-rst}", head, *lines, "```"])


def show_public_bases(_app: Any, _name: str, _found: Any, _options: Any, bases: list[Any]) -> None:
    """Replaces private base classes by their public ones. Sphinx would show their names, which users cannot import."""
    public = dict.fromkeys(base for one in bases for base in _public_bases(one))
    bases[:] = [base for base in public if get_origin(base) is not Generic and base is not object] or [object]


def _public_bases(base: Any) -> Iterator[Any]:
    cls = get_origin(base) or base
    package, *inner = cls.__module__.split(".")
    if package != "remuda":
        yield base
        return
    face = sys.modules[f"remuda.{inner[0]}"] if inner and not inner[0].startswith("_") else remuda
    if any(
        cls.__name__ in vars(one).get("__all__", ()) and getattr(one, cls.__name__) is cls for one in (face, remuda)
    ):
        yield base
        return
    for one in cls.__bases__:
        yield from _public_bases(one)


# -- the Markdown pages, which are plain Markdown, so that a code host shows them too ---------------------


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
    for change in (read_whole, lead_out, show_docstrings, add_contents):
        app.connect("source-read", change)
    app.connect("autodoc-process-bases", show_public_bases)
    app.connect("autodoc-process-docstring", mark_code, priority=100)  # runs before napoleon's handler (500)
