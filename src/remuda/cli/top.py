"""``remuda top``: a live view of the running pools of this user."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time

from .options import Subcommands, add_subcommand, at_least, refuse


def add_to(subcommands: Subcommands) -> None:
    """Describe the subcommand's options."""
    parser = add_subcommand(subcommands, top, "top")
    add = parser.add_argument
    add("pid", type=at_least(1), nargs="?", metavar="PID", help="process id; default: all programs of this user")
    add("--interval", type=at_least(0.05, float), default=1.0, metavar="S", help="seconds between updates (default: 1)")
    add("--json", action="store_true", help="print the figures of one interval as JSON")


def top(options: argparse.Namespace) -> int:
    """Watch the running pools of this user: their speed, waits, faults, memory and bottlenecks.

    The command only reads the memory of the programs, and does not slow them down. It ends with the last pool, or by
    Ctrl-C.
    """
    if reason := _reason_not_to_draw(options):
        return refuse(reason)
    from remuda._watch.finding import NotFoundError

    try:
        _print_json(options) if options.json else _draw(options)
    except NotFoundError as error:
        return refuse(str(error))
    except KeyboardInterrupt:
        pass
    return 0


def _draw(options: argparse.Namespace) -> None:
    from rich.console import Console

    from remuda._watch.top import watch

    watch(options.pid, Console(), options.interval)
    print("all pools are closed")


def _print_json(options: argparse.Namespace) -> None:
    from remuda._watch.finding import find

    pools = find(options.pid)
    first = [pool.look() for pool in pools]
    time.sleep(options.interval)
    shown = [pool.as_json(earlier, pool.look()) for pool, earlier in zip(pools, first, strict=True)]
    print(json.dumps(shown, indent=2))


def _reason_not_to_draw(options: argparse.Namespace) -> str | None:
    from remuda._system.machine import is_installed

    if sys.platform != "linux":
        return f"expected Linux, which has /proc, got {sys.platform}"
    if options.json:
        return None
    if not is_installed("rich"):
        return 'remuda top needs rich: pip install "remuda-rl[top]"; or use --json'
    if not sys.stdout.isatty():
        return "expected a terminal to draw on; use --json for a file or a pipe"
    if (kind := os.environ.get("TERM", "dumb")) in ("dumb", "unknown"):
        return f"expected a terminal that can be drawn on, got TERM={kind}; use --json, or TERM=xterm if it can"
    return None
