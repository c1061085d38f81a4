"""Shared parts of the subcommands: descriptions of options, conversions of values, and error messages."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any, TypeAlias

Subcommands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def add_subcommand(subcommands: Subcommands, run: Callable[[Any], int], name: str) -> argparse.ArgumentParser:
    """Adds a subcommand that runs a function with the parsed options. Its help is the function's docstring."""
    summary, _, rest = (run.__doc__ or "").partition("\n")
    parser: argparse.ArgumentParser = subcommands.add_parser(
        name, help=summary, description=f"{summary}\n{rest}", allow_abbrev=False
    )
    parser.set_defaults(run=run)
    return parser


def at_least(least: float, kind: Callable[[str], Any] = int) -> Callable[[str], Any]:
    """Returns a function for an option's ``type=``, which accepts numbers of at least `least`."""
    name = "an int" if kind is int else "a number"

    def number(text: str) -> Any:
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not value >= least:  # refuses NaN, too
            raise argparse.ArgumentTypeError(f"expected {name} from {least} up, got {text!r}")
        return value

    return number


def refuse(message: str) -> int:
    """Print an error in one line, and return the exit status for a command that ran nothing."""
    print(f"error: {message}", file=sys.stderr)
    return 2
