"""The entry point of the ``remuda`` command.

It needs nothing but the standard library, because errors advise users to run it. A subcommand imports what it needs
when it runs. So a worker process started by ``spawn``, which imports the main script again, does not load a command.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Sequence

import remuda

from . import bench, demo, doctor, replay, stacks, top, trace, tune

_OF_A_CLOSED_PIPE = 128 + 13  # as shells have it of a program that SIGPIPE ended


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command, and exit with its status. `arguments`: None for those of the command line."""
    try:
        try:
            status = _run(sys.argv[1:] if arguments is None else arguments)
        finally:
            if not sys.stdout.closed:  # `remuda trace` runs programs, which may close it
                sys.stdout.flush()
    except BrokenPipeError:  # the reader has closed the pipe, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes once more as it ends
        status = _OF_A_CLOSED_PIPE
    sys.exit(status)


def _run(words: Sequence[str]) -> int:
    parser = build_parser()
    options = parser.parse_args(words)
    options.command = shlex.join(["remuda", *words])
    if options.run is None:
        parser.print_help(sys.stderr)
        return 2
    return int(options.run(options))


def build_parser() -> argparse.ArgumentParser:
    """The command with its subcommands; the function that a subcommand stands for is in ``run``."""
    parser = argparse.ArgumentParser(
        prog="remuda",
        description="Steps many reinforcement-learning environments in parallel.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"remuda {remuda.__version__}")
    parser.set_defaults(run=None)
    subcommands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for subcommand in (demo, bench, doctor, replay, trace, stacks, top, tune):
        subcommand.add_to(subcommands)
    return parser


if __name__ == "__main__":
    main()
