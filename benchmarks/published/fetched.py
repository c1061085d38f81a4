"""Gets the benchmark of another project, which a script here runs unedited, and compares the contenders.

Nothing of it is in this repository: ``--source FILE`` names a file, or it is downloaded from GitHub into ``build/``.
Importing this module makes the modules of ``benchmarks/`` importable.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import sys
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from types import ModuleType

BENCHMARKS = Path(__file__).resolve().parents[1]
sys.path.insert(1, str(BENCHMARKS))

from harness.tables import figure, rate, verdict  # noqa: E402

BUILD = BENCHMARKS.parent / "build" / "published"
OURS = "remuda"
"""The contender with remuda that is compared with the fastest other one. All of remuda's names begin so."""


@dataclass(frozen=True)
class Source:
    """A file in a repository on GitHub, at a commit.

    Attributes:
        sha256: The digest of its content.
    """

    repository: str
    commit: str
    path: str
    sha256: str

    @property
    def url(self) -> str:
        return f"https://raw.githubusercontent.com/{self.repository}/{self.commit}/{self.path}"

    def add_option(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--source", type=Path, help=f"{self.path} of {self.repository} (default: download it)")

    def fetch(self, given: Path | None) -> Path:
        """Returns the path of the file in ``build/``: a copy of ``given``, or else downloaded if it is not there yet.

        Raises:
            SystemExit: The file cannot be downloaded, or has another content.
        """
        path = BUILD / self.commit / Path(self.path).name
        if given is not None or not path.exists():
            content = self._download() if given is None else given.read_bytes()
            found = hashlib.sha256(content).hexdigest()
            if found != self.sha256:
                raise SystemExit(f"{given or self.url}: expected {self.url} with sha256 {self.sha256}, got {found}")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return path

    def _download(self) -> bytes:
        try:
            with urllib.request.urlopen(self.url) as answer:
                return bytes(answer.read())
        except OSError as error:
            raise SystemExit(f"{self.url}: {error}. Download it elsewhere, and pass it with --source FILE") from None


def import_file(path: Path) -> ModuleType:
    """Imports a file. Its folder is added to `sys.path`, so that worker processes can import it too."""
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    return importlib.import_module(path.stem)


Rates = Mapping[str, Sequence[float]]
"""The rates of each contender: one for each round, in env steps a second."""


def cells(rates: Rates) -> list[str]:
    """Returns the cells of a row: each contender's median rate, then the three of `compared`."""
    return [*(rate(median(each)) for each in rates.values()), *compared(rates)]


def columns(rates: Rates) -> list[str]:
    return [*rates, "fastest other", f"{OURS} : fastest other", ""]


def compared(rates: Rates) -> list[str]:
    """Returns the name of the fastest contender without remuda, the ratio of `OURS` to it, and whether that is 1."""
    others = {name: median(each) for name, each in rates.items() if not name.startswith(OURS)}
    fastest = max(others, key=others.__getitem__)
    ratio = median(ours / other for ours, other in zip(rates[OURS], rates[fastest], strict=True))
    return [fastest, figure(ratio), verdict(1.0, ratio)]
