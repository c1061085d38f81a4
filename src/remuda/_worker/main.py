"""The main function of a worker process, from its first instruction to its last."""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from gymnasium.envs.registration import registry

from remuda import _core
from remuda._relay.output import WorkerOutput, settle_output
from remuda._relay.sender import DatagramSender, start_relaying
from remuda._relay.stacks import answer_for_stacks
from remuda._relay.verbosity import Verbosity
from remuda._wire.build_board import BuildBoard
from remuda._wire.channel import SocketChannel
from remuda._wire.computed import Computed
from remuda._wire.failures import dump_named
from remuda._wire.parcel import Address, fetch
from remuda._wire.pickling import dump, load
from remuda._wire.registrations import load_registrations
from remuda._worker.env_report import renders
from remuda._worker.factories import BuildError, Carried, unpack, with_ids
from remuda._worker.measuring import read_clocks, spent
from remuda._worker.second_build import FirstBuild, try_second_build
from remuda._worker.vector_host import make_host
from remuda._worker.worker_info import HostSpec, settle_in_process

_FLUSH_SECONDS = 5.0  # for logs that wait for room, before a report that the pool waits for

# Libraries that start one thread per core in every worker, and how each is told not to.
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
# An MPI runtime takes a process with these for a rank of its own.
_MPI_PREFIXES = ("OMPI_", "PMI_", "PMIX_")


@dataclass(frozen=True)
class WorkerConfig:
    """What a worker process is told first."""

    spec: HostSpec
    name: str
    env_fns: Address | Sequence[Callable[[], Any]]  # where in the parcel they are, unless they are inherited
    registrations: Address  # of Gymnasium ids of the pool's process; empty: inherited
    verbosity: Verbosity
    output: WorkerOutput
    variables: Mapping[str, str]  # of the environment
    computed: Address | Sequence[Computed]  # as `env_fns`
    replaced: Mapping[int, Carried] = field(default_factory=dict)  # factories in the place of some of `env_fns`


def environment(threads: int | None) -> dict[str, str]:
    """The pool's environment variables as a worker gets them."""
    env = {key: value for key, value in os.environ.items() if not key.startswith(_MPI_PREFIXES)}
    if threads is not None:
        env.update(dict.fromkeys(_THREAD_VARIABLES, str(threads)))
    return env


def run_worker(fd: int, owner: int, config: WorkerConfig | None = None) -> None:
    """Serves the pool at the other end of the socket `fd` until it says so, or until `owner` is no more.

    `config`: inherited; None: they come through the socket.
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
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # or envs learned no exit codes of what they start
    _core.tie_life_to(os.pidfd_open(owner))
    answer_for_stacks()
    np.random.seed()  # or all that were forked from one process would draw the same numbers
    channel = SocketChannel(socket.socket(fileno=fd))
    try:
        if config is None:
            relay, parcel, *board = channel.recv_fds(2, 3)
            (address,) = channel.recv()
            config = load(fetch(parcel, address))
        else:
            (relay, *board), parcel = channel.recv_fds(1, 2), None
            channel.recv()
        _serve(channel, config, relay, parcel, _open_board(board))
    except (EOFError, ConnectionError):
        pass  # the pool is gone or gave up on us: there is nobody left to tell
    finally:
        channel.close()
        flush_output()


def _open_board(fds: list[int]) -> BuildBoard | None:
    """Opens the board by its descriptor. Returns None if the pool has no board."""
    if not fds:
        return None
    try:
        return BuildBoard.open(fds[0], writes=True)
    finally:
        os.close(fds[0])


def _serve(
    channel: SocketChannel, config: WorkerConfig, relay: int, parcel: int | None, board: BuildBoard | None
) -> None:
    _introduce(config)
    sender = DatagramSender(socket.socket(fileno=relay), config.spec.info.index)
    host = make_host(config.spec, channel, lambda: sender.flush(_FLUSH_SECONDS))
    known = weakref.ref(host)  # logging keeps what it is given to the very end, past the core's
    sender.before_word = lambda: host.note_word() if (host := known()) else None
    start_relaying(sender, config.verbosity, lambda: host.current_env if (host := known()) else None)

    def report(*parts: Any) -> None:
        sender.flush(_FLUSH_SECONDS)
        channel.send(parts)

    try:
        env_fns, computed = _what_to_build(config, parcel)
    except BaseException as error:
        return report(b"failed", *host.describe(error, None, "build"))
    begin, modules = read_clocks(), len(sys.modules)
    try:
        reports = host.build(env_fns, computed, board)
        if board is not None:
            board.close()
        first = FirstBuild(spent(begin, read_clocks()), imported=len(sys.modules) > modules)
        parts = dump_named("spaces and metadata", reports)
    except BuildError as error:
        return report(b"failed", *error.failure)
    except Exception as error:
        host.close_quietly()
        return report(b"failed", *host.describe(error, None, "build"))
    report(b"built", *parts)
    address, *limits = channel.recv()
    if limits:  # first a second build is to be tried
        report(*dump(try_second_build(env_fns[0], host.envs[0], first, load(limits), own_process=True)))
        (address,) = channel.recv()
    is_freed = any(map(renders, reports))
    del config, env_fns, computed, reports, parts
    arena_fd, parcel = channel.recv_fds(2)
    layout, info_columns, defaults = load(fetch(parcel, address))
    os.close(parcel)
    if not is_freed:
        gc.freeze()  # the envs live as long as we do: no collection need look at them again
    loop = host.start(layout, _core.Arena.attach(arena_fd, layout.plan.bytes), defaults)
    os.close(arena_fd)
    host.add_info_columns(info_columns)
    loop.run()


def _what_to_build(config: WorkerConfig, parcel: int | None) -> tuple[Sequence[Callable[[], Any]], Sequence[Computed]]:
    """The factories of the envs, and the columns that are computed of them."""
    first, computed = _what_was_told_first(config, parcel)
    env_fns = list(first)
    for place, carried in config.replaced.items():
        env_fns[place] = unpack(carried)
    return env_fns, computed


def _what_was_told_first(
    config: WorkerConfig, parcel: int | None
) -> tuple[Sequence[Callable[[], Any]], Sequence[Computed]]:
    if not isinstance(config.env_fns, bytes):
        assert not isinstance(config.computed, bytes)
        return config.env_fns, config.computed
    assert parcel is not None  # or they would be inherited
    assert isinstance(config.computed, bytes)
    try:
        ids = load_registrations(load(fetch(parcel, config.registrations)))
        registry.update(ids)
        env_fns: Sequence[Callable[[], Any]] = load(fetch(parcel, config.env_fns))
        computed: Sequence[Computed] = load(fetch(parcel, config.computed))
    finally:
        os.close(parcel)
    return [with_ids(ids, env_fn) for env_fn in env_fns], computed


def _introduce(config: WorkerConfig) -> None:
    os.environ.update(config.variables)  # first: factories are unpickled, and their modules imported, after this
    settle_in_process(config.spec.info)
    settle_output(config.output)
    try:
        with open("/proc/self/comm", "w") as comm:  # what `ps` and `top` show
            comm.write(config.name[:15])
    except OSError:
        pass  # a name for people; nothing depends on it


def flush_output() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            pass  # closed, or a pipe whose reader has left
