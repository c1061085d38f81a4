"""Pools in separate programs, and a terminal that shows them."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pyte
from programs import HEAD

# A program that steps until it reads a line. Env 3 is slow. Env 5 hangs at action 9.
PROGRAM = """
import time
def be_slow(env, action):
    time.sleep(0.002)
def hang_at_9(env, action):
    while action == 9:
        pass
fns = [*hooked(5, [3], step=be_slow), *hooked(6, [5], step=hang_at_9)[5:]]
with Pool(fns, num_workers=3, name="herd", worker_output="capture", **options) as pool:
    pool.reset()
    say(pids(pool))
    def run(action):
        global going
        while going:
            pool.step(np.full(6, action))
    going = True
    thread = threading.Thread(target=run, args=(1,))
    thread.start()
    input()
    going = False
    thread.join()
    if hangs:
        pool.send(np.full(6, 9))
        pool.recv(min_envs=4)  # env 4 shares the worker of env 5
        while [worker.doing_env for worker in pool.stats().workers] != [None, None, 5]:
            pass
        say("hangs")
        input()
        os.kill(pool.workers[2].pid, 9)
say("closed")
input()
"""

# A program that builds 4 envs in 4 workers. Envs with a gate wait at it.
STARTING = """
import logging, remuda._progress.bar
def make(gate, words):
    def build():
        if gate is not None:
            wait_for_simulator(gate)
        if words:
            logging.getLogger("sim").warning(words)
            wait_for_simulator(gate)
        return CountingEnv()
    return build
def wait_for_simulator(gate):
    gate.wait()
logging.basicConfig(format="log: %(message)s")
remuda._progress.bar.PATIENCE = patience
fns = [make(gate, words if env == 1 else "") for env, gate in enumerate(gates)]
if replaces:
    with Pool([CountingEnv] * 4, num_workers=4, name="herd", **options) as pool:
        pool.replace([0, 1, 2, 3], fns)
        print("replaced")
        input()
else:
    with Pool(fns, num_workers=4, name="herd", **options) as pool:
        print("built")
        input()
"""


def starting_program(
    gates: Sequence[object], options: str = "{}", *, words: str = "", replaces: bool = False, patience: float = 0.0
) -> str:
    """Returns a program that starts a pool. Env 1 logs `words`, if any, and then waits at its gate once more."""
    head = f"from pool_envs import Gate\ngates, options, words = {list(gates)!r}, {options}, {words!r}\n"
    return f"{head}replaces, patience = {replaces!r}, {patience!r}\n{STARTING}"


def program(hangs: bool = False, options: str = "{}") -> str:
    return f"hangs, options = {hangs!r}, {options}\n{PROGRAM}"


class Terminal:
    """A command in a pseudo-terminal of this size, with the screen that a user would see."""

    def __init__(self, command: list[str], columns: int, lines: int, cwd: Path, **variables: str) -> None:
        self.screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self.screen)
        self._fd, side = pty.openpty()
        fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        environment = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES", "NO_COLOR")}
        environment |= {"TERM": "xterm-256color", **variables}
        self.process = subprocess.Popen(command, stdin=side, stdout=side, stderr=side, cwd=cwd, env=environment)
        os.close(side)

    def text(self) -> str:
        return "\n".join(self.screen.display)

    def await_text(self, is_there: Callable[[str], object]) -> str:
        """Reads until the screen fulfils the condition. If it never does, the watchdog ends the test."""
        while not is_there(self.text()):
            if not self._read():
                raise AssertionError(f"it has ended, with this on the screen:\n{self.text()}")
        return self.text()

    def press(self, keys: str) -> None:
        os.write(self._fd, keys.encode())

    def await_end(self) -> tuple[int, str]:
        """Returns the exit status and the final screen."""
        while self._read():
            pass
        return self.process.wait(), self.text()

    def _read(self) -> bool:
        select.select([self._fd], [], [])
        try:
            data = os.read(self._fd, 1 << 16)
        except OSError:  # EIO: the other side is closed
            return False
        self._stream.feed(data)
        return bool(data)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        os.close(self._fd)


def terminal(*arguments: str, cwd: Path, **variables: str) -> closing[Terminal]:
    """A terminal that runs `remuda`."""
    return closing(Terminal([sys.executable, "-m", "remuda", *arguments], 80, 24, cwd, **variables))


def terminal_of(code: str, cwd: Path, **variables: str) -> closing[Terminal]:
    """A terminal that runs a program, in the form of those of `Script`."""
    (cwd / "program.py").write_text(f"{HEAD}\n{code}")
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    return closing(Terminal([sys.executable, "program.py"], 80, 24, cwd, PYTHONPATH=path, **variables))
