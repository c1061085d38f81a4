"""``remuda run``: runs a program whose vector envs of Gymnasium become remuda's."""

from __future__ import annotations

import argparse

import remuda

from .options import Subcommands, add_subcommand, at_least, refuse
from .program import add_program, find_program, run_program


def add_to(subcommands: Subcommands) -> None:
    """Describe the subcommand's options."""
    parser = add_subcommand(subcommands, run, "run")
    workers = "workers of each vector env (default: one for each env)"
    parser.add_argument("--num-workers", type=at_least(1), metavar="N", help=workers)
    add_program(parser)


def run(options: argparse.Namespace) -> int:
    """Run a program with remuda's AsyncVectorEnv in the place of Gymnasium's AsyncVectorEnv and SyncVectorEnv.

    The program needs no change. Its status is the command's.
    """
    if reason := find_program(options):
        return refuse(reason)
    remuda.gymnasium.install(sync=True, num_workers=options.num_workers)
    run_program(options)
    return 0
