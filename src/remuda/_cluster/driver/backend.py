"""The backend of a pool with workers on a Ray cluster."""

from __future__ import annotations

import os
import pickle
import secrets
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from remuda import _core
from remuda._backends.base import Queues
from remuda._backends.waiting import Flag
from remuda._cluster.driver.engine_worker import EngineWorker
from remuda._cluster.driver.link import LinkState, Server, ShardLink
from remuda._cluster.driver.options import ClusterOptions
from remuda._cluster.driver.receiver import Receiver
from remuda._cluster.driver.row_writer import RowWriter
from remuda._cluster.driver.shares import Share, divide
from remuda._cluster.driver.start_wait import StartWait
from remuda._cluster.messages import BuildOrder, Figures
from remuda._cluster.ray import actors
from remuda._cluster.ray.metrics import Metrics
from remuda._engine.options.pool_options import EnvFn
from remuda._engine.startup.start import IS_FRESH_ON_SHARD, RESULTS, Counts, Inheritance
from remuda._engine.supervision.restart_budget import Quota
from remuda._relay.log import logger
from remuda._system.ending import Ending
from remuda._system.own_thread import run_apart
from remuda._wire.failures import Interrupts
from remuda._wire.info_columns import InfoColumn
from remuda._wire.layout import Layout
from remuda._wire.pickling import Buffers, dump_whole
from remuda._worker.env_report import Reports
from remuda._worker.factories import pickled_for_worker
from remuda._worker.reset_defaults import ResetDefaults
from remuda.errors import EnvProgress, Fault, RemudaError, ShardDiedError

_LOOK = 0.05  # seconds between two checks whether a successor is unwanted


class RayBackend:
    """Runs workers in Ray actors. A thread sends them commands and writes their results, see `Receiver`.

    Attributes:
        options: The options of the pool.
        factories: The factories of each shard, pickled.
        replaced: For each shard, by the index of a factory: the pickled one that has replaced it.
        workers: The workers of all shards, shard by shard.
        links: The driver's ends of the shards.
        receiver: Handles the events of the links.
        link_of: The link of the shard of each worker.
        cluster: The cluster.
        settings: The settings of the pool, with the workers that the shards have.
        defaults: The defaults of resets of the pool.
        metrics: The metrics that Ray exports.
        restarts: The link of each actor that died while the pool was made, once per death.
    """

    threads: None = None

    def __init__(self, env_fns: Sequence[EnvFn], options: ClusterOptions, cluster: actors.Cluster) -> None:
        self.options, self.settings, self.cluster = options, options.settings, cluster
        shares = divide(len(env_fns), options.where.shards, options.width)
        self.factories = [_pickled(list(env_fns[share.factories(options.width)]), "env_fns") for share in shares]
        self.replaced = [dict[int, bytes]() for _ in shares]
        self._layout: bytes | None = None  # the layout of the pool, pickled, for successors
        self._paths = list(sys.path)
        name = f"{options.settings.name}-{os.getpid()}-{secrets.token_hex(3)}"
        self.receiver = Receiver()
        self.links = [
            ShardLink(
                cluster, share, f"{name}-shard-{share.shard}-envs-{share.env_ids[0]}-{share.env_ids[-1]}", self.receiver
            )
            for share in shares
        ]
        self.metrics = Metrics(options.settings.name)
        self.workers: list[EngineWorker] = []
        self.interrupts: Interrupts = {}
        self.link_of: list[ShardLink] = []
        self.defaults = ResetDefaults()
        self.restarts: list[ShardLink] = []
        self._writer: RowWriter | None = None
        self._is_released = False
        self._ending: Ending[None] = Ending()

    @property
    def processes(self) -> RayBackend:
        return self

    # -- start -------------------------------------------------------------------------------------------

    def start(self) -> Reports:
        """Starts all shards, and waits until they have built their envs. Returns the report of each env.

        Raises:
            StartTimeoutError: A shard was not built in time, or there was no room for it.
            ShardDiedError, RestartLimitError: An actor died.
            ValueError: Ray could not set up the `runtime_env`.
            RemudaError: The error of a shard.
        """
        timeout = self.options.settings.start_timeout
        try:
            self.cluster.placement.reserve(len(self.links), timeout)
            one_by_one = self.options.given.starts_serially
            for together in [[link] for link in self.links] if one_by_one else [self.links]:
                for link in together:
                    link.start(self.order)
                wait = StartWait(self.links, self.receiver, self.cluster.placement, self.options.width, timeout)
                wait.await_reports(together, partial(self._begin_again, quota=Quota(self.options.faults)))
        except BaseException:
            self.stop(0)
            raise
        return self.make_workers()

    def order(self, link: ShardLink) -> BuildOrder:
        """Returns the order to build a shard. A successor's order also has the envs' counts and reset defaults."""
        share = link.share
        options = _pickled(self.options.for_shard(share), "options")
        inherited = None if self._writer is None else self.inheritance(share)
        first_worker = sum(self.options.num_workers_of(link.share) for link in self.links[: share.shard])
        factories, replaced = self.factories[share.shard], dict(self.replaced[share.shard])
        return BuildOrder(factories, share.first, first_worker, self._paths, options, inherited, self._layout, replaced)

    def inheritance(self, share: Share) -> Inheritance:
        """Returns the counts and reset defaults of a share's envs, from which the rebuilt envs continue."""
        assert self._writer is not None  # set by `attach`
        progress = self._writer.progress[share.first : share.first + share.count].copy()
        progress[:, [RESULTS, IS_FRESH_ON_SHARD]] = 0  # the shard's new pool counts its rows from 0
        return Inheritance(progress, self.defaults.for_successor(share.env_ids, share.first))

    def _begin_again(self, link: ShardLink, quota: Quota) -> None:
        """Starts the successor of a shard's actor that died while it built its envs."""
        death = link.failure()
        if not isinstance(death, ShardDiedError):
            raise death
        if not self.options.faults.restarts:
            raise death
        limit = quota.charge([_fault_of(env, link, death) for env in link.share.env_ids])
        if limit is not None:
            raise limit from death
        quota.next_restart(link.share.shard)
        logger.warning("%s; it is rebuilt where there is room", death, extra={"shard": link.share.shard})
        self.restarts.append(link)
        link.start(self.order, link.generation + 1)

    def make_workers(self) -> Reports:
        """Makes an `EngineWorker` for each worker of the shards. Returns the report of each env."""
        for link in self.links:
            first = len(self.workers)
            for index, (name, env_ids) in enumerate(_server(link).report.workers, first):
                ids = tuple(env + link.share.first for env in env_ids)
                link.workers.append(EngineWorker(index, name, ids, link.generation))
            self.workers += link.workers
            self.link_of += [link] * len(link.workers)
            link.actor.number_workers.remote(first)
        dealt = tuple(len(worker.env_ids) for worker in self.workers)
        self.settings = replace(self.settings, num_workers=len(self.workers), dealt=dealt)
        reports: Reports = []
        for link in self.links:
            pickled = _server(link).report.reports
            assert pickled is not None  # only successors send none
            reports += pickle.loads(pickled)
        return reports

    def attach(self, layout: Layout, arena: _core.Arena, defaults: ResetDefaults) -> None:
        self.defaults, self._layout = defaults, dump_whole(layout)
        self._writer = RowWriter(layout, arena)
        for link in self.links:
            link.open(self._writer)

    def watch(self, hub: _core.Hub) -> None:
        assert self._writer is not None  # set by `attach`
        self._writer.guards = hub.slots.guards
        for worker in self.workers:
            hub.workers.watch(worker.index, worker.fd)
        self.receiver.wake_supervisor = hub.workers.supervision.wake
        self.receiver.start(self._pass_on, self.settings.name)
        hub.callbacks.pass_on = partial(self.receiver.post, _wake)
        hub.callbacks.pump = self.cluster.connection.check_open

    def queues(self) -> list[Queues]:
        return [worker.channel.queues for worker in self.workers]

    # -- commands and results ----------------------------------------------------------------------------

    def _pass_on(self) -> float | None:
        """Sends each shard the commands in the rings of its workers. See `Receiver.start`."""
        pauses = list[float]()
        for link in self.links if self.cluster.connection.is_open else ():  # otherwise the caller gets the error
            link.act(link.pass_on, pauses)
        return min(pauses, default=None)

    def note_progress(self, share: Share, progress: Counts) -> None:
        """Copies a shard's counts of its envs into the pool's memory after a rollout."""
        assert self._writer is not None  # set by `attach`
        self._writer.note_progress(share.first, progress)

    def figures(self) -> Iterator[tuple[ShardLink, Figures]]:
        """Requests the figures for `Pool.stats` from all shards. Waits for each answer, and yields it."""
        serving = [(link, server) for link in self.links if (server := link.server) is not None]
        refs = [(link, server.actor.figures.remote()) for link, server in serving]
        for link, ref in refs:
            with suppress(actors.Lost):  # the supervisor handles the death
                yield link, actors.get(ref)

    # -- deaths and successors ---------------------------------------------------------------------------

    def has_records(self) -> bool:
        return self.receiver.has_logs()

    def drain(self, sent: Callable[[], int], after_each: Callable[[], object] = lambda: None) -> None:
        self.receiver.log(after_each)

    def kill(self, worker: int) -> None:
        self.receiver.post(partial(self.link_of[worker].kill, self.workers[worker].generation))

    def lose(self, link: ShardLink, generation: int, error: actors.Lost) -> None:
        """Ends the actor of a shard, which has failed. Any thread may call this."""
        self.receiver.post(partial(link.kill, generation, str(error)))

    def last_stack(self, worker: int) -> str:
        return ""

    def start_successor(self, worker: int, timeout: float | None, unwanted: Flag) -> None:
        link = self.link_of[worker]
        future: Future[Server] = Future()
        self.receiver.post(partial(self._request_successor, link, future))
        while not unwanted.is_set():
            try:
                server = future.result(_LOOK)
            except FutureTimeoutError:
                continue
            self.workers[worker].generation = server.generation
            return
        raise RemudaError("the pool was closed")

    def _request_successor(self, link: ShardLink, future: Future[Server]) -> None:
        if link.state is LinkState.GONE:  # all workers of a shard have one successor
            self.metrics.note_restart(link.share.shard)
        link.request_successor(self.order, future)

    def join(
        self,
        worker: int,
        arena: _core.Arena,
        info_columns: Sequence[InfoColumn],
        defaults: ResetDefaults,
    ) -> tuple[int, int]:
        self.link_of[worker].join(self.workers[worker])
        return self.workers[worker].fd, -1

    def carry(self, worker: int, slot: int, env_fn: Callable[[], Any]) -> Buffers:
        return [_pickled(env_fn, "a factory")]

    def adopt(self, worker: int, slot: int, carried: Buffers) -> None:
        share, width = self.link_of[worker].share, self.options.width
        self.replaced[share.shard][(slot - share.first) // width] = carried[0]

    def env_fns(self) -> list[EnvFn]:
        """Returns the factories of all envs, unpickled."""
        env_fns: list[EnvFn] = []
        for pickled, replaced in zip(self.factories, self.replaced, strict=True):
            own = pickle.loads(pickled)
            for place, one in replaced.items():
                own[place] = pickle.loads(one)
            env_fns += own
        return env_fns

    # -- closing -----------------------------------------------------------------------------------------

    def stop(self, timeout: float) -> None:
        run_apart(partial(self._ending.run, self._end), lambda: None)

    def _end(self) -> None:
        if self._is_released:
            return
        self.receiver.stop()
        for link in self.links:
            link.kill()
            link.forget()
        self.release()
        self.cluster.give_back()

    def release(self) -> None:
        """Closes this process's descriptors for the workers, and drops its views of memory. The shards continue."""
        self.receiver.stop()
        self._writer = None
        for worker in self.workers:
            worker.close()
        self._is_released = True

    def abandon(self) -> None:
        self.stop(0)


def _pickled(value: Any, what: str) -> bytes:
    return pickled_for_worker(value, f"{what} that can be pickled, to build envs on other machines")


def _server(link: ShardLink) -> Server:
    assert link.server is not None  # `start` has waited for it
    return link.server


def _wake() -> None:
    """Does nothing, as an event after which the receiver passes on commands."""


def _fault_of(env: int, link: ShardLink, death: ShardDiedError) -> Fault:
    """Returns the fault of an env with a shard that died while it built its envs."""
    nowhere = EnvProgress(env, episode=None, step=0, seed=None, resets_since_seed=0)
    shared = env != link.share.first
    return Fault(env, -1, "death", "build", nowhere, death, shared, link.share.shard, link.node)
