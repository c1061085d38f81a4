"""Programs with unusual processes, settings and patches. Each gets rows, or one error that names the remedy."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from drawn import MINUTES

_ENV = """
import gymnasium
import numpy as np

class TinyEnv(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 9, (1,), np.int64)
    action_space = gymnasium.spaces.Discrete(9)

    def reset(self, *, seed=None, options=None):
        return np.zeros(1, np.int64), {}

    def step(self, action):
        return np.array([action]), float(action), False, False, {}
"""

_HEAD = """
import os
REPORT = int(os.environ["REPORT"])

def use():
    import remuda
    from tiny_env import TinyEnv
    try:
        with remuda.Pool([TinyEnv] * 2, num_workers=2, start_method=START_METHOD) as pool:
            pool.reset(seed=0)
            said = f"rows {pool.step([1, 2]).rewards.tolist()}"
    except remuda.RemudaError as error:
        said = f"{type(error).__name__}: {error}"
    os.write(REPORT, said.encode())
"""

_ROWS = r"rows \[1\.0, 2\.0\]"


@dataclass(frozen=True)
class Program:
    """Code that calls `use`, and how it is run.

    Attributes:
        by: How Python gets the code: "file", or one of its options "-c", "-m" and "-" (standard input).
        expected: A pattern of the whole report: of the rewards, or of the error.
    """

    code: str
    options: Sequence[str] = ()
    by: str = "file"
    variables: Mapping[str, str] = field(default_factory=dict)
    expected: str = _ROWS

    def run(self, directory: Path, start_method: str | None) -> str:
        """Runs the program until it and all its workers have ended. Returns a text on all that it did."""
        code = f"START_METHOD = {start_method!r}\n{_HEAD}\n{self.code}"
        directory.mkdir()
        (directory / "tiny_env.py").write_text(_ENV)
        (directory / "program.py").write_text(code)
        source = {"file": [str(directory / "program.py")], "-c": ["-c", code], "-m": ["-m", "program"], "-": ["-"]}
        reader, writer = os.pipe()
        with open(reader) as report:
            environment = {**os.environ, "PYTHONPATH": str(directory), "REPORT": str(writer), **self.variables}
            environment["IMPORT_PATH"] = os.pathsep.join([str(directory), *sys.path])
            process = subprocess.Popen(
                [sys.executable, *self.options, *source[self.by]],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                cwd=directory,
                env=environment,
                pass_fds=[writer],
                text=True,
            )
            os.close(writer)
            output, _ = process.communicate(code if self.by == "-" else "")  # workers keep the pipe open, too
            return report.read() + output + (f", exit code {process.returncode}" if process.returncode else "")


def _limits(**limits: int) -> str:
    """Returns code that sets soft limits of the process."""
    lines = [
        f"resource.setrlimit(resource.RLIMIT_{name}, ({soft}, resource.getrlimit(resource.RLIMIT_{name})[1]))"
        for name, soft in limits.items()
    ]
    return "import remuda, resource, tiny_env\n" + "\n".join(lines)


_STREAMS = {
    "closed": Program("for fd in range(3): os.close(fd)\nuse()"),
    "no streams": Program("import sys\nsys.stdin = sys.stdout = sys.stderr = None\nuse()"),
    "with write only": Program(
        "import sys\nclass Stream:\n    def write(self, text): pass\n"
        "sys.stdin = sys.stdout = sys.stderr = Stream()\nuse()\nsys.stdout = sys.stderr = None"
    ),
    "a pipe without a reader": Program("r, w = os.pipe()\nos.close(r)\nos.dup2(w, 1)\nos.dup2(w, 2)\nuse()"),
}
_SIGNALS = {
    "all blocked": Program("import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())\nuse()"),
    "an alarm each millisecond": Program(
        "import signal\nsignal.signal(signal.SIGALRM, lambda *_: None)\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)\nuse()\nsignal.setitimer(signal.ITIMER_REAL, 0)"
    ),
    "a handler reaps all children": Program(
        "import signal\ndef reap(*_):\n    try:\n        while os.waitpid(-1, os.WNOHANG)[0]: pass\n"
        "    except ChildProcessError: pass\nsignal.signal(signal.SIGCHLD, reap)\nuse()"
    ),
}
_PROCESS = {
    "umask": Program("os.umask(0o777)\nuse()"),
    "subreaper": Program("import ctypes\nctypes.CDLL(None).prctl(36, 1, 0, 0, 0)\nuse()"),
    "deleted directory": Program("os.mkdir('d')\nos.chdir('d')\nos.rmdir('../d')\nuse()"),
    "one core, low priority": Program("os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\nos.nice(5)\nuse()"),
    "in a forked daemon": Program("if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0: use()\n    os._exit(0)"),
    "in a child of multiprocessing": Program(
        "import multiprocessing\nprocess = multiprocessing.get_context('fork').Process(target=use, daemon=True)\n"
        "process.start()\nprocess.join()"
    ),
    "in a thread with a small stack": Program(
        "import threading\nthreading.stack_size(1 << 17)\nt = threading.Thread(target=use)\nt.start()\nt.join()"
    ),
    "in a running event loop": Program("import asyncio\nasync def main(): use()\nasyncio.run(main())"),
}
_LIMITS = {
    "many inheritable descriptors": Program(
        f"{_limits(NOFILE=4096)}\nfor _ in range(1500): os.set_inheritable(os.open('/dev/null', 0), True)\nuse()"
    ),
    "few descriptors": Program(f"{_limits(NOFILE=12)}\nuse()", expected=r"ResourceError: .* free file descriptors .*"),
    "small memory": Program(f"{_limits(AS=4 << 30, DATA=2 << 30, STACK=1 << 19, CORE=0, MEMLOCK=0)}\nuse()"),
    "no files": Program(f"{_limits(FSIZE=0)}\nuse()", expected=r"ResourceError: .*`ulimit -f`.*raise it.*"),
    "killed by SIGXFSZ": Program(
        f"import signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_DFL)\n{_limits(FSIZE=0)}\nuse()",
        expected=r"ResourceError: .*`ulimit -f`.*",
    ),
}
_VARIABLES = {
    "none": Program("os.environ.clear()\nuse()"),
    "no text": Program(r"os.environb[b'\xff'] = b'\xfe'" + "\nuse()"),
    "1 MB": Program("for i in range(10): os.environ[f'BIG{i}'] = 'x' * 100_000\nuse()"),
    "one too long": Program(
        "os.environ['BIG'] = 'x' * 200_000\nuse()", expected=r"ResourceError: .*most in BIG \(200003\).*shorten.*'fork'"
    ),
    "C locale": Program("use()", ["-X", "utf8=0"], variables={"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"}),
    "no Python starts with them": Program(
        "import sys\nsys.executable = '/bin/true'\nuse()",
        expected=r"RemudaError: the fork server died: .*'/bin/true'.*",
    ),
}
_INTERPRETER = {
    "-I": Program("import sys\nsys.path[:0] = os.environ['IMPORT_PATH'].split(os.pathsep)\nuse()", ["-I"]),
    "-S": Program("import sys\nsys.path[:0] = os.environ['IMPORT_PATH'].split(os.pathsep)\nuse()", ["-S"]),
    "-W error": Program("use()", ["-X", "warn_default_encoding", "-W", "error"]),
    "-c": Program("use()", by="-c"),
    "-m": Program("use()", by="-m"),
    "standard input": Program("use()", by="-"),
    "odd import path": Program(
        "import pathlib, sys\nsys.path += [pathlib.Path('.'), b'bytes', None, 7, '\"', '\\udce9']\nuse()"
    ),
    "no arguments": Program("import sys\ndel sys.argv\nuse()"),
    "no __main__": Program("import sys\nmain, sys.modules['__main__'] = sys.modules['__main__'], None\nuse()"),
    "recursion limit": Program("import remuda, sys, tiny_env\nsys.setrecursionlimit(100)\nuse()"),
    "frozen": Program("import sys\nsys.frozen, sys.executable = True, '/bin/false'\nuse()"),
    "embedded": Program("import sys\nsys.executable = None\nuse()"),
    "embedded, with its own name": Program("import sys\nsys.orig_argv = []\nuse()"),
}
_PATCHES = {
    "clock": Program(
        "import time\ntime.time = time.monotonic = time.perf_counter = lambda: 1e9\ntime.sleep = lambda _: None\nuse()"
    ),
    "profilers": Program(
        "import cProfile, threading\nthreading.setprofile(lambda *_: None)\ncProfile.Profile().runcall(use)"
    ),
    "default timeout": Program("import socket\nsocket.setdefaulttimeout(7)\nuse()"),
    "as gevent and eventlet patch": Program(
        "import select, socket, subprocess\ndel select.poll\n"
        "def wrong(*_, **__): raise AssertionError('a patched function was called')\n"
        "socket.socket = socket.socketpair = os.waitpid = wrong\nuse()"
    ),
    "warnings": Program("import warnings\nwarnings.simplefilter('error')\nwarnings.showwarning = None\nuse()"),
    "hooks": Program("import remuda, sys\nsys.excepthook = sys.unraisablehook = None\nuse()"),
}
_GROUPS = {
    "streams": _STREAMS,
    "signals": _SIGNALS,
    "process": _PROCESS,
    "limits": _LIMITS,
    "variables": _VARIABLES,
    "interpreter": _INTERPRETER,
    "patches": _PATCHES,
}
_FROZEN = Program(_INTERPRETER["frozen"].code, expected=r"RemudaError: .* is frozen .* 'fork'.*")
_TOO_LONG = Program(_VARIABLES["one too long"].code)  # a forked worker starts with any variables
_ALL = {name: program for programs in _GROUPS.values() for name, program in programs.items()}
_BY_BOTH = ("closed", "no streams", "all blocked", "no text", "odd import path", "default timeout")
_BY_BOTH += ("as gevent and eventlet patch",)
_FORKED = {name: _ALL[name] for name in (*_BY_BOTH, "an alarm each millisecond", "deleted directory", "hooks")}
_SPAWNED = {name: _ALL[name] for name in (*_BY_BOTH, "one too long")}


# Each program starts Python twice, so `make test` runs those that differ most, and `make soak` runs all.
_RARE = {
    *("with write only", "subreaper", "deleted directory", "in a child of multiprocessing"),
    *("in a running event loop", "many inheritable descriptors", "killed by SIGXFSZ", "no text", "1 MB"),
    *("-S", "standard input", "no arguments", "recursion limit", "embedded", "clock", "profilers"),
    *("default timeout", "warnings", "hooks", "a pipe without a reader", "one core, low priority", "small memory"),
    *("-W error", "-m", "embedded, with its own name", "none"),
}


def _often(programs: dict[str, Program]) -> dict[str, Program]:
    return {name: program for name, program in programs.items() if MINUTES or name not in _RARE}


@pytest.mark.parametrize(
    ("programs", "start_method"),
    [
        *(pytest.param(_often(programs), None, id=name) for name, programs in _GROUPS.items()),
        pytest.param({**_often(_FORKED), "one too long": _TOO_LONG}, "fork", id="fork"),
        pytest.param({**_often(_SPAWNED), "frozen": _FROZEN}, "spawn", id="spawn"),
        pytest.param({"frozen": _FROZEN}, "forkserver", id="forkserver"),
    ],
)
@pytest.mark.watchdog(600)  # some groups have twelve programs
def test_hostile_programs(programs: dict[str, Program], start_method: str | None, tmp_path: Path) -> None:
    with ThreadPoolExecutor(3) as several:
        directories = [tmp_path / str(index) for index in range(len(programs))]
        started = several.map(lambda place, one: one.run(place, start_method), directories, programs.values())
        reports = dict(zip(programs, started, strict=True))
    wrong = {name: text for name, text in reports.items() if not re.fullmatch(programs[name].expected, text)}
    assert wrong == {}
