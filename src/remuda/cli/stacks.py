"""``remuda stacks``: the current stack of every worker of a running pool."""

from __future__ import annotations

import argparse
import dataclasses
import json
from typing import TYPE_CHECKING

from .options import Subcommands, add_pid, add_subcommand, show_pools

if TYPE_CHECKING:
    from remuda._watch.open_pool import OpenPool


def add_to(subcommands: Subcommands) -> None:
    """Describe the subcommand's options."""
    parser = add_subcommand(subcommands, stacks, "stacks")
    add_pid(parser)
    add = parser.add_argument
    add("--python", action="store_true", help="Python calls only, even if py-spy is installed")
    add("--json", action="store_true", help="print JSON")


def stacks(options: argparse.Namespace) -> int:
    """Show the Python stacks of the workers of a running program, first of the worker that is busy for the longest.

    If py-spy is installed, it shows Python and native calls, and stops each process for a moment. Otherwise the workers
    report their Python calls, even if they hang.
    """
    return show_pools(options.pid, lambda pools: _show(pools, options))


def _show(pools: list[OpenPool], options: argparse.Namespace) -> int:
    from remuda._watch.stacks import as_text, stacks_of

    found = [(pool, stacks_of(pool, native=not options.python)) for pool in pools]
    if options.json:
        shown = [
            {"name": pool.name, "pid": pool.pid, "stacks": [dataclasses.asdict(stack) for stack in stacks]}
            for pool, stacks in found
        ]
        print(json.dumps(shown, indent=2))
    else:
        print("\n\n".join(as_text(pool, stacks) for pool, stacks in found))
    return 0
