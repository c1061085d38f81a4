"""Reads the Python stacks of workers from outside, even if an env hangs while it holds the GIL.

A worker dumps its stack into a memory file when it gets a signal. `faulthandler` does that in the signal handler,
without the interpreter, so it also works if native code never returns. The reader finds the file in /proc.

After one of the two signals the worker continues. After the other one it stops, so that nothing (for example a system
call that the signal has interrupted) can finish before the worker is killed.
"""

from __future__ import annotations

import os
import re
import signal
from contextlib import suppress
from pathlib import Path

from remuda import _core
from remuda._system.originals import time
from remuda._system.processes import stat_of

_PATIENCE = 0.25  # the limit in seconds of the wait for a stack, because the worker may get no core or block signals
_LOOK = 0.0005
_NAME = "remuda-stacks"
_OUTERMOST = re.compile(r'^  File ".*_worker.main\.py", line \d+ in _serve$', re.MULTILINE)
_MANY = "  ...\n"  # the end of a stack that faulthandler has cut
_DEAF = "TtDZ"  # the states of a process that is stopped, in a system call that goes on, or a zombie


def _signals() -> tuple[int, int]:
    """Returns two signals that programs do not use. At each, a worker dumps its stack; at the second it also stops."""
    return int(signal.SIGRTMAX) - 6, int(signal.SIGRTMAX) - 7


# -- in the worker ---------------------------------------------------------------------------------------


def answer_for_stacks() -> None:
    """Makes this process dump the stack of the calling thread, the main one, at each of the two signals."""
    import faulthandler
    import fcntl

    fd = os.memfd_create(_NAME, os.MFD_CLOEXEC)
    fcntl.fcntl(fd, fcntl.F_SETFL, os.O_APPEND)
    goes_on, stops = _signals()
    faulthandler.register(goes_on, fd, all_threads=False)
    _core.stop_at(stops)
    faulthandler.register(stops, fd, all_threads=False, chain=True)


# -- in the process that reads a stack ---------------------------------------------------------------------


def stack_of(pid: int, *, last: bool = False) -> str:
    """Requests the stack of a worker. Returns its calls, the last first, each on a line as in tracebacks.

    Returns an empty string if the worker does not answer. `last`: whether the worker stops after the answer, because it
    will be killed.
    """
    with suppress(OSError):  # the worker has just ended, or is another user's
        pidfds = _core.Descriptors([os.pidfd_open(pid)])
        answers, number, state = _open_answers(pid), _signals()[last], stat_of(pid)[:1]
        if answers is not None and _catches(pid, number) and state and state[0] not in _DEAF:
            return _ask(pidfds[0], answers[0], number)
    return ""


def _ask(pidfd: int, answers: int, number: int) -> str:
    size = os.fstat(answers).st_size
    signal.pidfd_send_signal(pidfd, number)
    deadline = time.monotonic() + _PATIENCE
    while not _is_whole(text := os.pread(answers, 1 << 20, size).decode(errors="replace")):
        if time.monotonic() >= deadline:
            break
        time.sleep(_LOOK)
    return _frames(text)


def _open_answers(pid: int) -> _core.Descriptors | None:
    """Opens the file into which a worker dumps its stack. Returns None if there is no such file."""
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):  # the worker has closed the file meanwhile
            if os.readlink(link).startswith(f"/memfd:{_NAME}"):
                return _core.Descriptors([os.open(link, os.O_RDONLY)])
    return None


def _catches(pid: int, number: int) -> bool:
    """Returns whether a process has a handler for a signal. Without a handler, the signal ends the process."""
    status = Path(f"/proc/{pid}/status").read_text("utf-8")
    caught = re.search(r"^SigCgt:\s*([0-9a-f]+)$", status, re.MULTILINE)
    return caught is not None and bool(int(caught[1], 16) >> (number - 1) & 1)


def _is_whole(text: str) -> bool:
    return _OUTERMOST.search(text) is not None or text.endswith(_MANY)


def _frames(text: str) -> str:
    """Returns the frames of a dumped stack, without the worker's function `_serve` and its callers."""
    lines = text.splitlines()
    end = next((i for i, line in enumerate(lines) if _OUTERMOST.match(line)), len(lines))
    return "\n".join(line.strip() for line in lines[:end] if line.startswith("  "))
