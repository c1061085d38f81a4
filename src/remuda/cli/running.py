"""Finds the running program, and its pools, for the subcommands that look at them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from .options import at_least, refuse

if TYPE_CHECKING:
    from remuda._watch.finding import Found


def add_pid(parser: argparse.ArgumentParser) -> None:
    """Describe the option that names a program."""
    parser.add_argument(
        "pid", type=at_least(1), nargs="?", metavar="PID", help="of the program; all of this user's, if none is named"
    )


def show_pools(pid: int | None, show: Callable[[Found], int]) -> int:
    """Show the pools of a program, or of all of this user's, those that start too.

    Return the exit status of `show`, or of a refusal.
    """
    if sys.platform != "linux":
        return refuse(f"expected Linux, whose /proc tells of processes, got {sys.platform}")
    from remuda._watch.finding import NotFoundError, find

    try:
        found = find(pid)
    except NotFoundError as error:
        return refuse(str(error))
    try:
        return show(found)
    finally:
        found.close()
