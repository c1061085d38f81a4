"""The optional packages that reports need: whether they are installed, and the error if they are not."""

from __future__ import annotations

from importlib.util import find_spec

from remuda.errors import MissingFrameworkError

FOR_PAGES = ("jinja2", "matplotlib")


def is_installed(package: str) -> bool:
    """Returns whether a package can be imported, without importing it."""
    try:
        return find_spec(package) is not None
    except ValueError:  # raised if sys.modules has None for the package, which prevents its import
        return False


def check_pages() -> None:
    """Raises MissingFrameworkError if a package that HTML pages need is not installed."""
    for package in FOR_PAGES:
        if not is_installed(package):
            text = f'a page needs {package}, which is not installed: pip install "remuda-rl[bench]"'
            raise MissingFrameworkError(text, name=package)
