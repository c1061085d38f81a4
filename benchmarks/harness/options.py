"""The command line of a benchmark."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection
from pathlib import Path


def parse_options(
    doc: str | None,
    *,
    workloads: Collection[str] = (),
    peers: Collection[str] = (),
    against: Collection[str] = (),
    seconds: float | None = None,
    quick: float = 0.0,
    rounds: int | None = None,
    json: bool = True,
    more: Callable[[argparse.ArgumentParser], object] = lambda parser: None,
) -> argparse.Namespace:
    """Reads the command line.

    Args:
        doc: The beginning of the text of ``--help``.
        workloads: The names that ``--only`` may give; its default is all of them. Without names there is no ``--only``.
        peers: The names that ``--against`` may give. Without names there is no ``--against``.
        against: The default of ``--against``.
        seconds: The time of a contender, all rounds together. None: there is no ``--quick``.
        quick: The time of a contender with ``--quick``.
        rounds: Default of ``--rounds``. None: there are no rounds, and no ``--any-round``.
        json: Whether figures can be written with ``--json``.
        more: Adds further options.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawTextHelpFormatter)
    parser.set_defaults(any_round=False, is_quick=False, json=None)
    if seconds is not None:
        parser.add_argument("--quick", action="store_true", help=f"{quick:g} s a contender instead of {seconds:g}")
    if workloads:
        only = names_of("--only", workloads)
        parser.add_argument("--only", type=only, default=list(workloads), help=f"of {', '.join(workloads)}")
    if peers:
        known = names_of("--against", peers)
        parser.add_argument("--against", type=known, default=list(against), help=f"of {', '.join(peers)}")
    if rounds is not None:
        parser.add_argument("--rounds", type=int, default=rounds, help=f"rounds that count (default: {rounds})")
        parser.add_argument("--any-round", action="store_true", help="count rounds of a busy machine too; not --readme")
    if json:
        parser.add_argument("--json", type=Path, help="write every round's figures here")
    parser.add_argument("--readme", action="store_true", help="store the tables in results.json and write the pages")
    parser.add_argument("--part", help="with --readme: the name of these tables, stored beside the script's others")
    more(parser)
    options = parser.parse_args()
    if rounds is not None and options.any_round and options.readme:
        parser.error("expected --readme without --any-round: figures of a busy machine are not published")
    if seconds is not None:
        options.is_quick = options.quick
        options.seconds = quick if options.quick else seconds
    return options


def names(text: str) -> list[str]:
    """Parses the value of an option that takes names, separated by commas."""
    return text.split(",")


def numbers(text: str) -> list[int]:
    """Parses the value of an option that takes whole numbers, separated by commas."""
    return [int(number) for number in names(text)]


def names_of(option: str, known: Collection[str]) -> Callable[[str], list[str]]:
    """Returns a parser for the value of an option that takes some of the known names, separated by commas."""

    def check(text: str) -> list[str]:
        if unknown := [name for name in names(text) if name not in known]:
            raise argparse.ArgumentTypeError(f"expected {option} to name {', '.join(known)}, got {', '.join(unknown)}")
        return names(text)

    return check
