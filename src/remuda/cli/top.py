"""``remuda top``: a live view of the running pools of this user."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from typing import TYPE_CHECKING

from .options import add_subcommand, at_least, refuse
from .running import add_pid, show_pools

if TYPE_CHECKING:
    from remuda._watch.finding import Found

    from .options import Subcommands


def add_to(subcommands: Subcommands) -> None:
    """Describe the subcommand's options."""
    parser = add_subcommand(subcommands, top, "top")
    add_pid(parser)
    add = parser.add_argument
    add("--interval", type=at_least(0.05, float), default=1.0, metavar="S", help="between two looks (default: 1)")
    add("--json", action="store_true", help="look twice, that long apart, and print all figures as JSON")


def top(options: argparse.Namespace) -> int:
    """Watch the envs and workers of running programs: rates, times, memory, and what holds them back.

    Nothing is asked of the programs, and none is slowed down: their memory is read. Keys are told in the last line.
    """
    return show_pools(options.pid, lambda found: _show(found, options))


def _show(found: Found, options: argparse.Namespace) -> int:
    if options.json:
        return _print_json(found, options.interval)
    reason = _reason_not_to_draw()
    return _draw(found, options.interval) if reason is None else refuse(reason)


def _reason_not_to_draw() -> str | None:
    from remuda._reports.packages import is_installed

    if not is_installed("rich"):
        return 'remuda top needs rich: pip install "remuda[top]"; or use --json'
    if not sys.stdout.isatty():
        return "expected a terminal to draw on; use --json for a file or a pipe"
    if (kind := os.environ.get("TERM", "dumb")) in ("dumb", "unknown"):
        return f"expected a terminal that can be drawn on, got TERM={kind}; use --json, or TERM=xterm if it can"
    return None


def _print_json(found: Found, interval: float) -> int:
    from remuda._watch import start_page
    from remuda._watch.dump import dump

    pools = found.pools
    before = [pool.stats() for pool in pools]
    time.sleep(interval)
    after = [pool.stats() for pool in pools]
    told = [dump(pool, last, last - first) for pool, first, last in zip(pools, before, after, strict=True)]
    print(json.dumps([*(start_page.dump(pool) for pool in found.starting), *told], indent=2))
    return 0


def _draw(found: Found, interval: float) -> int:
    from rich.console import Console

    from remuda._watch.keys import terminal_keys
    from remuda._watch.top import Top

    top = Top(found.all, Console(), interval)
    try:
        with terminal_keys() as keys:
            ended = top.run(keys)
    except KeyboardInterrupt:
        return 0
    finally:
        top.close()
    if ended:
        print(ended)
    return 0
