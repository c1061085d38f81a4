"""The commands of the pool that go to a shard in one message."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from remuda import _core
from remuda._cluster.driver.shares import Share
from remuda._cluster.messages import Array, Command, MessageCommand, RowCommand
from remuda._engine.startup.inheritance import RESULTS
from remuda._wire.pickling import Parts

Taken: TypeAlias = "tuple[_core.Op, int, int, int, int, int, Parts | None]"
"""A command as `_core.RemotePort.take` returns it: op, env, count, row, row of the action, sequence, parts."""

PLAIN, INTO_ROW, REPEATED = range(3)
"""Kinds of rows: from a step or reset; completing a row that ends an episode; repeating an observation."""

_KINDS = {_core.Op.RESET_INTO_ROW: INTO_ROW, _core.Op.OBSERVE: REPEATED}


class Targets:
    """The rows of the pool's memory for the next results of a shard's envs.

    Attributes:
        rows: (n,): the row in the pool's memory.
        kinds: (n,): PLAIN, INTO_ROW or REPEATED.
        results: (n,): the number of rows that the env had before.
    """

    def __init__(self, progress: Array) -> None:
        """`progress`: (n, 8): the counts of the shard's envs, a view of the pool's memory."""
        self.rows, self.kinds = (np.zeros(len(progress), np.int64) for _ in range(2))
        self.results = np.zeros(len(progress), np.uint64)
        self._counted = progress[:, RESULTS]

    def note(self, envs: slice, row: int, kind: int) -> None:
        """Sets the rows for the next results of neighbouring envs: `row` and the rows after it."""
        self.rows[envs] = np.arange(row, row + envs.stop - envs.start)
        self.kinds[envs], self.results[envs] = kind, self._counted[envs]


@dataclass
class Trip:
    """A message to a shard, with the data that the driver needs to handle the answer.

    Attributes:
        number: The number of the message.
        taken: The commands.
        ref: The reference to the answer; None until the message is sent.
        sent_at: The time of `time.monotonic` when it was sent.
        has_hurried: Whether the shard was requested to answer with the results that it has.
        place: The slice of rows that all envs of the shard write, if they are neighbours; else None.
    """

    number: int
    taken: list[Taken]
    ref: Any = None
    sent_at: float = 0.0
    has_hurried: bool = False
    place: slice | None = None

    def commands(
        self, share: Share, targets: Targets, first_worker: int, worker_of: Array, actions: Sequence[Array]
    ) -> list[Command]:
        """Returns the message's commands for the shard. Merges successive commands with the same operation.

        Args:
            share: The envs of the shard.
            targets: Receives the rows that the commands name.
            first_worker: The index of the first worker of the shard.
            worker_of: (n,): the worker of each env of the shard, by its index there.
            actions: The columns of actions.
        """
        commands, group = list[Command](), list[Taken]()
        self.place = _place(self.taken, share)
        for taken in self.taken:
            op, env, count, row, *_, parts = taken
            if _is_message(op):
                self._end_group(group, commands, share, actions)
                commands.append(_message(taken, share, first_worker, worker_of))
                continue
            if group and (group[0][0], group[0][-1] is None) != (op, parts is None):
                self._end_group(group, commands, share, actions)
            group.append(taken)
            first = env - share.first
            targets.note(slice(first, first + count), row, _KINDS.get(op, PLAIN))
        self._end_group(group, commands, share, actions)
        return commands

    def _end_group(self, group: list[Taken], commands: list[Command], share: Share, actions: Sequence[Array]) -> None:
        if not group:
            return
        op, has_parts = group[0][0], group[0][-1] is not None
        ids = [env - share.first + i for _, env, count, *_ in group for i in range(count)]
        blobs = [taken[-1] for taken in group] if has_parts else None
        arrays: tuple[Array, ...] = ()
        if op == _core.Op.STEP:
            rows = [row + i for _, _, count, _, row, *_ in group for i in range(count)]
            arrays = tuple(column[_index(rows)] for column in actions)
        if op == _core.Op.RESET_INTO_ROW:
            op = _core.Op.RESET
        commands.append(RowCommand(op, None if ids == list(range(share.count)) else ids, arrays, blobs))
        group.clear()


def _place(commands: Sequence[Taken], share: Share) -> slice | None:
    """Returns the slice of rows that the commands name. Returns None if the commands are not for all envs in order."""
    next_env, first_row = share.first, commands[0][3] if commands else 0
    for op, env, count, row, *_ in commands:
        if _is_message(op) or env != next_env or row - first_row != env - share.first:
            return None
        next_env += count
    return slice(first_row, first_row + share.count) if next_env == share.first + share.count else None


def _is_message(op: _core.Op) -> bool:
    return op in (_core.Op.MESSAGE, _core.Op.REBUILD, _core.Op.PREPARE)


def _message(taken: Taken, share: Share, first_worker: int, worker_of: Array) -> MessageCommand:
    op, env, _, worker, _, sequence, parts = taken
    assert parts is not None  # every message to a shard has a request
    if env == _core.WHOLE_WORKER:
        return MessageCommand(op, worker - first_worker, -1, parts, sequence)
    env -= share.first
    return MessageCommand(op, int(worker_of[env]), env, parts, sequence)


def _index(rows: list[int]) -> Any:
    """Returns the rows as an index: a slice if they are neighbours, else an array."""
    if rows == list(range(rows[0], rows[0] + len(rows))):
        return slice(rows[0], rows[0] + len(rows))
    return np.array(rows)
