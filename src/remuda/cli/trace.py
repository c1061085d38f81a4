"""``remuda trace``: runs a program and records what happens in its pools."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path

import remuda

from .options import Subcommands, add_subcommand, at_least, refuse
from .program import add_program, find_program, run_program


def add_to(subcommands: Subcommands) -> None:
    """Describe the subcommand's options."""
    parser = add_subcommand(subcommands, trace, "trace")
    add = parser.add_argument
    add("--output", "-o", type=Path, default=Path("trace.json"), metavar="FILE", help="the trace (default: trace.json)")
    add("--events", type=at_least(1), metavar="N", help="latest events to keep of each pool (default: 524288)")
    add_program(parser)


def trace(options: argparse.Namespace) -> int:
    """Run a program, and record what happens in its pools for Perfetto or Chrome to show.

    Open the file in https://ui.perfetto.dev. It is written when the program ends, also by SIGTERM.
    """
    if reason := find_program(options):
        return refuse(reason)
    events = {} if options.events is None else {"events": options.events}
    try:
        recording = remuda.trace(options.output, **events)
    except OSError as error:
        return refuse(str(error))
    end, is_written = _End(recording), False
    try:
        run_program(options)
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
