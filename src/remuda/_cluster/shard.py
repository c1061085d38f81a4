"""A shard: some of a pool's envs, in a pool of their own, in a Ray actor that does what the driver tells it."""

from __future__ import annotations

import pickle
import sys
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from remuda import Batch, InvalidEnvError, Pool, PoolStats
from remuda._cluster.collector import ShardCollector, Stopped, seeds_given
from remuda._cluster.packing import pack_reply, unpack_step
from remuda._cluster.renumbering import Renumbering
from remuda._cluster.replies import Answer, FaultReport, Legacy, Reply, RolloutOrder, RolloutReply, ShardReport
from remuda._cluster.rows import Rows
from remuda._engine.pool.pool import pool_of_a_larger_one
from remuda._wire.env_state import EnvState
from remuda._wire.failures import portable
from remuda._wire.info_columns import InfoField
from remuda._wire.pickling import dump_whole
from remuda._wire.requests import CallEnv
from remuda.errors import Fault, RemudaError

Ids = list[int] | None  # by the shard's numbers; None: all


class Shard:
    """Some of a pool's envs, in a pool of their own.

    Whoever drives it sends one message for each command and gets one back. Commands are done one after another, in the
    order in which they were sent: whoever asks for some of the envs waits for those that were asked before.

    An env that succeeds another one is reset when it is first sent a step, with the next seed of its predecessor.
    """

    def __init__(self, shard: int, first_env: int, node: str, generation: int) -> None:
        """`generation`: the number of actors that this shard had before."""
        self.node, self._numbers = node, Renumbering(first_env, shard, node)
        self._pool: Pool | None = None
        self._next: tuple[Renumbering, Pool] | None = None  # what is to take the place of these
        self.collector = ShardCollector(self._numbers, generation)
        self._untouched: set[int] = set()  # successors that have not been reset
        self._fields: tuple[InfoField, ...] = ()
        self._seeds: dict[int, int] = {}
        self._fault_reports: list[FaultReport] = []  # that the driver has not been given

    # -- life --------------------------------------------------------------------------------------------

    def build(self, env_fns: bytes, path: Sequence[str], options: bytes, legacy: Legacy | None) -> Answer:
        """Builds the envs. `path`: where the driver finds modules. `legacy`: of the shard that this one succeeds."""
        try:
            if legacy is not None:
                time.sleep(legacy.delay)
            self._pool = self._built(self._numbers, env_fns, path, options)
            if legacy is not None:
                self._inherit(legacy)
            return Answer(self._report(self._pool))
        except (RemudaError, ValueError, TypeError, OSError) as error:
            return Answer(error=self._numbers.portable(error))

    def prepare(self, first_env: int, env_fns: bytes, path: Sequence[str], options: bytes) -> Answer:
        """Builds envs that are to take the place of those that are there, which go on meanwhile."""
        numbers = Renumbering(first_env, self._numbers.shard, self._numbers.node)
        try:
            self._next = numbers, self._built(numbers, env_fns, path, options)
            return Answer(self._report(self._next[1]))
        except (RemudaError, ValueError, TypeError, OSError) as error:
            return Answer(error=numbers.portable(error))

    def drop_prepared(self) -> None:
        """They are not wanted any more. Nobody reads what comes of it."""
        prepared, self._next = self._next, None
        if prepared is not None:
            with suppress(RemudaError):
                prepared[1].close()

    def take_over(self, legacy: Legacy) -> Answer:
        """What was built takes its place. Returns what the envs raise that were there before, when they are closed."""
        before = None
        if self._next is not None:
            before, (self._numbers, self._pool), self._next = self._pool, self._next, None
            self._fields = ()
            self.collector.numbers = self._numbers
        self._inherit(legacy)
        return self._answer(lambda: None if before is None else before.close())

    def _built(self, numbers: Renumbering, env_fns: bytes, path: Sequence[str], options: bytes) -> Pool:
        sys.path.extend(entry for entry in path if entry not in sys.path)
        factories, told = self._unpickled(env_fns), self._unpickled(options, "options")
        pool = pool_of_a_larger_one(factories, numbers.first_env, told)
        pool._engine.fault_log.log = partial(self._note_faults, numbers)
        return pool

    def _unpickled(self, pickled: bytes, what: str = "env_fns") -> Any:
        try:
            return pickle.loads(pickled)
        except Exception as error:
            raise InvalidEnvError(
                f"expected {what} that can be unpickled on node {self._numbers.node}, got {type(error).__name__}: "
                f"{error}; what they need must be installed there, or be in the runtime_env of remuda.Ray"
            ) from error

    def number_workers(self, first_worker: int) -> None:
        """The index that the first of its workers has in the whole."""
        self._numbers.first_worker = first_worker

    def _inherit(self, legacy: Legacy) -> None:
        self.number_workers(legacy.first_worker)
        self._untouched, self._seeds = set(self._open.env_ids.tolist()), dict(legacy.seeds)
        for env_id, options in legacy.options.items():
            self._open.set_reset_options(options, [env_id])
        for env_id, order in legacy.standing:
            self._call([env_id], order, None)

    def _report(self, pool: Pool) -> ShardReport:
        return ShardReport(
            self._numbers.node,
            pool.observation_spaces,
            pool.action_spaces,
            pool.single_observation_space,
            pool.metadata,
            pool.render_mode,
            pool.spec,
            tuple((worker.name, worker.env_ids) for worker in pool.workers),
            tuple(report.state for report in pool._engine.running.reports[: pool.num_envs]),
            pool._engine.layout.computed,
        )

    def close(self, timeout: float | None, terminate: bool) -> Answer:
        if self._next is not None:
            self._next[1].close(terminate=True)
        if self._pool is None:
            return Answer()
        try:
            self._pool.close(timeout=timeout, terminate=terminate)
            return Answer()
        except RemudaError as error:
            return Answer(error=self._numbers.portable(error))

    # -- commands ----------------------------------------------------------------------------------------

    def step_packed(self, message: bytes) -> Reply | bytes:
        """`step`, with actions that have no objects, packed."""
        arrays, env_ids = unpack_step(message)
        return pack_reply(self.step(arrays, (), env_ids))

    def step(self, arrays: Sequence[npt.NDArray[Any]], objects: Sequence[Any], env_ids: Ids) -> Reply:
        """Steps envs. `arrays`, `objects`: of the actions, as the codec of their space takes them apart."""
        codec = self._open._engine.layout.action

        def send() -> None:
            if not self._untouched:
                return self._open.send(codec.build_batch(arrays, objects), env_ids)
            stepped = list(range(self._open.num_envs)) if env_ids is None else env_ids
            begun = [i for i, env in enumerate(stepped) if env not in self._untouched]
            self._reset_untouched([env for env in stepped if env in self._untouched])
            if begun:
                some = [array[begun] for array in arrays], [objects[i] for i in begun] if objects else []
                self._open.send(codec.build_batch(*some), [stepped[i] for i in begun])

        return self._do(send)

    def reset(self, seeds: Sequence[int | None] | None, options: Any, env_ids: Ids) -> Reply:
        """Resets envs; of seeds and options one for each, or None."""

        def send() -> None:
            ids = list(range(self._open.num_envs)) if env_ids is None else env_ids
            own = list(seeds) if seeds is not None else [None] * len(ids)
            for env, seed in zip(ids, own, strict=True):
                if seed is not None:  # what follows does not follow from its predecessor's any more
                    self._seeds.pop(env, None)
            own = [self._seed_of(env) if seed is None else seed for env, seed in zip(ids, own, strict=True)]
            self._untouched.difference_update(ids)
            self._open.send_reset(
                seed=own if any(s is not None for s in own) else None, options=options, env_ids=env_ids
            )

        return self._do(send)

    def restore(self, states: Sequence[EnvState], seeds: Sequence[int | None], env_ids: Ids) -> Reply:
        """Puts envs into states. `seeds`: of those that were never reset, what later episodes' seeds follow from."""

        def send() -> None:
            pool, ids = self._open, list(range(self._open.num_envs)) if env_ids is None else env_ids
            own = [self._seed_of(env) if seed is None else seed for env, seed in zip(ids, seeds, strict=True)]
            self._untouched.difference_update(ids)
            pool._engine.resets.restore(ids, states, pool._part, to_all=env_ids is None, seed=own)

        return self._do(send)

    def observe(self, env_ids: Ids) -> Reply:
        def send() -> None:
            ids = range(self._open.num_envs) if env_ids is None else env_ids
            fresh = [env for env in ids if env in self._untouched]
            self._reset_untouched(fresh)
            if rest := [env for env in ids if env not in fresh]:
                self._open.send_observe(rest if fresh else env_ids)

        return self._do(send)

    def _reset_untouched(self, env_ids: list[int]) -> None:
        if env_ids:
            seeds = [self._seed_of(env) for env in env_ids]
            self._untouched.difference_update(env_ids)
            self._open.send_reset(seed=seeds if any(seed is not None for seed in seeds) else None, env_ids=env_ids)

    def _seed_of(self, env: int) -> int | None:
        """What the first reset of a successor is given, where nobody names a seed."""
        return self._seeds.get(env) if env in self._untouched else None

    def rollout(self, order: RolloutOrder) -> RolloutReply:
        """Steps all envs with a policy."""
        try:
            pool = self._open
            if self._untouched:  # they succeed others
                self._reset_untouched(sorted(self._untouched))
                pool.recv()
            rollout = self.collector.collect(pool, order, self.fetch)
            given = seeds_given(pool, self._seeds) if pool.seeding == "per_episode" else None
            return RolloutReply(rollout, given=given, fault_reports=self._take_fault_reports())
        except RemudaError as error:
            return RolloutReply(None, (self._numbers.error(error),), fault_reports=self._take_fault_reports())
        except Stopped:
            return RolloutReply(None, fault_reports=self._take_fault_reports())
        except Exception as error:  # the policy's
            return RolloutReply(None, raised=portable(error), fault_reports=self._take_fault_reports())

    @abstractmethod
    def fetch(self, ref: Any) -> Any:
        """Returns what a reference refers to."""

    def _do(self, send: Callable[[], None]) -> Reply:
        """Sends a command and waits for all its results, whatever some of the envs raise."""
        errors: list[RemudaError] = []
        batches: list[Batch] = []
        try:
            send()
        except RemudaError as error:
            return Reply(None, (self._numbers.error(error),), fault_reports=self._take_fault_reports())
        for _ in range(self._open.num_envs + 1):  # more errors than envs there cannot be
            try:
                if self._open.pending:
                    batches.append(self._open.recv())
                break
            except RemudaError as error:
                errors.append(self._numbers.error(error))
        rows = [self._rows(batch) for batch in batches]
        return Reply(rows[0] if rows else None, tuple(errors), fault_reports=self._take_fault_reports())

    def _rows(self, batch: Batch) -> Rows:
        ids, columns, finals, computed, infos, extras = batch._apart(batch._rows_matter())
        fields = () if infos is None else self._fields_of(len(infos))
        own = self._numbers.infos(extras) or None
        return Rows(ids + np.int64(self._numbers.first_env), [*columns, *(computed or ())], finals, infos, fields, own)

    def _fields_of(self, count: int) -> tuple[InfoField, ...]:
        """What the first so many columns of infos are. The pool gives out more of them, and keeps those it has."""
        if count != len(self._fields):
            known = self._open._engine.batches.info_columns[:count]
            self._fields = tuple(InfoField(field.path, field.type, field.dtype, field.shape) for field in known)
        return self._fields

    # -- everything else ---------------------------------------------------------------------------------

    def apply(self, message: bytes, env_ids: Ids) -> Answer:
        """Has each env called; the answers are pickled, one by one. `message`: the order, and each env's arguments."""
        order, per_env_args = pickle.loads(message)
        return self._answer(lambda: [dump_whole(value) for value in self._call(env_ids, order, per_env_args)])

    def _call(self, env_ids: Ids, order: CallEnv, per_env_args: Sequence[tuple[Any, ...]] | None) -> list[Any]:
        told = order.function, order.args, order.kwargs
        return self._open.apply_async(
            *told, env_ids=env_ids, per_env_args=per_env_args, about=order.about, again=order.again
        ).result()

    def take_states(self, message: bytes, env_ids: Ids) -> Answer:
        """Their states, pickled, one by one. `message`: how they are taken."""
        fns = pickle.loads(message)
        return self._answer(lambda: [dump_whole(state) for state in self._open.get_state(env_ids, state_fns=fns)])

    def remember(self, options: Sequence[dict[str, Any] | None], env_ids: Ids) -> Answer:
        return self._answer(lambda: self._open.set_reset_options(options, env_ids))

    def stats(self) -> Answer:
        def look() -> PoolStats:
            return self._open.stats()

        return self._answer(look)

    def worker(self, index: int, attribute: str, *args: Any) -> Answer:
        """Of a worker of the pool here: `pid`, `exitcode`, or what `is_alive` and `output` return."""

        def look() -> Any:
            found = getattr(self._open.workers[index], attribute)
            return found(*args) if callable(found) else found

        return self._answer(look)

    def _answer(self, function: Callable[[], Any]) -> Answer:
        try:
            return Answer(function(), fault_reports=self._take_fault_reports())
        except (RemudaError, ValueError, TypeError) as error:
            return Answer(error=self._numbers.portable(error), fault_reports=self._take_fault_reports())

    def _note_faults(self, numbers: Renumbering, faults: Sequence[Fault], then: str) -> None:
        """In the place of a log, which would be one of this machine. `numbers`: of the pool whose faults they are."""
        self._fault_reports.append(FaultReport(tuple(map(numbers.fault, faults)), then))

    def _take_fault_reports(self) -> tuple[FaultReport, ...]:
        reports, self._fault_reports = tuple(self._fault_reports), []
        return reports

    @property
    def _open(self) -> Pool:
        if self._pool is None:
            raise RemudaError("the envs of this shard could not be built")
        return self._pool
