"""The entry point of the ``remuda`` command.

It needs only the standard library, because errors advise users to run it. A subcommand imports other modules
when it runs, so that a worker process started by ``spawn``, which imports the main script again, does not load them.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

import remuda

from . import bench, demo, doctor, replay, run, top, trace

_OF_A_CLOSED_PIPE = 128 + 13  # the exit status that shells report if SIGPIPE ends a program


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the ``remuda`` command, and exit with its status. `arguments`: None takes those of the command line."""
    try:
        try:
            status = _run(sys.argv[1:] if arguments is None else arguments)
        finally:
            if not sys.stdout.closed:  # a program that `remuda trace` runs may close standard output
                sys.stdout.flush()
    except BrokenPipeError:  # the reader of the output has ended, for example `head`.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes stdout at exit
        status = _OF_A_CLOSED_PIPE
    sys.exit(status)


def _run(words: Sequence[str]) -> int:
    parser = build_parser()
    options = parser.parse_args(words)
    if options.run is None:
        parser.print_help(sys.stderr)
        return 2
    return int(options.run(options))


def build_parser() -> argparse.ArgumentParser:
    """Returns the parser of the ``remuda`` command. In the parsed options, ``run`` is the subcommand's function."""
    parser = argparse.ArgumentParser(
        prog="remuda",
        description="Steps many reinforcement-learning environments in parallel.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"remuda {remuda.__version__}")
    parser.set_defaults(run=None)
    subcommands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for subcommand in (demo, bench, doctor, replay, run, trace, top):
        subcommand.add_to(subcommands)
    return parser


if __name__ == "__main__":
    main()
