"""The main function of a worker process, from its first instruction to its last."""

from __future__ import annotations

import gc
import os
import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from gymnasium.envs.registration import registry

from remuda import _core
from remuda._relay.output import settle_output
from remuda._relay.sender import RelayHandler, start_relaying
from remuda._relay.silence import Silence
from remuda._relay.stacks import answer_for_stacks
from remuda._relay.verbosity import Verbosity
from remuda._system.sockets import open_socket
from remuda._wire.channel import SocketChannel
from remuda._wire.computed import Computed
from remuda._wire.failures import dump_named
from remuda._wire.pickling import Buffers, load, share_main
from remuda._wire.registrations import load_registrations
from remuda._wire.sealed_file import Address, fetch
from remuda._worker.env_report import renders
from remuda._worker.factories import BuildError, Carried, EnvFn, unpack, with_ids
from remuda._worker.forked_children import flush_output
from remuda._worker.identity import Identity
from remuda._worker.job_signals import settle_signals
from remuda._worker.vector_host import make_host
from remuda._worker.worker_info import HostSpec, settle_in_process

_FLUSH_SECONDS = 5.0  # seconds for sending queued logs before a report to the pool

# Environment variables that limit the threads of libraries, which otherwise start one per core in every worker.
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
# Workers do not get variables with these prefixes, because MPI would treat the workers as ranks of the program.
_MPI_PREFIXES = ("OMPI_", "PMI_", "PMIX_")


class Inherited(NamedTuple):
    """The factories and computed columns of a worker that is forked from a template, which has inherited them."""

    env_fns: Sequence[EnvFn] = ()
    computed: Sequence[Computed] = ()


class Addresses(NamedTuple):
    """The addresses in a `SealedFile` of the program, factories, Gymnasium ids and computed columns of a pool."""

    program: Address
    env_fns: Address
    registrations: Address
    computed: Address


@dataclass(frozen=True)
class WorkerConfig:
    """The configuration of a worker process."""

    spec: HostSpec
    identity: Identity
    factories: Inherited | Addresses
    verbosity: Verbosity
    output: str
    variables: Mapping[str, str]  # the worker's environment variables.
    replaced: Mapping[int, Carried] = field(default_factory=dict)  # by index of the worker's env: its new factory


def environment(threads: int | None) -> dict[str, str]:
    """Returns the environment variables of a worker: the pool's, with limits for threads."""
    env = {key: value for key, value in os.environ.items() if not key.startswith(_MPI_PREFIXES)}
    if threads is not None:
        env.update(dict.fromkeys(_THREAD_VARIABLES, str(threads)))
    return env


def run_worker(fd: int, owner: int, inherited: Inherited | None = None) -> None:
    """Serves the pool at the other end of the socket `fd`, until the pool or the process `owner` ends.

    `inherited`: what comes from the owner, of which this process is a copy; None: it comes through the socket.
    """
    gc.freeze()  # otherwise garbage collections write to, and so copy, memory shared with the parent.
    # The worker has a process group of its own, because Ctrl-C in the terminal must reach only the pool. Killing the
    # group later also kills simulators that envs have started.
    if os.getpgid(0) != os.getpid():
        os.setpgid(0, 0)
    settle_signals(owner)
    _core.tie_life_to(os.pidfd_open(owner))
    answer_for_stacks()
    np.random.seed()  # otherwise all workers forked from one process would draw the same numbers
    channel = SocketChannel(open_socket(fd))
    try:
        relay, payload = channel.recv_fds(2)
        address, *successor = channel.recv()
        config: WorkerConfig = load(fetch(payload, address))
        if inherited is not None:
            share_main()
            config = replace(config, factories=inherited)
        config.identity.settle(owner)
        _serve(channel, config, relay, payload, successor)
    except (EOFError, ConnectionError):
        pass  # the pool has ended or has abandoned this worker
    finally:
        channel.close()
        flush_output()


def _serve(
    channel: SocketChannel, config: WorkerConfig, relay: int, payload: int, successor: Sequence[memoryview]
) -> None:
    """Serves the pool. `successor`: for a successor, the address of the layout, and a text if resets build the envs."""
    packed = _receive_layout(channel, successor[0]) if successor else None
    _set_up_process(config)
    handler = RelayHandler(open_socket(relay), config.spec.info.index)
    silence = Silence(handler)
    host = make_host(config.spec, channel, lambda: handler.flush(_FLUSH_SECONDS), silence=silence.keep)
    host_ref = weakref.ref(host)  # weak, because logging may outlive the core, which the host needs
    handler.before_record = lambda: host.note_record() if (host := host_ref()) else None
    handler.current_env = lambda: host.current_env if (host := host_ref()) else None
    start_relaying(handler, config.verbosity)

    def report(*parts: Any) -> None:
        handler.flush(_FLUSH_SECONDS)
        channel.send(parts)

    try:
        env_fns, computed = _load_factories(config, payload)
        layout = None if packed is None else load(packed)
    except BaseException as error:
        return report(b"failed", *host.describe(error, None, "build"))
    try:
        by_reset = bool(successor and successor[1])
        begin = time.perf_counter()
        reports = host.build(env_fns, computed, layout=layout, by_reset=by_reset)
        seconds = time.perf_counter() - begin
        parts = () if successor else dump_named("spaces and metadata", reports)
    except BuildError as error:
        return report(b"failed", *error.failure)
    except Exception as error:
        host.close_quietly()
        return report(b"failed", *host.describe(error, None, "build"))
    report(b"built", str(seconds).encode(), *parts)
    (address,) = channel.recv()
    is_freed = any(map(renders, reports))
    del config, env_fns, computed, reports, parts, packed
    arena_fd, payload, wakeup_fd = channel.recv_fds(3)
    layout_sent, info_columns, defaults = load(fetch(payload, address))
    layout = layout or layout_sent
    os.close(payload)
    if not is_freed:
        gc.freeze()  # the envs live as long as this process, so no collection needs to scan them
    loop = host.start(layout, _core.Arena.attach(arena_fd, layout.plan.bytes, wakeup_fd=wakeup_fd), defaults)
    os.close(arena_fd)
    host.add_info_columns(info_columns)
    loop.run()


def _receive_layout(channel: SocketChannel, address: memoryview) -> Buffers:
    (fd,) = channel.recv_fds(1)
    try:
        return fetch(fd, address)
    finally:
        os.close(fd)


def _load_factories(config: WorkerConfig, payload: int) -> tuple[list[EnvFn], Sequence[Computed]]:
    """Returns the factories of the envs, and the computed columns. Takes on the program's modules and Gymnasium ids."""
    try:
        if isinstance(config.factories, Inherited):
            env_fns, computed = list(config.factories.env_fns), config.factories.computed
        else:
            addresses = config.factories
            load(fetch(payload, addresses.program)).adopt()
            ids = load_registrations(load(fetch(payload, addresses.registrations)))
            registry.update(ids)
            env_fns = [with_ids(ids, env_fn) for env_fn in load(fetch(payload, addresses.env_fns))]
            computed = load(fetch(payload, addresses.computed))
    finally:
        os.close(payload)
    for place, carried in config.replaced.items():
        env_fns[place] = unpack(carried)
    return env_fns, computed


def _set_up_process(config: WorkerConfig) -> None:
    os.environ.update(config.variables)  # set before unpickling factories, because their modules may read variables
    settle_in_process(config.spec.info)
    settle_output(config.output)
    try:
        with open("/proc/self/comm", "w", encoding="utf-8") as comm:  # the name that `ps` and `top` show
            comm.write(config.identity.name[:15])
    except OSError:
        pass  # the name is only for display
