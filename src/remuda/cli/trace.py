"""``remuda trace``: runs a program and records what happens in its pools."""

from __future__ import annotations

import argparse
import importlib.util
import os
import runpy
import signal
import sys
from pathlib import Path

import remuda

from .options import Subcommands, add_subcommand, at_least, refuse


def add_to(subcommands: Subcommands) -> None:
    """Describe the subcommand's options."""
    parser = add_subcommand(subcommands, trace, "trace")
    add = parser.add_argument
    add("--output", "-o", type=Path, default=Path("trace.json"), metavar="FILE", help="the trace (default: trace.json)")
    add("--events", type=at_least(1), metavar="N", help="latest events to keep of each pool (default: 524288)")
    add("--module", "-m", action="store_true", help="SCRIPT is a module's name")
    add("script", metavar="SCRIPT", help="a program in Python")
    add("args", nargs=argparse.REMAINDER, metavar="ARGS", help="arguments of the program")


def trace(options: argparse.Namespace) -> int:
    """Run a program, and record what happens in its pools for Perfetto or Chrome to show.

    Open the file in https://ui.perfetto.dev. It is written when the program ends, also by SIGTERM.
    """
    if not options.module and not Path(options.script).is_file():
        return refuse(f"expected a program in Python, got {options.script}, which is no file")
    sys.argv = [options.script, *options.args]
    sys.path[0] = str(Path.cwd()) if options.module else str(Path(options.script).resolve().parent)
    if options.module and not _is_module(options.script):
        return refuse(f"expected a module with -m, got {options.script}, and Python finds none of that name")
    events = {} if options.events is None else {"events": options.events}
    try:
        recording = remuda.trace(options.output, **events)
    except OSError as error:
        return refuse(str(error))
    end, is_written = _End(recording), False
    try:
        if options.module:
            runpy.run_module(options.script, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(options.script, run_name="__main__")
    finally:
        is_written = end.write()
    return 0 if is_written else 1


class _End:
    """Writes the trace when the program ends. SIGTERM, which Slurm and Docker send, also counts as an end.

    SIGTERM ends the program at once, but the trace is written before. If the program sets a handler, that replaces
    this one.
    """

    def __init__(self, recording: remuda.Trace) -> None:
        self._recording, self._owner = recording, os.getpid()
        self._is_writing = self._is_due = False
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._on_sigterm)

    def write(self) -> bool:
        """Writes the trace, and returns whether it was written. An OSError is only printed."""
        self._is_writing = True
        try:
            print(f"the trace: {self._recording.stop()}  (open it in https://ui.perfetto.dev)", file=sys.stderr)
        except OSError as error:
            print(f"error: the trace could not be written: {error}", file=sys.stderr)
            return False
        finally:
            self._is_writing = False
            if self._is_due:
                self._die()
        return True

    def _on_sigterm(self, *_: object) -> None:
        self._is_due = True
        if os.getpid() != self._owner:  # a forked child ends at once: its parent writes the trace
            self._die()
        if not self._is_writing:  # else the trace is being written, and then `write` ends the program
            self.write()

    def _die(self) -> None:
        sys.stderr.flush()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)


def _is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):  # the module's package does not exist
        return False
