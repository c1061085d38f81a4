"""Sends actions to some of a pool's envs and receives their results, wherever on a cluster they are."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import numpy as np
import numpy.typing as npt
from gymnasium import Space

from remuda import Batch, Call, EnvError, Part, RestartLimitError, StateError, WorkerDiedError
from remuda._cluster.calls import ShardCall
from remuda._cluster.driver import Mail
from remuda._cluster.rows import Rows
from remuda._cluster.station import answered
from remuda._engine.commands.arguments import (
    check_common,
    check_env_ids,
    check_limit,
    check_order,
    check_whole,
)
from remuda._engine.commands.resets import Options
from remuda._engine.options.checks import check_timeout
from remuda._engine.pool.state_checks import check_states, check_taken
from remuda._engine.running.seeding import entropy_for, options_for, pickled_options, seeds_for
from remuda._engine.running.seeds import Seed
from remuda._wire.env_state import EnvState, StateFns
from remuda._wire.requests import CallEnv
from remuda.errors import RemudaError

if TYPE_CHECKING:
    from remuda._cluster.engine import ClusterEngine

Ids = npt.NDArray[np.int64]


class ClusterPart(Part):
    """Envs of a pool on a cluster that are sent and received together: whole shards.

    It has what a `Part` has. Results of a shard's envs come together: what is waited for are shards, not envs.
    """

    def __init__(self, cluster: ClusterEngine, env_ids: Ids, pool: Part | None = None) -> None:
        self._cluster, self._pool, self._is_whole = cluster, pool, pool is None
        self._mail, self._left_over = Mail(), False
        self._epoch = cluster.epoch
        self.env_ids = env_ids
        self.num_envs, self._ids = len(env_ids), env_ids.tolist()
        self._portions = cluster.shares.divide(env_ids)

    @property
    def _engine(self) -> NoReturn:  # type: ignore[override]
        raise NotImplementedError(
            "expected a pool on this machine: this is not to be had with backend=remuda.Ray(...); see docs/ray.md"
        )

    @property
    def single_observation_space(self) -> Space[Any]:
        """The observation space of one env."""
        return self._cluster.observation_space

    @property
    def single_action_space(self) -> Space[Any]:
        """The action space of one env. With `seeding="per_episode"` each seed of env 0 seeds it."""
        return self._cluster.action_spaces.single

    # -- sending -----------------------------------------------------------------------------------------

    def send(self, actions: Any, env_ids: Iterable[int] | None = None) -> None:
        """Hands envs their next action and returns at once: one message to each shard. See `Part.send`."""
        ids = self._targets(env_ids)
        arrays, objects = self._cluster.action.split_batch(actions, len(ids))
        self._check_can_be_sent(ids)
        self._cluster.ledger.check_reset(ids)
        self._send_each("step", ids, (tuple(arrays), objects))

    def send_reset(self, *, seed: Seed = None, options: Options = None, env_ids: Iterable[int] | None = None) -> None:
        """Tells envs to reset and returns at once; `seed`, `options` and `env_ids` as in `reset`."""
        ids, cluster = self._targets(env_ids), self._cluster
        given = (entropy_for if cluster.per_episode else seeds_for)(seed, ids.tolist())
        each = options_for(options, ids.tolist())
        if cluster.width > 1:
            check_common("options", each, ids.tolist(), cluster)  # type: ignore[arg-type]  # it has what is asked for
        self._check_can_be_sent(ids)
        seeds = cluster.ledger.seeds(given, ids)
        named = each if options is not None else None
        cluster.ledger.note_seeds(seeds, ids)
        of_shards = seeds if any(one is not None for one in seeds) else None
        self._send_each("reset", ids, (of_shards, named))
        if cluster.seeded_spaces is not None:
            cluster.seeded_spaces.seed(ids.tolist(), entropy_for(seed, ids.tolist()))

    def send_observe(self, env_ids: Iterable[int] | None = None) -> None:
        """Asks envs for their current observation once more: no step is taken, reward is 0, the info empty."""
        ids = self._targets(env_ids)
        self._check_can_be_sent(ids)
        self._cluster.ledger.check_reset(ids)
        self._send_each("observe", ids, ())

    def _send_each(self, kind: str, ids: Ids, arguments: Sequence[Any]) -> None:
        """Sends each shard its part of a command."""
        self._cluster.driver.send(self._mail, kind, ids, arguments, self._portions if ids is self.env_ids else None)

    def _check_can_be_sent(self, ids: Ids) -> None:
        if self._cluster.rollouts is not None:
            raise StateError("expected no rollouts under way when envs are stepped or reset; call their close() first")
        self._cluster.ledger.check_alive(ids)
        self._cluster.ledger.check_idle(ids)

    # -- receiving ---------------------------------------------------------------------------------------

    def recv(
        self,
        min_envs: int | None = None,
        timeout: float | None = None,
        max_envs: int | None = None,
        order: Literal["arrival", "slot"] = "arrival",
        *,
        pad_to: int | None = None,
    ) -> Batch:
        """Waits for results and takes those that are there; those of a shard come together. See `Part.recv`."""
        self._check_open()
        _refuse_padding(pad_to)
        check_limit("min_envs", min_envs)
        check_limit("max_envs", max_envs, self._cluster.vector_size)
        check_timeout(timeout)
        check_order(order)
        mail = self._mail
        if mail.pending == 0:
            self._raise_any()
            raise StateError("expected envs in flight, got none: recv follows send, send_reset or send_observe")
        self._await(mail.pending if min_envs is None else min(min_envs, mail.pending), timeout)
        self._raise_any()
        rows = self._take(mail.ready if max_envs is None else max_envs)
        if order == "slot" or len(rows) == self.num_envs:
            rows = _sorted(rows)
        return self._handed_out(rows)

    def _await(self, count: int, timeout: float | None) -> None:
        """Until so many are ready, or an error has come up, or the time is over."""
        mail, driver = self._mail, self._cluster.driver
        deadline = None if timeout is None else time.monotonic() + timeout
        began = time.monotonic()
        while mail.ready < count and mail.commands and not mail.errors:
            everything = count - mail.ready == sum(len(command.env_ids) for command in mail.commands.values())
            if everything and deadline is None:  # one is dealt with while others are on their way
                driver.collect_all(mail)
                continue
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            for sent in answered(mail.commands, len(mail.commands) if everything else 1, left):
                driver.collect(mail, sent)
            if deadline is not None and time.monotonic() >= deadline:
                break
        if mail.commands and not mail.errors:  # what else is there
            for sent in answered(mail.commands, len(mail.commands), 0):
                driver.collect(mail, sent)
        self._cluster.waited += time.monotonic() - began

    def _take(self, limit: int) -> Rows:
        """The first that have arrived."""
        mail, taken, count = self._mail, list[Rows](), 0
        while mail.rows and count < limit:
            first = mail.rows[0]
            if count + len(first) > limit:
                kept = limit - count
                mail.rows[0] = first.take(np.arange(kept, len(first)))
                first = first.take(np.arange(kept))
            else:
                mail.rows.pop(0)
            taken.append(first)
            count += len(first)
        return self._cluster.joiner.join(taken) if taken else self._cluster.no_rows()

    def _handed_out(self, rows: Rows) -> Batch:
        self._cluster.ledger.in_flight[rows.env_ids] = False
        self._cluster.batches += 1
        self._left_over = False
        return self._cluster.joiner.batch(rows)

    def step(self, actions: Any, env_ids: Iterable[int] | None = None, pad_to: int | None = None) -> Batch:
        """Steps envs once: `send`, then `recv` for all of them. See `Part.step`."""
        _refuse_padding(pad_to)
        if env_ids is None:
            self.send(actions)
            return self.recv()
        self._check_open()
        self._check_quiet()
        ids = self._targets(env_ids)
        self.send(actions, ids.tolist())
        return self._received(ids)

    def _received(self, ids: Ids) -> Batch:
        """The results of these envs, in their order; no others are in flight."""
        self._await(len(ids), None)
        self._raise_any()
        rows = _sorted(self._take(len(ids)))
        return self._handed_out(rows.take(np.searchsorted(rows.env_ids, ids)))

    @property
    def pending(self) -> int:
        """How many envs have been sent something whose result has not been received, or whose error not been raised."""
        return 0 if self._cluster.closed else self._mail.pending

    def discard(self) -> None:
        """Waits for whatever is in flight and drops it, faults included. Envs that failed must be reset."""
        self._check_open()
        self._drop(self._mail)
        self._left_over = False

    def _drop(self, mail: Mail) -> None:
        while mail.commands:
            self._cluster.driver.collect_all(mail)
        self._cluster.driver.forget(mail)

    # -- calls -------------------------------------------------------------------------------------------

    def _callable(self, env_ids: Iterable[int] | None) -> Sequence[int]:
        self._cluster.check_open()
        return self._named(env_ids)

    def _check_common(self, per_env_args: Sequence[tuple[Any, ...]], targets: Sequence[int]) -> None:
        if self._cluster.width > 1:
            check_common("arguments", per_env_args, targets, self._cluster)  # type: ignore[arg-type]

    def _ask(
        self,
        targets: Sequence[int],
        order: CallEnv,
        per_env_args: Sequence[tuple[Any, ...]] | None,
        *,
        to_spares: bool,
    ) -> Call:
        """One message to each shard. Spares there are none."""
        ids = np.array(targets, np.int64)
        self._cluster.ledger.check_alive(ids)
        call = ShardCall(self._cluster.driver)
        call.ask(ids, order, per_env_args)
        if order.about is not None:
            for i, env in enumerate(targets):
                own = order if per_env_args is None else replace(order, args=per_env_args[i])
                self._cluster.driver.standing.tell(env, own)
        return call

    def set_reset_options(self, options: Options, env_ids: Iterable[int] | None = None) -> None:
        """Sets the options of all resets to come that name none. See `EnvCalls.set_reset_options`."""
        self._cluster.check_open()
        ids = self._named_ids(env_ids)
        if self._cluster.vector_size is not None:
            raise ValueError(
                f"expected envs that are reset one by one, got vector_size={self._cluster.vector_size}: vector envs "
                "reset theirs by themselves, without options; pass options= to reset()"
            )
        pickled_options(options, ids.tolist())  # whether they can be
        self._cluster.ledger.check_alive(ids)
        each = options_for(options, ids.tolist())
        self._cluster.driver.standing.remember(ids.tolist(), each)
        call = ShardCall(self._cluster.driver)
        call.remember(ids, each)
        call.result()

    # -- states ------------------------------------------------------------------------------------------

    def get_state(self, env_ids: Iterable[int] | None = None, *, state_fns: StateFns = None) -> list[EnvState]:
        """The state of each env, to go on from there on any shard. See `Part.get_state`."""
        cluster = self._cluster
        cluster.check_open()
        ids = self._named_ids(env_ids)
        check_taken(state_fns, ids.tolist(), cluster.support_of, cluster.vector_size)
        self._check_can_be_sent(ids)
        cluster.ledger.check_reset(ids)
        cluster.ledger.check_in_episode(ids)
        call = ShardCall(cluster.driver)
        call.take_states(ids, state_fns)
        return call.result()

    def set_state(self, states: Sequence[EnvState], env_ids: Iterable[int] | None = None) -> Batch:
        """Puts each env into a state, wherever that was taken. See `Part.set_state`."""
        cluster, ids = self._cluster, self._targets(env_ids)
        autoreset = cluster.options.settings.autoreset
        codecs = cluster.observation, cluster.action
        checked = check_states(states, ids.tolist(), cluster.support_of, codecs, autoreset, cluster.vector_size)
        self._check_quiet()
        self._check_can_be_sent(ids)
        seeds = cluster.ledger.seeds([None] * len(ids), ids)  # of envs that were never reset
        cluster.ledger.note_seeds(seeds, ids)
        self._send_each("restore", ids, (checked, seeds))
        batch = self._received(ids)
        cluster.ledger.progress.put(ids, [state.steps for state in checked])
        return batch

    @property
    def last_sent(self) -> int:
        """int, which grows with each command and call that is sent to any shard. Raises ClosedError."""
        self._cluster.check_open()
        return sum(station.num_sent for station in self._cluster.fleet.stations)

    # -- inside ------------------------------------------------------------------------------------------

    def _targets(self, env_ids: Iterable[int] | None) -> Ids:  # type: ignore[override]
        self._check_open()
        ids = self._named_ids(env_ids)
        if env_ids is not None and self._cluster.width > 1:
            check_whole(ids.tolist(), self._cluster)  # type: ignore[arg-type]  # it has what is asked for
        return ids

    def _named_ids(self, env_ids: Iterable[int] | None) -> Ids:
        return self.env_ids if env_ids is None else np.array(check_env_ids(env_ids, self._ids), np.int64)

    def _raise_any(self) -> None:
        """Raises the errors that have come up since the last time, as one: deaths first, for they cost more."""
        errors, self._mail.errors = self._mail.errors, []
        if not errors:
            return
        self._left_over = True
        raise _as_one(errors)

    @property
    def _is_left_over(self) -> bool:
        return self._left_over

    @property
    def _is_divided(self) -> bool:
        return self._is_whole and not self._cluster.closed and self._epoch != self._cluster.epoch

    def _check_open(self) -> None:
        self._cluster.check_open()
        if self._epoch != self._cluster.epoch:
            raise StateError(
                "the pool has been split since: use what the latest split() returned, or make it whole with split(1), "
                "or with reset() or discard(), which drop what is in flight"
            )


def _sorted(rows: Rows) -> Rows:
    if (np.diff(rows.env_ids) > 0).all():
        return rows
    return rows.take(np.argsort(rows.env_ids))


def _as_one(errors: Sequence[RemudaError]) -> RemudaError:
    limits = [error for error in errors if isinstance(error, RestartLimitError)]
    if limits:
        return limits[0]
    deaths = [error for error in errors if isinstance(error, WorkerDiedError)]
    failures = [failure for error in errors if isinstance(error, EnvError) for failure in error.failures]
    raised = [EnvError(failures)] if failures else []
    if deaths:
        deaths[0].others = (*deaths[0].others, *deaths[1:], *raised)
        return deaths[0]
    return raised[0] if raised else errors[0]


def _refuse_padding(pad_to: int | None) -> None:
    if pad_to is not None:
        raise ValueError(f"expected pad_to=None: the batches of a cluster are put together anew; got {pad_to}")
