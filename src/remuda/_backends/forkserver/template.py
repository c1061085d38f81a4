"""A template: a process that is forked from the program once for each pool, and then forks the pool's workers.

The program is forked only when it makes the pool. A later fork would come at an instant that the program did not
choose, beside native code such as a matrix product, which need not survive the at-fork handlers of libraries.
"""

from __future__ import annotations

import gc
import os
import socket
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial

from remuda import _core
from remuda._backends.forkserver.client import ForkServer
from remuda._backends.forkserver.server import serve
from remuda._backends.forkserver.server_process import ServerProcess
from remuda._backends.process.interpreter import pidfd_of_child
from remuda._backends.process.process_tree import new_key, take_on, with_key
from remuda._system.forks import drop_inherited
from remuda._system.sockets import Socket, socket_pair
from remuda._worker.forked_children import flush_output, run_and_end
from remuda._worker.job_signals import job_signals_blocked
from remuda._worker.main import Inherited


class Template(ForkServer):
    """A connection to a running template."""

    is_template = True

    def __init__(self, environment: dict[str, str], inherited: Sequence[Inherited]) -> None:
        """Forks the template. `inherited`: one for each worker."""
        self._connect(*_fork(environment, inherited))


def _fork(environment: dict[str, str], inherited: Sequence[Inherited]) -> tuple[ServerProcess, Socket]:
    """Forks a template. Returns its process, and this process's end of its socket."""
    variables = with_key(environment, new_key())  # workers replace this key by their own
    client_end, template_end = socket_pair(socket.SOCK_SEQPACKET)
    owner = os.getpid()
    try:
        with closing(template_end):
            flush_output()  # otherwise the template would print the buffered output again
            # The child blocks signals such as SIGINT, until it has replaced the handlers and the session of this one.
            with job_signals_blocked():
                if (pid := _core.fork()) == 0:
                    client_end.close()
                    run_and_end(partial(_become_template, template_end, owner, variables, inherited))
            return ServerProcess(pid, pidfd_of_child(pid)), client_end
    except BaseException:
        client_end.close()
        raise


def _become_template(
    template_end: Socket, owner: int, variables: Mapping[str, str], inherited: Sequence[Inherited]
) -> None:
    gc.freeze()  # a collection would run finalizers of the program's objects
    os.setsid()  # Ctrl-C in the terminal must reach only the program
    take_on(variables)
    main = threading.current_thread()  # the thread that forked is the main thread of the child
    main.name, main._daemonic = "MainThread", False  # type: ignore[attr-defined]
    _end_imports()
    devnull = os.open(os.devnull, os.O_RDONLY)
    os.dup2(devnull, 0)  # not the terminal
    os.close(devnull)
    drop_inherited()
    serve(template_end.detach(), owner, inherited)


def _end_imports() -> None:
    """Makes the modules usable that another thread of the parent imports, such as one that makes a pool when imported.

    That thread does not exist in this child. Without this, an import of such a module would wait for it forever.
    """
    for module in list(sys.modules.values()):
        spec = getattr(module, "__spec__", None)
        if getattr(spec, "_initializing", False):
            spec._initializing = False  # type: ignore[union-attr]
