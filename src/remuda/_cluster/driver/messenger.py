"""Sends the commands for a shard's workers to the shard's actor, and writes the results into the workers' rows."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from math import inf
from typing import Any

import numpy as np

from remuda import _core
from remuda._cluster.driver.engine_worker import EngineWorker
from remuda._cluster.driver.row_writer import RowWriter, flags_and_parts
from remuda._cluster.driver.shard_message import INTO_ROW, REPEATED, Taken, Targets, commands_for
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
    """The messages between the pool's memory and one actor of a shard. One message is under way at a time.

    Attributes:
        is_under_way: Whether a message has no answer yet.
    """

    def __init__(self, share: Share, workers: Sequence[EngineWorker], writer: RowWriter) -> None:
        self._share, self._workers, self._writer = share, workers, writer
        self._worker_of = np.repeat(np.arange(len(workers)), [len(worker.env_ids) for worker in workers])
        self._targets = Targets(share.count)
        self._number = 0  # the number of the last message
        self.is_under_way = False
        self._urgent_at = 0.0  # the time when the shard must answer with the results that it has
        self._is_owed = False  # whether results are pending at the shard
        self._closing: list[Taken] | None = None  # the commands to close the workers; None: the actor was sent none

    # -- commands ----------------------------------------------------------------------------------------

    def pass_on(self, actor: actors.Actor) -> tuple[list[actors.Ref], float | None]:
        """Sends the commands in the workers' rings as one message, unless another message is under way.

        Returns the references to the answers, and the seconds until this must be called again (None: once an answer
        has come, or there are new commands).
        """
        if self.is_under_way:
            return [], self._hurry(actor)
        taken = list[Taken]()
        for worker in self._workers:
            worker.take(taken)
        others, refs = self._without_own(taken, actor)
        if others or self._is_owed:
            self._number, self.is_under_way = self._number + 1, True
            self._urgent_at = time.monotonic() + _PATIENCE
            commands = commands_for(others, self._share, self._targets, self._workers[0].index, self._writer.actions)
            refs.append(actor.run.remote(dump_whole((self._number, commands))))  # Ray would need longer to pickle it
        return refs, None

    def _hurry(self, actor: actors.Actor) -> float | None:
        """If commands wait, makes the shard answer the message that is under way. Returns the seconds until then."""
        if self._urgent_at == inf or not any(worker.has_command for worker in self._workers):
            return None
        if (left := self._urgent_at - time.monotonic()) > 0:
            return left
        self._urgent_at = inf
        actor.reply_now.remote(self._number)
        return None

    def _without_own(self, commands: Sequence[Taken], actor: actors.Actor) -> tuple[list[Taken], list[actors.Ref]]:
        """Executes the commands that are for the driver. Returns the others, and the references to answers."""
        others, refs = list[Taken](), list[actors.Ref]()
        for taken in commands:
            op, env, _, _, _, sequence, parts = taken
            if op == _core.Op.CLOSE:
                if self._closing is None:
                    self._closing = []
                    refs.append(actor.close.remote(None))
                self._closing.append(taken)
                continue
            if op == _core.Op.MESSAGE and env == _core.WHOLE_WORKER and parts is not None:
                request = load(parts)
                if isinstance(request, AddInfoColumns):
                    self._writer.add_info_columns(request.columns, request.first)
                    self._answer_message(sequence, 0, dump(None))
                    continue
            others.append(taken)
        return others, refs

    # -- results -----------------------------------------------------------------------------------------

    def handle(self, answer: Answer | Reply) -> None:
        """Handles an answer of the actor."""
        if isinstance(answer, Answer):
            self._note_closed(answer)
        else:
            self._settle(answer)

    def _note_closed(self, answer: Answer) -> None:
        """Answers the commands to close the workers. Only the first answer has the failures of the envs."""
        error = answer.error
        # Pickled like the results of `EnvHost.describe`.
        failures = answer.value if error is None else [dump((None, 0, "close", *portable(error)))]
        for i, taken in enumerate(self._closing or ()):
            if isinstance(error, WorkerDiedError):
                self._answer_message(taken[5], *abandoned(error, None))
            else:
                self._answer_message(taken[5], 0, dump(failures if i == 0 else []))
        self._closing = None

    def _settle(self, reply: Reply) -> None:
        """Writes the results of a reply to the pool's memory. Workers die last, because that drops their rings."""
        first, width = self._share.first, self._writer.layout.width
        self.is_under_way, self._is_owed = False, reply.pending > 0
        self._writer.note_progress(first, reply.progress)
        for env in reply.to_reset:  # before the caller has their rows, and may send resets
            self._writer.guards.require_reset(first + env, can_be_observed=True)
        for rows in reply.rows:
            self._write(rows)
        for env, parts in reply.failures:
            self._worker_at(env).answer(first + env, width, _core.IS_FAILURE, parts)
        dying = dict[EngineWorker, WorkerDiedError]()
        for env, error in reply.lost.items():
            worker = self._worker_at(env)
            if isinstance(error, WorkerDiedError) and set(worker.env_ids) <= set(error.env_ids):
                dying[worker] = error
            elif env % width == 0:
                worker.answer(first + env, width, *abandoned(error, error))
        for env in reply.to_reset:
            if env % width == 0:
                refusal = abandoned(must_reset([first + one for one in reply.to_reset]), None)
                self._worker_at(env).answer(first + env, width, *refusal)
        for sequence, (flags, parts) in reply.answers.items():
            for worker in self._workers:
                # The engine itself abandons the messages of a dead worker, when it handles the death.
                if not (flags & _core.ABANDONED and worker in dying):
                    worker.answer_message(sequence, flags, parts)
        for worker, death in dying.items():
            worker.die(partial(_constant, death))

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
        extras = self._writer.write(rows, at, envs, counts=kind != REPEATED, into_row=kind == INTO_ROW)
        flags = _core.HAS_FINAL if kind == INTO_ROW else 0
        width, size = self._writer.layout.width, self._writer.layout.vector_size
        if is_whole and not extras and not flags:
            for worker in self._workers:
                worker.answer(worker.env_ids[0], len(worker.env_ids), 0, None)
            return
        for i, env in enumerate(ids.tolist()[::width]):
            own, parts = flags_and_parts(extras[i * width], size) if i * width in extras else (0, None)
            self._worker_at(env).answer(share.first + env, width, flags | own, parts)

    def _worker_at(self, env: int) -> EngineWorker:
        return self._workers[int(self._worker_of[env])]

    def _answer_message(self, sequence: int, flags: int, parts: Buffers) -> None:
        for worker in self._workers:
            worker.answer_message(sequence, flags, parts)


def _are_neighbours(numbers: Array) -> bool:
    """Returns whether each number is the one before it plus 1."""
    return bool((np.diff(numbers) == 1).all())


def _constant(error: WorkerDiedError, _: str) -> WorkerDiedError:
    return error
