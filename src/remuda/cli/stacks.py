"""``remuda stacks``: what every worker of a running pool is in right now."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from typing import TYPE_CHECKING

from .options import add_subcommand, at_least, refuse

if TYPE_CHECKING:
    from .options import Subcommands


def add_to(subcommands: Subcommands) -> None:
    """Describe the subcommand's options."""
    parser = add_subcommand(subcommands, stacks, "stacks")
    add = parser.add_argument
    add("pid", type=at_least(1), nargs="?", metavar="PID", help="of the program; all of this user's, if none")
    add("--python", action="store_true", help="Python calls alone, also where there is py-spy")
    add("--json", action="store_true", help="print JSON")


def stacks(options: argparse.Namespace) -> int:
    """Show what every worker of a running program is in right now, the slowest first.

    Python and native calls where py-spy is installed, which stops each process for a moment; else Python calls, for
    which workers answer themselves, wherever they hang.
    """
    if sys.platform != "linux":
        return refuse(f"expected Linux, whose /proc tells of processes, got {sys.platform}")
    from remuda._watch.finding import NotFoundError, find_pools
    from remuda._watch.stacks import as_text, stacks_of

    try:
        pools = find_pools(options.pid)
    except NotFoundError as error:
        return refuse(str(error))
    found = [(pool, stacks_of(pool, native=not options.python)) for pool in pools]
    if options.json:
        told = [
            {"name": pool.card.name, "pid": pool.card.owner, "stacks": [dataclasses.asdict(one) for one in its]}
            for pool, its in found
        ]
        print(json.dumps(told, indent=2))
    else:
        print("\n\n".join(as_text(pool, its) for pool, its in found))
    for pool in pools:
        pool.close()
    return 0
