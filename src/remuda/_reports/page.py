"""A report as one HTML file. The page fetches nothing, even if a text on it contains HTML."""

from __future__ import annotations

import base64
import os
import platform
import shlex
import sys
from dataclasses import dataclass
from datetime import datetime
from importlib import resources
from pathlib import Path

from remuda._reports.charts import as_svg
from remuda._reports.packages import check_pages
from remuda._reports.report import Report
from remuda._system import machine
from remuda._system.cores import usable_cores

_LARGEST_VIDEO = 8 << 20  # the limit in bytes for a video in a page; a page only names larger videos


@dataclass(frozen=True)
class Origin:
    """The machine and the command of a measurement, so that readers can judge and repeat it.

    Attributes:
        command: The command that made the report.
        written: The time.
        facts: Names and values that describe the machine.
        versions: Names and versions of the installed packages.
    """

    command: str
    written: datetime
    facts: tuple[tuple[str, str], ...]
    versions: tuple[tuple[str, str], ...]

    @classmethod
    def here(cls, command: str | None = None) -> Origin:
        """Describes this machine. `command` is the command to show; None: the command line of this program."""
        facts = (
            ("Processor", machine.cpu_model()),
            ("Cores that may be used", str(usable_cores())),
            ("System", platform.platform()),
            ("Python", f"{platform.python_version()} ({platform.python_implementation()})"),
        )
        line = shlex.join(sys.orig_argv) if command is None else command
        return cls(line, datetime.now().astimezone(), facts, tuple(machine.versions().items()))


def save(report: Report, origin: Origin, path: str | os.PathLike[str]) -> None:
    """Writes a report as an HTML page in UTF-8, and makes its folder if needed.

    Raises:
        MissingFrameworkError: jinja2 or matplotlib is not installed.
        OSError: The file cannot be written.
    """
    page = as_html(report, origin)
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    # A path may contain bytes that are not characters; in the page they become numeric references.
    file.write_bytes(page.encode("utf-8", "xmlcharrefreplace"))


def as_html(report: Report, origin: Origin) -> str:
    """Returns a report as an HTML page. Raises MissingFrameworkError if jinja2 or matplotlib is not installed."""
    check_pages()
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(resources.files("remuda._reports").joinpath("page.html").read_text("utf-8"))
    charts = [(chart, Markup(as_svg(chart))) for chart in report.charts]
    return template.render(report=report, charts=charts, videos=map(_video, report.videos), origin=origin)


@dataclass(frozen=True)
class _Video:
    """A video: `data` is the file in base64, or empty for the reason in `problem`."""

    name: str
    data: str = ""
    problem: str = ""


def _video(path: Path) -> _Video:
    try:
        if path.stat().st_size > _LARGEST_VIDEO:
            return _Video(str(path), problem="too large for this page")
        return _Video(path.name, base64.b64encode(path.read_bytes()).decode())
    except OSError:
        return _Video(str(path), problem="no longer there")
