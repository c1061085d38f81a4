"""Runs a program for the subcommands ``run`` and ``trace``, as ``python`` would."""

from __future__ import annotations

import argparse
import importlib.util
import runpy
import sys
from pathlib import Path


def add_program(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments that name a program. They must be the last ones."""
    parser.add_argument("--module", "-m", action="store_true", help="SCRIPT is a module's name")
    parser.add_argument("script", metavar="SCRIPT", help="a program in Python")
    parser.add_argument("args", nargs=argparse.REMAINDER, metavar="ARGS", help="arguments of the program")


def find_program(options: argparse.Namespace) -> str | None:
    """Prepares `sys.argv` and `sys.path` for the program. Returns why it cannot run; None if it can."""
    if not options.module and not Path(options.script).is_file():
        return f"expected a program in Python, got {options.script}, which is no file"
    sys.argv = [options.script, *options.args]
    sys.path[0] = str(Path.cwd()) if options.module else str(Path(options.script).resolve().parent)
    if options.module and not _is_module(options.script):
        return f"expected a module with -m, got {options.script}, and Python finds none of that name"
    return None


def run_program(options: argparse.Namespace) -> None:
    """Runs the program, and raises what it raises, `SystemExit` included."""
    if options.module:
        runpy.run_module(options.script, run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(options.script, run_name="__main__")


def _is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):  # the module's package does not exist
        return False
