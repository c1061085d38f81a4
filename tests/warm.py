"""Starts programs without the time of their imports: forks an interpreter that has imported what all of them import.

A program has its own session, arguments, directories for imports, streams and `__main__`, and ends as any other does.
`/proc` shows its own environment, by which tests find the processes of a program.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_MARK = "REMUDA_TEST"
_LONGEST = 4096  # bytes of a path
_CAPACITY = 1 << 20  # bytes of a request


class Warm:
    """An interpreter that waits for programs to fork."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _CAPACITY)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__],
                stdin=theirs,
                stdout=subprocess.DEVNULL,
                env={**os.environ, _MARK: " " * _LONGEST, "PYTHONPATH": os.pathsep.join(sys.path)},
                start_new_session=True,
            )

    def ask(self, request: Any, fds: list[int] | None = None) -> Any:
        socket.send_fds(self._socket, [json.dumps(request).encode()], fds or [])
        return json.loads(self._socket.recv(_CAPACITY))

    def close(self) -> None:
        self._socket.close()
        self._process.wait()


class WarmProgram(subprocess.Popen[str]):
    """A program that a warm interpreter forks. Looks like a child of this process, although it is a grandchild."""

    def __init__(self, warm: Warm, path: Path, import_path: list[str], environment: Mapping[str, str]) -> None:
        self._warm = warm
        self._told = {"path": str(path), "import_path": import_path, "environment": dict(environment)}
        pipe = subprocess.PIPE
        super().__init__([str(path)], stdin=pipe, stdout=pipe, stderr=pipe, text=True)

    def _execute_child(self, *arguments: Any) -> None:
        stdin, _, _, stdout, _, stderr = arguments[10:16]
        self.pid = self._warm.ask({**self._told, "directory": os.getcwd()}, [stdin, stdout, stderr])
        self._child_created = True
        for fd in (stdin, stdout, stderr):
            os.close(fd)

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        pid, status = self._warm.ask({"wait": self.pid, "flags": wait_flags})
        return pid, status

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        if self.returncode is None:
            pid, status = self._try_wait(os.WNOHANG)
            if pid == self.pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


def serve() -> Any:
    """Answers requests. Returns, in each program that it forks, the program's code."""
    requests = socket.socket(fileno=os.dup(0))
    os.dup2(1, 0)
    while True:
        message, fds, _, _ = socket.recv_fds(requests, _CAPACITY, 3)
        if not message:
            sys.exit()
        request = json.loads(message)
        if "wait" in request:
            requests.send(json.dumps(os.waitpid(request["wait"], request["flags"])).encode())
        elif (pid := os.fork()) == 0:
            requests.close()
            return _become(request, fds)
        else:
            requests.send(json.dumps(pid).encode())
            for fd in fds:
                os.close(fd)


def _become(request: Any, fds: list[int]) -> Any:
    os.setsid()
    for number, fd in enumerate(fds):
        os.dup2(fd, number)
        os.close(fd)
    os.chdir(request["directory"])
    _show_mark(request["environment"][_MARK].encode())
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv, sys.path = [request["path"]], request["import_path"]
    sys.orig_argv = [sys.orig_argv[0], request["path"]]
    globals()["__file__"] = request["path"]
    return compile(Path(request["path"]).read_text(), request["path"], "exec", dont_inherit=True)


def _show_mark(value: bytes) -> None:
    """Writes over the variable in the memory that `/proc` shows: that of the environment with which Python started."""
    libc = ctypes.CDLL(None)
    libc.getenv.restype = ctypes.c_void_p
    ctypes.memmove(libc.getenv(_MARK.encode()), value.ljust(_LONGEST, b"\0"), _LONGEST)


if __name__ == "__main__":
    import gc

    import script_head  # noqa: F401

    gc.collect()
    gc.freeze()  # the end of each program would copy the memory of all objects
    exec(serve())
