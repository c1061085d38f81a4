"""The pool whose envs are on a Ray cluster: what `Pool(env_fns, backend=remuda.Ray(...))` makes."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from gymnasium import Space

from remuda import EnvError, Pool, PoolOptions, PoolStats, StateError
from remuda._cluster import actors
from remuda._cluster.driver import Mail
from remuda._cluster.engine import ClusterEngine
from remuda._cluster.fleet import Fleet
from remuda._cluster.options import ClusterOptions
from remuda._cluster.part import ClusterPart
from remuda._cluster.replies import Answer
from remuda._cluster.resizing import Resizing, check_resize
from remuda._cluster.rollouts import begin, check_rollouts
from remuda._cluster.workers import RemoteWorker
from remuda._engine.commands.resets import Options
from remuda._engine.options.checks import check_timeout
from remuda._engine.options.pool_options import EnvFn
from remuda._engine.pool.naming import owns_methods
from remuda._engine.rollouts.shard_rollout import ShardRollouts
from remuda._engine.running.seeds import Seed
from remuda._engine.stats.joining import ShardStats, join_stats
from remuda._factories import check_env_fns
from remuda._keywords import names_keywords
from remuda.errors import RemudaError, WorkerDiedError

if TYPE_CHECKING:
    from typing_extensions import Unpack  # in `typing` since Python 3.11


@names_keywords(PoolOptions.__annotations__, called="Pool")
@owns_methods
class ClusterPool(ClusterPart, Pool):
    """A `Pool` whose envs are on the machines of a Ray cluster; see `remuda.Ray`.

    `Pool(env_fns, backend=remuda.Ray(...))` makes it. It has what a `Pool` has.

    Attributes:
        num_workers: Of all shards together.
    """

    def __init__(self, env_fns: Sequence[EnvFn], **options: Unpack[PoolOptions]) -> None:
        """Starts the shards and waits until they have built the envs."""
        factories = check_env_fns(env_fns)
        checked = ClusterOptions(factories, options)
        cluster = ClusterEngine(factories, checked)
        self._finalizer: weakref.finalize[..., Any] = weakref.finalize(
            self, _stop_abandoned, cluster.fleet, os.getpid()
        )
        ClusterPart.__init__(self, cluster, np.arange(cluster.shares.num_envs))
        self._mails = list[Mail]()  # of the parts that it is divided into
        self._take_on(cluster)

    def _take_on(self, cluster: ClusterEngine) -> None:
        settings, first = cluster.options.settings, cluster.reports[0]
        self.num_workers, self.vector_size = len(cluster.workers), settings.vector_size
        self.backend, self.start_method = cluster.options.where, settings.start_method  # type: ignore[assignment]
        self.autoreset, self.spares, self.seeding = settings.autoreset, 0, settings.seeding
        self.options = {**settings.options, "backend": cluster.options.where, "num_workers": self.num_workers}
        self.choice = None
        self.metadata, self.render_mode, self.spec = dict(first.metadata), first.render_mode, first.spec

    @property
    def observation_spaces(self) -> tuple[Space[Any], ...]:
        """Of each env; they may differ in bounds."""
        return tuple(space for report in self._cluster.reports for space in report.observation_spaces)

    @property
    def action_spaces(self) -> tuple[Space[Any], ...]:
        """Of each env; they may differ in bounds."""
        return tuple(self._cluster.action_spaces.each)

    @property
    def closed(self) -> bool:
        """Whether `close` has been called."""
        return self._cluster.closed

    def split(self, parts: int) -> tuple[ClusterPart, ...]:
        """Divides the shards, to step some while a policy deals with the others. See `Pool.split`.

        Raises:
            ValueError: Not from 1 to the number of shards, which are never divided.
            StateError: An env is in flight.
        """
        cluster = self._cluster
        cluster.check_open()
        each = cluster.shares.each
        if not isinstance(parts, int) or isinstance(parts, bool) or not 1 <= parts <= len(each):
            raise ValueError(f"expected parts to be an int from 1 to {len(each)} (the number of shards), got {parts!r}")
        if cluster.ledger.in_flight.any():
            raise StateError(
                "expected no env in flight when a pool is split; call recv of the parts, or discard of the pool, first"
            )
        cluster.epoch += 1
        self._mails = []
        if parts == 1:
            self._epoch = cluster.epoch
            return (self,)
        groups = np.array_split(np.arange(len(each)), parts)
        ids = [np.concatenate([np.array(each[shard].env_ids, np.int64) for shard in group]) for group in groups]
        shares = tuple(ClusterPart(cluster, its, self) for its in ids)
        self._mails = [share._mail for share in shares]
        return shares

    @property
    def pending(self) -> int:
        """How many envs have been sent something whose result has not been received, or whose error not been raised.
        Those of all parts, where it is divided."""
        return sum(mail.pending for mail in self._mails) if self._is_divided else super().pending

    def discard(self) -> None:
        """Waits for whatever is in flight and drops it, faults included. A pool that is divided is made whole."""
        self._cluster.check_open()
        if self._is_divided:
            for mail in self._mails:
                self._drop(mail)
            self.split(1)
        super().discard()

    def send_reset(
        self,
        *,
        seed: Seed = None,
        options: Options = None,
        env_ids: Iterable[int] | None = None,
        reseat: bool = False,
    ) -> None:
        """Tells envs to reset and returns at once; arguments as in `reset`. `reseat`: spares there are none."""
        if reseat and env_ids is not None:
            raise ValueError("expected env_ids=None with reseat=True: envs take their places together")
        if env_ids is None and self._is_divided:
            self.split(1)
        ClusterPart.send_reset(self, seed=seed, options=options, env_ids=env_ids)

    def resize(self, shards: int, timeout: float | None = None) -> None:
        """Divides the envs among another number of shards. See `Pool.resize`."""
        cluster = self._cluster
        cluster.check_open()
        check_timeout(timeout)
        check_resize(cluster, shards)
        if shards == len(cluster.shares.each):
            return
        if cluster.ledger.last is None:
            self._keep_last()
        resizing = Resizing(cluster, shards)
        timeout = cluster.options.settings.start_timeout if timeout is None else timeout
        resizing.take_places(resizing.build(timeout))
        cluster.options.where = replace(cluster.options.where, shards=shards)
        cluster.epoch += 1
        self._epoch = cluster.epoch
        self._portions = cluster.shares.divide(self.env_ids)
        self._take_on(cluster)

    def _keep_last(self) -> None:
        """What envs have shown last, which tells of the ends of episodes: where nobody restarts it is not kept."""
        ledger, epoch = self._cluster.ledger, self._epoch
        ledger.last = []
        shown = self.env_ids[~ledger.must_reset]
        if not len(shown):
            return
        self._epoch = self._cluster.epoch  # parts of the pool are idle, too
        try:
            self.send_observe(shown.tolist())
            self.recv()
        finally:
            self._epoch = epoch

    # -- rollouts ------------------------------------------------------------------------------------------

    def rollouts(self, policy: Any, steps: int = 128, in_flight: int = 2, *, seed: int | None = None) -> ShardRollouts:
        """Makes shards fill rollouts with a policy that acts beside the envs. See `Pool.rollouts`."""
        self._check_open()
        if self._cluster.rollouts is not None:
            self._cluster.rollouts.close()
        check_rollouts(self._cluster, policy, steps, in_flight, seed)
        if len(missing := self.env_ids[self._cluster.ledger.must_reset]):
            self.reset(env_ids=missing.tolist())
        return begin(self._cluster, policy, steps, in_flight, seed)

    def publish(self, policy: Any) -> int:
        """Has rollouts that begin from now on use another policy. See `Pool.publish`."""
        self._check_open()
        return self._cluster.driver.publisher.publish(policy)

    # -- life ----------------------------------------------------------------------------------------------

    @property
    def workers(self) -> tuple[RemoteWorker, ...]:  # type: ignore[override]
        """The workers of all shards; see `Pool.workers`. Each also has its `shard`, and the `node` that it is on."""
        made, stations = list[RemoteWorker](), self._cluster.fleet.stations
        for station, report in zip(stations, self._cluster.reports, strict=True):
            for number, (name, env_ids) in enumerate(report.workers):
                ids = tuple(env + station.share.first for env in env_ids)
                made.append(RemoteWorker(len(made), name, ids, station, number))
        return tuple(made)

    def owns(self, array: npt.NDArray[Any]) -> bool:
        """False: what comes from shards lies in no memory that is shared with their workers. See `Pool.owns`."""
        self._cluster.check_open()
        return False

    def stats(self) -> PoolStats:
        """What the pool has done so far, all shards together. Shards that died have taken theirs along.

        It waits for what they have been sent before.
        """
        cluster = self._cluster
        cluster.check_open()
        stations = cluster.fleet.stations
        asked = [None if station.error else station.actor.stats.remote() for station in stations]
        each = [None if ref is None else self._stats_of(ref) for ref in asked]
        shards = [
            ShardStats(
                station.share.first, tuple(len(ids) for _, ids in report.workers), stats, restarts=station.restarts
            )
            for station, report, stats in zip(stations, cluster.reports, each, strict=True)
        ]
        return join_stats(shards, cluster.batches, cluster.waited, cluster.options.asked.options)

    def _stats_of(self, ref: Any) -> PoolStats | None:
        try:
            answer: Answer = actors.get(ref)
        except actors.Lost:
            return None
        answer.log_faults()
        return answer.value  # type: ignore[no-any-return]

    def close(self, timeout: float | None = None, terminate: bool = False) -> None:
        """Closes the envs and ends the shards. Closing again does nothing. See `Pool.close`."""
        check_timeout(timeout)
        if not self._finalizer.alive or self._cluster.closed:
            self._cluster.closed = True
            self._cluster.fleet.abandon()
            return
        if self._cluster.fleet.cluster.connection.is_open:
            self._cluster.check_open()
        try:
            errors = self._cluster.close(timeout, terminate)
        finally:
            self._finalizer.detach()
        if errors:
            raise _worst(errors)

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{len(self._cluster.shares.each)} shards"
        return f"<Pool of {self.num_envs} envs, {state}>"


def _worst(errors: Sequence[RemudaError]) -> RemudaError:
    failures = [failure for error in errors if isinstance(error, EnvError) for failure in error.failures]
    others = [error for error in errors if not isinstance(error, EnvError)]
    if failures:
        return EnvError(failures)
    deaths = [error for error in others if isinstance(error, WorkerDiedError)]
    return (deaths or others)[0]


def _stop_abandoned(fleet: Fleet, owner: int) -> None:
    if os.getpid() == owner:  # in a forked copy the shards are somebody else's
        fleet.abandon()
