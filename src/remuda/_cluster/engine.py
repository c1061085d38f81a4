"""Everything behind a pool on a cluster, which its parts share."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from remuda._cluster.driver import Driver
from remuda._cluster.fleet import Fleet
from remuda._cluster.ledger import Ledger
from remuda._cluster.options import ClusterOptions
from remuda._cluster.replies import ShardReport
from remuda._cluster.rows import Joiner, Rows
from remuda._cluster.shares import Shares
from remuda._engine.commands.action_spaces import ActionSpaces
from remuda._engine.options.pool_options import EnvFn
from remuda._engine.rollouts.shard_rollout import ShardRollouts
from remuda._wire.codec import SpaceCodec, check_agreement
from remuda._wire.computed import check_same
from remuda._wire.env_state import StateSupport
from remuda.errors import ClosedError, StateError

T = TypeVar("T")


class ClusterEngine:
    """Running shards, and all that deals with them.

    Attributes:
        options, shares, fleet, driver, ledger, joiner: The parts of it.
        reports: Of each shard.
        observation_space: For which rows are laid out.
        action: The codec of actions.
        seeded_spaces: Action spaces that seeds of envs are for, too; None: they are the caller's affair.
        rollouts: That are under way.
        epoch: How often the pool has been split.
        batches, waited: How many were handed out, and for how many seconds the caller has waited.
        num_rollouts: The number of calls of `rollouts`.
    """

    def __init__(self, env_fns: Sequence[EnvFn], options: ClusterOptions) -> None:
        """Starts the shards; raises what that raises."""
        self.options, self._owner = options, os.getpid()
        self.closed = False
        self.rollouts: ShardRollouts | None = None
        self.epoch, self.batches, self.waited, self.num_rollouts = 0, 0, 0.0, 0
        self.shares = Shares(len(env_fns), options.where.shards, options.width)
        self.fleet = Fleet(env_fns, options, self.shares)
        self.reports = self.fleet.start()
        try:
            self._take_over()
        except BaseException:
            self.fleet.abandon()
            raise

    def _take_over(self) -> None:
        settings, reports = self.options.settings, self.reports
        self._check_agreement(reports)
        self.per_episode = settings.seeding == "per_episode"
        self.observation_space = reports[0].observation_space
        spaces = [space for report in reports for space in report.action_spaces]
        self.action_spaces = ActionSpaces(spaces[0], spaces)
        self.seeded_spaces: ActionSpaces | None = None
        if self.per_episode:
            self.action_spaces = self.seeded_spaces = self.action_spaces.separate()
        self.action = SpaceCodec(self.action_spaces.single)
        codec = SpaceCodec(self.observation_space)
        self.observation = codec
        keeps_last = self.options.faults.restarts
        self.ledger = Ledger(self.shares.num_envs, settings.mode, per_episode=self.per_episode, keeps_last=keeps_last)
        self.driver = Driver(self.fleet, self.shares, self.ledger, codec, self.options)
        self.joiner = Joiner(codec, self._worker_of, tuple(self.options.settings.extras or ()))

    def _check_agreement(self, reports: Sequence[ShardReport]) -> None:
        if self.options.settings.observation_space is None:
            each = [space for report in reports for space in report.observation_spaces]
            check_agreement("observation", each[0], "env 0", each)
        each = [space for report in reports for space in report.action_spaces]
        check_agreement("action", each[0], "env 0", each)
        computed = {share.first: report.computed for share, report in zip(self.shares.each, reports, strict=True)}
        check_same(reports[0].computed, "env 0", computed)

    def _worker_of(self, env_id: int) -> int:
        return next(i for i, (_, ids) in enumerate(self.workers) if env_id in ids)

    def support_of(self, env_id: int) -> StateSupport:
        """How the state of an env can be taken."""
        share = self.shares.each[int(self.shares.shard_of([env_id])[0])]
        return self.reports[share.shard].states[env_id - share.first]

    @property
    def workers(self) -> list[tuple[str, tuple[int, ...]]]:
        """The name and the envs of each worker, shard by shard."""
        return [
            (name, tuple(env + share.first for env in env_ids))
            for share, report in zip(self.shares.each, self.reports, strict=True)
            for name, env_ids in report.workers
        ]

    def no_rows(self) -> Rows:
        specs = (*self.observation.columns, *self.reports[0].computed)
        columns = [np.zeros((0, *spec.shape), spec.dtype) for spec in specs]
        return Rows(np.zeros(0, np.int64), [np.zeros(0), np.zeros(0, bool), np.zeros(0, bool), None, *columns])

    # -- vector envs, as a layout has them -----------------------------------------------------------------

    @property
    def vector_size(self) -> int | None:
        return self.options.settings.vector_size

    @property
    def width(self) -> int:
        return self.options.width

    def ids_with(self, env: int) -> range:
        """All ids of the env object that this one is of."""
        first = env - env % self.width
        return range(first, first + self.width)

    def by_env(self, items: Sequence[T]) -> list[Sequence[T]]:
        """Those of each env object together."""
        return [items[first : first + self.width] for first in range(0, len(items), self.width)]

    # -- life ----------------------------------------------------------------------------------------------

    def check_open(self) -> None:
        if self.closed:
            raise ClosedError("the pool is closed; make a new one")
        self.fleet.cluster.connection.check_open()
        if os.getpid() != self._owner:
            raise StateError(
                f"this pool belongs to process {self._owner}, got a call from its forked copy {os.getpid()}; "
                "make a pool of its own there"
            )

    def close(self, timeout: float | None, terminate: bool) -> list[Any]:
        """Returns what shards raised."""
        self.closed = True
        return list(self.fleet.close(timeout, terminate))
