"""What runs in a worker process, from its first instruction to its last."""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import cloudpickle
import numpy as np

from remuda import _core
from remuda._backends.channel import SocketChannel
from remuda._backends.family import own_key
from remuda._backends.host import BuildError, told_what
from remuda._backends.output import WorkerOutput, settle_output
from remuda._backends.pickling import dump, load
from remuda._backends.telling import Mouth, start_telling
from remuda._backends.vector_host import make_host
from remuda._backends.verbosity import Verbosity
from remuda._backends.worker_info import WorkerInfo, settle_in_process

_FLUSH_SECONDS = 5.0  # for logs that wait for room, before a report that the pool waits for

# Libraries that start one thread per core in every worker, and how each is told not to.
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
# An MPI runtime takes a process with these for a rank of its own.
_MPI_PREFIXES = ("OMPI_", "PMI_", "PMIX_")


@dataclass(frozen=True)
class Orders:
    """What a worker is told first: who it is, and what to build."""

    info: WorkerInfo
    name: str
    env_fns: bytes | Sequence[Callable[[], Any]]  # pickled, unless they are inherited
    registrations: dict[str, bytes] | None  # Gymnasium ids of the pool's process; None: inherited
    verbosity: Verbosity
    output: WorkerOutput
    rebuilds: bool  # whether envs may have to be built anew later
    vector_size: int | None  # each env is a vector env of so many


def environment(threads: int | None) -> dict[str, str]:
    """The pool's environment variables as a worker gets them."""
    env = {key: value for key, value in os.environ.items() if not key.startswith(_MPI_PREFIXES)}
    if threads is not None:
        env.update(dict.fromkeys(_THREAD_VARIABLES, str(threads)))
    return env


def run_worker(fd: int, owner: int, orders: Orders | None = None) -> None:
    """Serves the pool at the other end of the socket `fd` until it says so, or until `owner` is no more.

    `orders`: inherited; None: they come through the socket.
    """
    gc.freeze()  # what we share with whom we were forked from stays shared: no collection writes to it
    # A group of its own: Ctrl-C in the terminal is the pool's business, and killing the group later takes
    # along every simulator that an env has spawned.
    if os.getpgid(0) != os.getpid():
        os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # forgets one that came before
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _core.tie_life_to(os.pidfd_open(owner), own_key())
    np.random.seed()  # or all that were forked from one process would draw the same numbers
    channel = SocketChannel(socket.socket(fileno=fd))
    try:
        (relay,) = channel.recv_fds(1)
        _serve(channel, orders or channel.recv_object(), relay)
    except (EOFError, ConnectionError):
        pass  # the pool is gone or gave up on us: there is nobody left to tell
    finally:
        channel.close()
        flush_output()


def _serve(channel: SocketChannel, orders: Orders, relay: int) -> None:
    _introduce(orders)
    mouth = Mouth(socket.socket(fileno=relay), orders.info.index)
    host = make_host(
        orders.info,
        channel,
        orders.vector_size,
        rebuilds=orders.rebuilds,
        before_goodbye=lambda: mouth.flush(_FLUSH_SECONDS),
    )
    known = weakref.ref(host)  # logging keeps what it is given to the very end, past the core's
    start_telling(mouth, orders.verbosity, lambda: host.current_env if (host := known()) else None)

    def report(*parts: Any) -> None:
        mouth.flush(_FLUSH_SECONDS)
        channel.send(parts)

    try:
        _register(orders.registrations)
        env_fns = load([orders.env_fns]) if isinstance(orders.env_fns, bytes) else orders.env_fns
    except BaseException as error:
        return report(b"failed", *host.describe(error, None, "build"))
    try:
        reports = host.build(env_fns)
        with told_what("spaces and metadata", reports):
            parts = dump(reports)
    except BuildError as error:
        return report(b"failed", *error.failure)
    except Exception as error:
        host.close_quietly()
        return report(b"failed", *host.describe(error, None, "build"))
    report(b"built", *parts)
    del orders, env_fns, reports, parts
    (arena_fd,) = channel.recv_fds(1)
    layout, info_columns, defaults = channel.recv_object()
    gc.freeze()  # the envs live as long as we do: no collection need look at them again
    loop = host.start(layout, _core.Arena.attach(arena_fd, layout.plan.bytes), defaults)
    os.close(arena_fd)
    host.add_info_columns(info_columns)
    loop.run()


def _introduce(orders: Orders) -> None:
    settle_in_process(orders.info)
    settle_output(orders.output)
    try:
        with open("/proc/self/comm", "w") as comm:  # what `ps` and `top` show
            comm.write(orders.name[:15])
    except OSError:
        pass  # a name for people; nothing depends on it


def _register(registrations: dict[str, bytes] | None) -> None:
    """Makes the ids that the pool's program registered with Gymnasium known here too, as it has them."""
    from gymnasium.envs.registration import registry

    for env_id, spec in (registrations or {}).items():
        with suppress(Exception):  # an id that cannot travel is missed only by the env that needs it, which says so
            registry[env_id] = load([spec])


def pickle_registrations() -> dict[str, bytes]:
    """The Gymnasium ids of this process, for workers that did not inherit them."""
    from gymnasium.envs.registration import registry

    portable = {}
    for env_id, spec in registry.items():
        with suppress(Exception):
            portable[env_id] = cloudpickle.dumps(spec)
    return portable


def flush_output() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            pass  # closed, or a pipe whose reader has left
