"""Options that subcommands share: their descriptions, and how texts become values."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    Subcommands = argparse._SubParsersAction[argparse.ArgumentParser]


def add_subcommand(subcommands: Subcommands, run: Callable[[Any], int], name: str) -> argparse.ArgumentParser:
    """A subcommand that runs a function with the parsed options, and whose help is the function's docstring."""
    summary, _, rest = (run.__doc__ or "").partition("\n")
    parser: argparse.ArgumentParser = subcommands.add_parser(
        name, help=summary, description=f"{summary}\n{rest}", allow_abbrev=False
    )
    parser.set_defaults(run=run)
    return parser


def at_least(least: float, kind: Callable[[str], Any] = int) -> Callable[[str], Any]:
    """For ``type=`` of a number."""
    name = "an int" if kind is int else "a number"

    def number(text: str) -> Any:
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not value >= least:  # NaN is not
            raise argparse.ArgumentTypeError(f"expected {name} from {least} up, got {text!r}")
        return value

    return number


def refuse(message: str) -> int:
    """Say on one line why nothing was run, and return the exit status for that."""
    print(f"error: {message}", file=sys.stderr)
    return 2
