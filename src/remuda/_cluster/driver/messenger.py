"""Sends the commands for a shard's workers to the shard's actor, and writes the results into the workers' rows."""

from __future__ import annotations

import pickle
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from remuda import _core
from remuda._cluster.driver.engine_worker import EngineWorker
from remuda._cluster.driver.row_writer import RowWriter, flags_and_parts
from remuda._cluster.driver.shard_message import INTO_ROW, REPEATED, ShardMessage, Taken, Targets
from remuda._cluster.driver.shares import Share
from remuda._cluster.messages import Answer, Array, Reply, Rows, abandoned
from remuda._cluster.ray import actors
from remuda._engine.supervision.faults import must_reset
from remuda._wire.failures import portable
from remuda._wire.pickling import Buffers, dump, dump_whole, load
from remuda._wire.requests import AddInfoColumns
from remuda.errors import WorkerDiedError

_PATIENCE = 0.01  # seconds that a message may take before the driver calls the shard's `reply_now`


class Messenger:
    """The messages between the pool's memory and one actor of a shard. One message is under way at a time."""

    def __init__(self, share: Share, workers: Sequence[EngineWorker], writer: RowWriter) -> None:
        self._share, self._workers, self._writer = share, workers, writer
        self._worker_of = np.repeat(np.arange(len(workers)), [len(worker.env_ids) for worker in workers])
        self._targets = Targets(writer.progress[share.first : share.first + share.count])
        # The last message gathers commands from the rings. If there are two, the first one is under way. Each change of
        # this list is one call, because a signal handler may run between two.
        self._messages = [ShardMessage(1)]
        self._is_owed = False  # whether results are pending at the shard.
        self._until = 0  # the sequence number of the last command that was sent
        self._closing: tuple[actors.Ref, list[Taken]] | None = None

    @property
    def refs(self) -> list[actors.Ref]:
        """The references to the actor's answers that the driver waits for."""
        refs = [message.ref for message in self._messages if message.ref is not None]
        return refs if self._closing is None else [*refs, self._closing[0]]

    # -- commands ----------------------------------------------------------------------------------------

    def pass_on(self, actor: actors.Actor) -> None:
        """Sends the commands in the workers' rings as one message, unless another message is under way."""
        for worker in self._workers:
            worker.take(self._messages[-1].taken)
        message = self._messages[0]
        if len(self._messages) == 1:
            if not message.taken and not self._is_owed:
                return
            self._messages.append(ShardMessage(message.number + 1))
        if message.ref is None:
            self._send(message, actor)
        elif self._messages[1].taken and not message.is_urgent and time.monotonic() >= message.sent_at + _PATIENCE:
            message.is_urgent = True
            actor.reply_now.remote(message.number)

    def _send(self, message: ShardMessage, actor: actors.Actor) -> None:
        """Sends a message. If an interrupt makes the driver send it twice, the shard recognizes its number."""
        message.taken = self._without_own(message.taken, actor)
        commands = message.commands(self._share, self._targets, self._workers[0].index, self._writer.actions)
        if not commands and not self._is_owed:
            self._messages.pop(0)
            return
        message.sent_at = time.monotonic()
        self._until = max([self._until, *(taken[5] for taken in message.taken)])
        message.ref = actor.run.remote(dump_whole((message.number, commands)))  # Ray would need longer to pickle it

    def _without_own(self, commands: Sequence[Taken], actor: actors.Actor) -> list[Taken]:
        """Executes the commands that are for the driver. Returns the other commands."""
        others = []
        for taken in commands:
            op, env, _, _, _, sequence, parts = taken
            if op == _core.Op.CLOSE:
                self._close(taken, actor)
                continue
            if op == _core.Op.MESSAGE and env == _core.WHOLE_WORKER and parts is not None:
                request = load(parts)
                if isinstance(request, AddInfoColumns):
                    self._writer.add_info_columns(request.columns, request.first)
                    self._answer_message(sequence, 0, dump(None))
                    continue
            others.append(taken)
        return others

    def _close(self, taken: Taken, actor: actors.Actor) -> None:
        if self._closing is None:
            self._closing = actor.close.remote(None), []
        if taken not in self._closing[1]:
            self._closing[1].append(taken)

    # -- results -----------------------------------------------------------------------------------------

    def handle(self, answer: Answer | Reply | bytes) -> None:
        """Handles an answer of the actor. If this method is interrupted, a second call completes it."""
        if isinstance(answer, Answer):
            self._note_closed(answer)
        else:
            self._settle(pickle.loads(answer) if isinstance(answer, bytes) else answer)

    def _note_closed(self, answer: Answer) -> None:
        """Answers the commands to close the workers. Only the first answer has the failures of the envs."""
        error = answer.error
        # Pickled like the results of `EnvHost.describe`.
        failures = answer.value if error is None else [dump((None, 0, "close", *portable(error)))]
        for i, taken in enumerate(self._closing[1] if self._closing is not None else ()):
            if isinstance(error, WorkerDiedError):
                self._answer_message(taken[5], *abandoned(error, None))
            else:
                self._answer_message(taken[5], 0, dump(failures if i == 0 else []))
        self._closing = None

    def _settle(self, reply: Reply) -> None:
        """Writes the results of a reply to the pool's memory."""
        first, width = self._share.first, self._writer.layout.width
        self._writer.note_progress(first, reply.progress)
        for rows in reply.rows:
            self._write(rows)
        for env, parts in reply.failures:
            self._worker_at(env).answer(first + env, width, _core.IS_FAILURE, parts, self._until)
        for env, error in reply.lost.items():
            worker = self._worker_at(env)
            if isinstance(error, WorkerDiedError) and set(worker.env_ids) <= set(error.env_ids):
                worker.die(error)
            elif env % width == 0:
                worker.answer(first + env, width, *abandoned(error, error), self._until)
        for env in reply.to_reset:
            self._writer.guards.require_reset(first + env)
            if env % width == 0:
                refusal = abandoned(must_reset([first + one for one in reply.to_reset]), None)
                self._worker_at(env).answer(first + env, width, *refusal, self._until)
        for sequence, (flags, parts) in reply.answers.items():
            self._answer_message(sequence, flags, parts)
        self._is_owed = reply.pending > 0
        self._messages.pop(0)
        reply.log_faults()

    def _write(self, rows: Rows) -> None:
        kinds = self._targets.kinds[rows.env_ids]
        for kind in set(kinds.tolist()):
            self._write_alike(kind, rows.where(kinds == kind))

    def _write_alike(self, kind: int, rows: Rows) -> None:
        """Writes rows of one kind (PLAIN, INTO_ROW or REPEATED), and answers the commands for them."""
        ids, share, targets = rows.env_ids, self._share, self._targets
        at: Any = targets.rows[ids]
        envs: Any = ids + share.first
        is_whole = len(ids) == share.count and _are_neighbours(ids) and _are_neighbours(at)
        if is_whole:  # there is a row of every env, in order
            at, envs = slice(at[0], at[0] + share.count), slice(share.first, share.first + share.count)
        results = None if kind == REPEATED else targets.results[ids]
        extras = self._writer.write(rows, at, envs, results, into_row=kind == INTO_ROW)
        flags = _core.HAS_FINAL if kind == INTO_ROW else 0
        width, size = self._writer.layout.width, self._writer.layout.vector_size
        if is_whole and not extras and not flags:
            for worker in self._workers:
                worker.answer(worker.env_ids[0], len(worker.env_ids), 0, None, self._until)
            return
        for i, env in enumerate(ids.tolist()[::width]):
            own, parts = flags_and_parts(extras[i * width], size) if i * width in extras else (0, None)
            self._worker_at(env).answer(share.first + env, width, flags | own, parts, self._until)

    def _worker_at(self, env: int) -> EngineWorker:
        return self._workers[int(self._worker_of[env])]

    def _answer_message(self, sequence: int, flags: int, parts: Buffers) -> None:
        for worker in self._workers:
            worker.answer_message(sequence, flags, parts)

    def note_progress(self, progress: Any) -> None:
        """Copies the shard's counts of its envs into the pool's memory after a rollout."""
        self._writer.note_progress(self._share.first, progress)


def _are_neighbours(numbers: Array) -> bool:
    """Returns whether each number is the one before it plus 1."""
    return bool((np.diff(numbers) == 1).all())
