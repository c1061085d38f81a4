"""A shard: some of a pool's envs in a pool of their own, in a Ray actor that runs the commands of the driver."""

from __future__ import annotations

import pickle
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from queue import SimpleQueue
from typing import Any

import numpy as np
import ray

from remuda import Batch, InvalidEnvError, Pool, _core
from remuda._cluster.messages import (
    Answer,
    BuildOrder,
    Command,
    FaultReport,
    Figures,
    MessageCommand,
    Reply,
    RolloutOrder,
    RowCommand,
    Rows,
    ShardReport,
    abandoned,
)
from remuda._cluster.shard.collector import ShardCollector, Stopped
from remuda._cluster.shard.renumbering import Renumbering
from remuda._engine.commands.answers import Answers
from remuda._engine.pool.pool import succeeding_pool
from remuda._engine.pool.state_checks import is_fresh, not_in_episode
from remuda._engine.startup.start import IS_FRESH_ON_SHARD, RESETS, Counts, progress_of
from remuda._engine.supervision.faults import was_lost
from remuda._wire.failures import pickled_exception, portable
from remuda._wire.layout import Layout
from remuda._wire.pickling import Buffers, dump, dump_whole, load
from remuda._wire.requests import CallEnv, RememberOptions, RepeatCalls, TakeReplacement, TakeState
from remuda._worker.env_report import check_fit
from remuda.errors import EnvError, Failure, Fault, PickledException, RemudaError

CONTROL = "control"  # the name of the actor's second thread; the first one runs commands.
NEVER = "never"  # the name of the actor's third thread, which runs the call that ends with the actor.
_PATIENCE = 0.01  # the seconds that finished results wait for results of slower envs


class ShardActor:
    """A Ray actor with some of a pool's envs, in a pool of their own.

    The driver sends one message for many commands and gets one back. The shard runs one message after another.
    """

    def __init__(self, shard: int, generation: int) -> None:
        """`generation`: the number of actors that this shard had before this one."""
        self.shard = shard
        self.node = f"{ray.util.get_node_ip_address()}-{ray.get_runtime_context().get_node_id()[:8]}"
        self._numbers = Renumbering(0, shard, self.node)
        self._pool: Pool | None = None
        self._next: tuple[Renumbering, Pool] | None = None  # a pool that is not used yet, and its renumbering
        self._collector = ShardCollector(self._numbers, generation)
        self._fault_reports: SimpleQueue[FaultReport] = SimpleQueue()  # faults that the driver has not received
        self._urgent_number = 0  # the number of the latest message that must be answered at once
        self._calls: dict[int, tuple[int, Answers]] = {}  # by sequence: env (or -1) and call of each unanswered message
        self._refused: list[int] = []  # the envs of the latest message that must be reset first
        self._carried: dict[int, Buffers] = {}  # by env: the message with the factory of its replacement.

    # -- life --------------------------------------------------------------------------------------------

    @ray.method(concurrency_group=CONTROL)  # type: ignore[untyped-decorator]
    def locate(self) -> str:
        """Returns the shard's machine. Can be called while the shard builds its envs."""
        return self.node

    @ray.method(concurrency_group=NEVER)  # type: ignore[untyped-decorator]
    def never(self) -> None:
        """Never returns, so Ray reports the actor's death as the result, also while the shard has nothing to do."""
        threading.Event().wait()

    def build(self, order: BuildOrder) -> Answer:
        """Builds envs. Earlier envs continue until `take_prepared`. The answer has a `ShardReport`."""
        numbers = Renumbering(order.first_env, self.shard, self.node, order.first_worker)
        return self._attempt(numbers, lambda: self._build(numbers, order))

    def _build(self, numbers: Renumbering, order: BuildOrder) -> ShardReport:
        sys.path.extend(entry for entry in order.path if entry not in sys.path)
        factories, options = self._unpickled(order.env_fns), self._unpickled(order.options, "options")
        for place, pickled in order.replaced.items():
            factories[place] = self._unpickled(pickled)
        pool = succeeding_pool(factories, options, order.inherited)
        if order.layout is not None:
            self._check_fit(pool, self._unpickled(order.layout, "spaces"), order.first_env)
        if order.inherited is not None:
            for env in np.flatnonzero(order.inherited.progress[:, RESETS]).tolist():
                pool._engine.faults.guards.note_reset(env)  # allows a step, which first resets the rebuilt env
        pool._engine.fault_log.log = partial(self._note_faults, numbers)
        self._next = numbers, pool
        if self._pool is None:
            self._begin_next()
        workers = tuple((worker.name, worker.env_ids) for worker in pool.workers)
        return ShardReport(workers, None if order.layout is not None else dump_whole(pool._engine.running.reports))

    def _check_fit(self, pool: Pool, layout: Layout, first_env: int) -> None:
        """Checks that the envs of a new pool fit the layout of the whole pool. Closes the new pool if they do not."""
        for env, report in enumerate(pool._engine.running.reports):
            try:
                check_fit(layout, [report], env + first_env)
            except RemudaError as error:
                pool.close(terminate=True)
                name, text, trace, pickled = portable(error)
                exception = None if pickled is None else PickledException(pickled, trace)
                worker = pool._engine.layout.worker_of(env)
                raise EnvError([Failure(env, worker, "build", exception, name, text, trace)]) from error

    def _begin_next(self) -> None:
        assert self._next is not None  # the driver calls `take_prepared` only after a successful `build`
        (self._numbers, self._pool), self._next = self._next, None
        self._collector.numbers = self._numbers
        self._urgent_number = 0  # the driver numbers the messages to each pool from 1 on
        self._calls.clear()  # the driver no longer waits for calls into the envs before a resize

    def take_prepared(self) -> Answer:
        """Replaces the envs by those of the last `build`. The answer has the error of closing the old ones, if any."""
        before = self._pool
        self._begin_next()
        return self._attempt(self._numbers, lambda: None if before is None else before.close())

    def drop_prepared(self) -> None:
        """Closes the envs of the last `build`, if they have not replaced the current ones."""
        prepared, self._next = self._next, None
        if prepared is not None:
            prepared[1].close(terminate=True)

    def _unpickled(self, pickled: bytes, what: str = "env_fns") -> Any:
        try:
            return pickle.loads(pickled)
        except Exception as error:
            raise InvalidEnvError(
                f"expected {what} that can be unpickled on node {self.node}, got {type(error).__name__}: {error}; what "
                "they need must be installed there, or be in the runtime_env of remuda.Ray"
            ) from error

    def number_workers(self, first_worker: int) -> None:
        """Sets the index that the shard's first worker has in the whole pool."""
        self._numbers.first_worker = first_worker

    def close(self, timeout: float | None) -> Answer:
        """Closes the envs. The answer has their failures, pickled as by `EnvHost.describe`."""
        self.drop_prepared()
        failures: list[Buffers] = []
        if self._pool is not None:
            try:
                self._pool.close(timeout=timeout)
            except EnvError as error:
                failures = [self._described(failure) for failure in error.failures]
            except RemudaError as error:
                return Answer(error=self._numbers.portable(error))
        return Answer(failures)

    # -- commands ----------------------------------------------------------------------------------------

    @ray.method(enable_task_events=False)  # type: ignore[untyped-decorator]
    def run(self, message: bytes) -> Reply | bytes:
        """Runs the commands of a message: (number, commands), pickled.

        Returns `Reply.pack()`. Ray's list of tasks gets no entry, because it would grow with each step.
        """
        number, commands = pickle.loads(message)
        return self._run(number, commands).pack()

    def _run(self, number: int, commands: Sequence[Command]) -> Reply:
        self._refused.clear()
        pool = self._open
        for command in commands:
            if isinstance(command, RowCommand):
                self._send(command)
            else:  # in one hold of the hub's lock, so that no answer arrives before the call expects it
                answers: Any = pool._engine.running.hub.in_turn(partial(self._post, command), pool._part)
                self._calls[command.sequence] = command.env, answers
        rows, failures = self._receive(number)
        return self._reply(rows, failures, self._take_answers())

    def _send(self, command: RowCommand) -> None:
        """Sends a command to its envs, except to envs that are lost or must be reset first."""
        engine, part = self._open._engine, self._open._part
        ids = list(range(self._open.num_envs)) if command.env_ids is None else command.env_ids
        living = engine.faults.living(ids)
        if refused := self._to_reset(living, command.op):
            self._refused += refused
            living = [env for env in living if env not in refused]
        if not living:
            return
        arrays, blobs = command.arrays, command.blobs
        if len(living) < len(ids):
            kept = [i for i, env in enumerate(ids) if env in set(living)]
            arrays = tuple(array[kept] for array in arrays)
            blobs = None if blobs is None else [blobs[i // engine.layout.width] for i in kept[:: engine.layout.width]]
        if command.op == _core.Op.STEP:
            codec = engine.layout.action
            actions = arrays if codec.num_objects else codec.build_batch(arrays, [])
            refusal = engine.running.hub.send(command.op, living, actions, blobs, part)
            if refusal is not None:
                engine.exchange.raise_refusal(refusal, part)
            return
        if command.op == _core.Op.RESET and blobs is not None:
            self._note_seeds(living, blobs)
        engine.exchange.send(command.op, living, blobs, part, to_all=False)

    def _to_reset(self, env_ids: Iterable[int], op: _core.Op = _core.Op.STEP) -> list[int]:
        """Returns the rebuilt envs that the caller must reset before this command. With autoreset there are none."""
        engine = self._open._engine
        if not engine.layout.mode.by_caller:
            return []
        return list(filter(partial(engine.faults.guards.must_reset_before, op), env_ids))

    def _note_seeds(self, env_ids: Sequence[int], blobs: Sequence[Buffers | None]) -> None:
        """Keeps the seeds of resets, with which the successors of dead workers continue."""
        engine = self._open._engine
        for its, blob in zip(engine.layout.by_env(env_ids), blobs, strict=True):
            arguments = None if blob is None else _loaded(blob)
            seed = arguments.get("seed") if isinstance(arguments, dict) else getattr(arguments, "seed", None)
            for env, one in zip(its, seed if isinstance(seed, list) else [seed], strict=False):
                if one is not None:
                    engine.running.defaults.bases[env] = one

    def _post(self, command: MessageCommand) -> Answers:
        """Forwards a message to a worker. Returns the answer, which may already be an error."""
        exchange, faults = self._open._engine.exchange, self._open._engine.faults
        if faults.is_lost(command.env):  # the driver did not know this yet when it sent the message
            return self._unsent(faults.lost(command.env))
        try:
            if command.env < 0:
                return self._obey(command)
            if command.op == _core.Op.REBUILD:
                return exchange.ask([command.env], [self._carry(command)], command.op)
            request = _loaded(command.parts)
            if isinstance(request, TakeState) and is_fresh(command.env, self._open._engine):
                raise not_in_episode([command.env + self._numbers.first_env])
            if isinstance(request, CallEnv):
                return exchange.call([command.env], [command.parts], request.about)
            if isinstance(request, TakeReplacement):
                self._note_replacement(command, is_wanted=request.is_wanted)
            return exchange.ask([command.env], [command.parts], command.op)
        except RemudaError as error:
            return self._unsent(error)

    def _unsent(self, error: RemudaError) -> Answers:
        """Returns the answer to a message that was not sent: an error."""
        answers = Answers(lambda *_: None, self._open._engine.faults)
        answers.abandon(error)
        return answers

    def _carry(self, command: MessageCommand) -> Buffers:
        """Returns the message that makes a worker build the replacement of an env. Keeps it for `_note_replacement`."""
        env_fn = self._unpickled(command.parts[0])
        self._carried[command.env] = self._open._engine.backend.carry(command.worker, command.env, env_fn)
        return self._carried[command.env]

    def _note_replacement(self, command: MessageCommand, *, is_wanted: bool) -> None:
        """If `is_wanted`, makes later successors of the worker build the replacement instead of the replaced env."""
        engine, carried = self._open._engine, self._carried.pop(command.env, None)
        if not is_wanted or carried is None:
            return
        if engine.backend.processes is not None:
            engine.backend.processes.adopt(command.worker, command.env, carried)
        for env in engine.layout.ids_with(command.env):
            engine.running.slots.note_replaced(env)

    def _obey(self, command: MessageCommand) -> Answers:
        """Forwards a message to a worker, with the pool's env numbers replaced by the shard's."""
        engine, first = self._open._engine, self._numbers.first_env
        request = load(command.parts)
        match request:
            case RememberOptions():
                options = {env - first: pickled for env, pickled in request.options.items()}
                engine.running.defaults.remember_options(options, request.change)
                request = RememberOptions(options, request.change)
            case RepeatCalls():
                calls = {env - first: its for env, its in request.calls.items()}
                engine.exchange.supervisor.workers.remembered.take_over(calls)
                request = RepeatCalls(calls, request.replacements)
        return engine.exchange.tell(command.worker, dump(request))

    def _receive(self, number: int) -> tuple[list[Rows], list[Failure]]:
        """Waits for results and answers of message `number`. Returns the rows, and the failures of envs that raised.

        Slower envs answer with a later message, so no env and no call waits for the slowest.
        """
        rows, failures, is_last = list[Rows](), list[Failure](), False
        while (self._open.pending or self._calls) and not (is_last or self._urgent_number >= number):
            is_last = bool(rows or failures or any(call.done for _, call in self._calls.values()))
            deadline = time.monotonic() + _PATIENCE
            if pending := self._open.pending:
                try:
                    batch = self._open.recv(pending, timeout=_PATIENCE)
                except EnvError as error:
                    failures += error.failures
                except RemudaError as error:  # only failures are returned here: `_reply` reports lost envs
                    for other in getattr(error, "others", ()):
                        failures += getattr(other, "failures", ())
                    is_last = True
                else:
                    rows += [self._rows(batch)] if len(batch) else []
            for _, call in self._calls.values():
                call.wait(deadline - time.monotonic())
        return rows, failures

    @ray.method(concurrency_group=CONTROL)  # type: ignore[untyped-decorator]
    def reply_now(self, number: int) -> None:
        """Makes the shard answer message `number` now, with the results that it has so far.

        This call may overtake the message, because Ray runs it in another thread.
        """
        self._urgent_number = number

    def _take_answers(self) -> dict[int, tuple[int, Buffers]]:
        """Returns the flags and the pickled content of each answer that has come, by sequence. Forgets its message."""
        done = [sequence for sequence, (_, call) in self._calls.items() if call.done]
        return {sequence: self._answer_of(*self._calls.pop(sequence)) for sequence in done}

    def _answer_of(self, env: int, call: Answers) -> tuple[int, Buffers]:
        if call.error is not None:
            return abandoned(self._numbers.error(call.error), self._loss_of(env))
        if call.failures:
            return _core.IS_FAILURE, self._described(call.failures[0])
        return 0, [bytes(part) for part in call.so_far()[0]]

    def _reply(self, rows: list[Rows], failures: Sequence[Failure], answers: dict[int, tuple[int, Buffers]]) -> Reply:
        faults = self._open._engine.faults
        failed = [
            (failure.env_id, self._described(failure))
            for failure in failures
            if failure.env_id is not None and not failure.shared and not faults.is_lost(failure.env_id)
        ]
        lost = {env: error for env in self._lost_envs() if (error := self._loss_of(env)) is not None}
        pending = self._open.pending + len(self._calls)
        to_reset = [*self._refused, *(env for its in rows for env in self._to_reset(its.env_ids.tolist()))]
        return Reply(
            rows, self._progress(), failed, lost, to_reset, answers, pending, fault_reports=self._take_fault_reports()
        )

    def _loss_of(self, env: int) -> RemudaError | None:
        """Returns the error by which an env was lost, with the whole pool's numbers; None if the env is not lost."""
        faults = self._open._engine.faults
        return self._numbers.error(faults.lost(env)) if faults.is_lost(env) else None

    def _lost_envs(self) -> list[int]:
        faults = self._open._engine.faults
        return [env for env in range(self._open.num_envs) if faults.is_lost(env)] if faults.any_lost else []

    def _described(self, failure: Failure) -> Buffers:
        """Returns a failure with the whole pool's numbers, pickled as by `EnvHost.describe`."""
        own = self._numbers.failure(failure)
        pickled = pickled_exception(own)
        return [
            bytes(part)
            for part in dump(
                (own.env_id, own.worker, own.operation, own.type_name, own.message, own.traceback, pickled)
            )
        ]

    def _rows(self, batch: Batch) -> Rows:
        ids, columns, finals, computed, infos, extras = batch._apart(batch._pickled)
        fields = () if infos is None else tuple(self._open._engine.batches.info_columns[: len(infos)])
        own = self._numbers.extras(extras) if extras else None
        return Rows(ids, [*columns, *(computed or ())], finals, infos, fields, own)

    def _progress(self) -> Counts:
        running = self._open._engine.running
        counts: Counts = progress_of(running.arena, running.layout).copy()
        counts[:, IS_FRESH_ON_SHARD] = [is_fresh(env, self._open._engine) for env in range(self._open.num_envs)]
        return counts

    # -- rollouts and queries ----------------------------------------------------------------------------

    def rollout(self, order: RolloutOrder) -> Answer:
        """Steps all envs with a policy. The answer has the rollout and the counts of all envs; if stopped, None."""
        try:
            pool = self._open
            if lost := self._lost_envs():
                raise was_lost(lost[0] + self._numbers.first_env)
            if fresh := self._fresh():
                pool._engine.exchange.send(_core.Op.RESET, fresh, None, pool._part, to_all=False)
                pool.recv()
            rollout = self._collector.collect(pool, order)
            return self._answer((rollout, self._progress()))
        except RemudaError as error:
            lost = self._lost_envs()  # the driver gets the death, also if it preceded the rollout
            own = self._open._engine.faults.lost(lost[0]) if lost else error
            return self._answer(error=self._numbers.error(own))
        except Stopped:
            return self._answer()
        except Exception as error:  # the policy's
            return self._answer(raised=portable(error))

    def _fresh(self) -> list[int]:
        """Returns the envs that have just replaced others and have no result yet."""
        slots = self._open._engine.running.slots
        return [env for env in range(self._open.num_envs) if not slots.has_results(env)]

    @ray.method(concurrency_group=CONTROL)  # type: ignore[untyped-decorator]
    def stop_rollouts(self, number: int) -> None:
        """Stops the rollouts of the first `number` calls of `rollouts`. A rollout in progress ends early."""
        self._collector.stop(number)

    def figures(self) -> Figures:
        """Returns the figures of the shard's pool, for `Pool.stats` of the whole pool."""
        engine = self._open._engine
        engine.exchange.attend_until(time.monotonic())  # counts workers that have died since
        running = engine.running
        envs, workers, meters, _, _ = _core.read_figures(running.arena, running.layout.plan)
        return envs, workers, meters

    def worker(self, index: int, attribute: str, *args: Any) -> Answer:
        """Returns an attribute of a worker of this shard; for a method its result."""

        def look() -> Any:
            found = getattr(self._open.workers[index], attribute)
            return found(*args) if callable(found) else found

        return self._attempt(self._numbers, look)

    def _attempt(self, numbers: Renumbering, function: Callable[[], Any]) -> Answer:
        try:
            return self._answer(function())
        except (RemudaError, ValueError, TypeError, OSError) as error:
            return self._answer(error=numbers.portable(error))

    def _answer(self, value: Any = None, **rest: Any) -> Answer:
        return Answer(value, **rest, fault_reports=self._take_fault_reports())

    def _note_faults(self, numbers: Renumbering, faults: Sequence[Fault], then: str) -> None:
        """Keeps faults for the log of the driver. `numbers`: the renumbering for the pool that had them."""
        self._fault_reports.put((numbers.faults(faults), then))

    def _take_fault_reports(self) -> tuple[FaultReport, ...]:
        return tuple(self._fault_reports.get() for _ in range(self._fault_reports.qsize()))

    @property
    def _open(self) -> Pool:
        if self._pool is None:
            raise RemudaError("the envs of this shard could not be built")
        return self._pool


def _loaded(parts: Buffers) -> Any:
    """Returns an unpickled request; None if that raises, because then the worker raises too, and reports it."""
    try:
        return load(parts)
    except BaseException:  # even SystemExit, which would end the actor
        return None
