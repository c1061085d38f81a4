"""What the scripts that race contenders have in common: their options, and where their results go."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

from readme import write_section


def parse_options(
    doc: str | None,
    *,
    workloads: Sequence[str],
    peers: Collection[str],
    against: Sequence[str],
    seconds: float,
    quick: float,
    more: Callable[[argparse.ArgumentParser], object] = lambda parser: None,
) -> argparse.Namespace:
    """Read the command line.

    Args:
        doc: What ``--help`` begins with.
        workloads: What ``--only`` may name, all of them if it is not given.
        peers: What ``--against`` may name.
        against: Those it names if it is not given.
        seconds: Time of a contender, all rounds together, in `seconds` of the result.
        quick: The same with ``--quick``.
        more: Adds what options there are besides.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--quick",
        dest="seconds",
        action="store_const",
        const=quick,
        default=seconds,
        help=f"{quick:g} s a contender instead of {seconds:g}",
    )
    parser.add_argument("--only", type=names, default=list(workloads), help=f"of {', '.join(workloads)}")
    parser.add_argument("--against", type=names, default=list(against), help=f"of {', '.join(peers)}")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (default: 5)")
    parser.add_argument("--json", type=Path, help="write every round's figures here")
    parser.add_argument("--readme", action="store_true", help="put the table into README.md beside this file")
    more(parser)
    options = parser.parse_args()
    options.is_quick = options.seconds == quick
    for option, named, known in (("--only", options.only, workloads), ("--against", options.against, peers)):
        unknown = [name for name in named if name not in known]
        if unknown:
            parser.error(f"expected {option} to name {', '.join(known)}, got {', '.join(unknown)}")
    return options


def names(text: str) -> list[str]:
    """The type of an option that names several things, with commas between them."""
    return text.split(",")


def publish(section: str, lines: Iterable[str], figures: Iterable[Any], options: argparse.Namespace) -> None:
    """Print the lines, and put them and the figures where the options say."""
    publish_lines(section, lines, options)
    if options.json is not None:
        options.json.write_text(json.dumps(list(figures), indent=2) + "\n")


def publish_lines(section: str, lines: Iterable[str], options: argparse.Namespace) -> None:
    """Print the lines, and with ``--readme`` put them into that section of README.md."""
    text = "\n".join(lines)
    print(text)
    if options.readme:
        write_section(section, text)
