"""Tests remuda for other systems on Linux, in a Python without the modules and functions that Windows lacks.

    make test-portable

With `--quick-starts` it runs the first programs of pages, too.

The core is built as for other systems (REMUDA_PORTABLE). Modules and functions that Python has on POSIX systems only
are removed before remuda is imported, so code that needs one fails here. This test cannot cover another compiler, and
another system's threads and clocks.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.util
import logging
import os
import re
import runpy
import select
import signal
import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parents[1] / "docs"
QUICK_STARTS = {
    "start.md": "gymnasium",
    "gymnasium.md": "gymnasium",
    "sb3.md": "stable_baselines3",
    "pettingzoo.md": "mpe2",
}
OTHERS = ("asyncio", "gymnasium.vector.async_vector_env", "numpy.testing")
MODULES = ("fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty")
FUNCTIONS: dict[Any, tuple[str, ...]] = {
    os: (
        *("fork", "forkpty", "geteuid", "getpgid", "getuid", "killpg", "memfd_create", "pidfd_open", "posix_spawn"),
        *(
            "preadv",
            "register_at_fork",
            "sched_getaffinity",
            "sched_setaffinity",
            "setsid",
            "sysconf",
            "waitid",
            "WNOHANG",
        ),
    ),
    select: ("POLLIN", "POLLOUT", "epoll", "poll"),
    signal: ("SIGALRM", "SIGCHLD", "SIGHUP", "SIGKILL", "SIGSTOP", "pthread_sigmask", "setitimer"),
    socket: ("AF_UNIX", "SCM_RIGHTS", "recv_fds", "send_fds"),
}


class Absent(importlib.abc.MetaPathFinder):
    """An import hook that raises for the modules that only POSIX systems have."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> None:
        if name in MODULES:
            raise ModuleNotFoundError(f"No module named {name!r} (as on Windows)", name=name)


def main() -> None:
    for name in OTHERS:  # these modules may use functions of either system, so they are imported first
        importlib.import_module(name)
    for name in QUICK_STARTS.values():
        if importlib.util.find_spec(name) is not None:
            importlib.import_module(name)
    for name in MODULES:
        sys.modules.pop(name, None)
    sys.meta_path.insert(0, Absent())
    for module, names in FUNCTIONS.items():
        for name in names:
            vars(module).pop(name, None)
    sys.platform = "win32"

    import remuda
    from remuda.gymnasium import AsyncVectorEnv

    smoke = runpy.run_path(str(Path(__file__).with_name("smoke.py")))
    smoke["main"]()
    warned = list[str]()
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: warned.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("remuda").addHandler(handler)
    for _ in range(2):
        envs = AsyncVectorEnv([smoke["Walk"]] * 2)
        envs.reset(seed=0)
        envs.step([0, 1])
        envs.close()
        with remuda.Pool([smoke["Walk"]] * 2) as pool:
            assert pool.backend == "thread"
    assert len(warned) == 1 and "backend='thread'" in warned[0], warned
    for page, framework in QUICK_STARTS.items() if "--quick-starts" in sys.argv else ():
        start_quickly(page, framework)
    leave_a_thread(remuda, smoke["Walk"])
    for arguments in (["--version"], ["bench", "--help"], ["replay", "--help"]):
        with suppress(SystemExit):
            remuda_main(arguments)
    assert remuda.worker_info() is None
    print("the same without what only POSIX systems have")


def start_quickly(page: str, framework: str) -> None:
    """Runs the first program of a page, if the page's framework is installed."""
    if importlib.util.find_spec(framework) is None:
        print(f"SKIPPED: the quick start of {page}, because {framework} is not installed")
        return
    program = re.search(r"^```python\n(.*?)^```", (DOCS / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert program is not None, page
    exec(compile(program[1].replace("100_000", "1_000"), page, "exec"), {"__name__": "__main__"})
    print(f"the quick start of {page}")


def leave_a_thread(remuda: Any, env: Any) -> None:
    """Steps an env that hangs in its thread. The pool must rebuild it in another thread."""
    may_go, hung = threading.Event(), list[bool]()

    class HangsOnce(env):  # type: ignore[misc]
        def step(self, action: Any) -> Any:
            if not hung:
                hung.append(True)
                may_go.wait()
            return super().step(action)

    faults = remuda.FaultPolicy("restart", step_timeout=0.2, abandon_hung_threads=True)
    with remuda.Pool([env, HangsOnce], backend="thread", faults=faults) as pool:
        pool.reset(seed=0)
        assert pool.step([0, 1]).truncations.tolist() == [False, True]
        may_go.set()
        assert not pool.step([0, 1]).truncations.any()


def remuda_main(arguments: list[str]) -> None:
    from remuda.cli.app import main

    main(arguments)


if __name__ == "__main__":
    main()
