"""The commands of the pool that go to a shard in one message."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TypeAlias

import numpy as np

from remuda import _core
from remuda._cluster.driver.shares import Share
from remuda._cluster.messages import Array, Command, MessageCommand, RowCommand
from remuda._wire.pickling import Buffers

Taken: TypeAlias = "tuple[_core.Op, int, int, int, int, int, Buffers | None]"
"""A command as `_core.RemotePort.take` returns it: op, env, count, row, row of the action, sequence, parts."""

PLAIN, INTO_ROW, REPEATED = range(3)
"""Kinds of rows: from a step or reset; completing a row that ends an episode; repeating an observation."""

_KINDS = {_core.Op.RESET_INTO_ROW: INTO_ROW, _core.Op.OBSERVE: REPEATED}
_MESSAGES = (_core.Op.MESSAGE, _core.Op.REBUILD, _core.Op.PREPARE)


class Targets:
    """The rows of the pool's memory for the next results of a shard's envs.

    Attributes:
        rows: (n,): the row in the pool's memory.
        kinds: (n,): PLAIN, INTO_ROW or REPEATED.
    """

    def __init__(self, envs: int) -> None:
        self.rows, self.kinds = (np.zeros(envs, np.int64) for _ in range(2))

    def note(self, envs: slice, row: int, kind: int) -> None:
        """Sets the rows for the next results of neighbouring envs: `row` and the rows after it."""
        self.rows[envs] = np.arange(row, row + envs.stop - envs.start)
        self.kinds[envs] = kind


def commands_for(
    taken: Sequence[Taken], share: Share, targets: Targets, first_worker: int, actions: Sequence[Array]
) -> list[Command]:
    """Returns the commands of a message to a shard. Merges successive commands with the same operation.

    Args:
        taken: The commands from the rings.
        share: The envs of the shard.
        targets: Receives the rows that the commands name.
        first_worker: The index of the first worker of the shard.
        actions: The columns of actions.
    """
    commands = list[Command]()
    for (op, _), alike in groupby(taken, lambda one: (one[0], one[-1] is None)):
        if op in _MESSAGES:
            commands += [_message(one, share, first_worker) for one in alike]
        else:
            commands.append(_row_command(op, list(alike), share, targets, actions))
    return commands


def _row_command(
    op: _core.Op, alike: Sequence[Taken], share: Share, targets: Targets, actions: Sequence[Array]
) -> RowCommand:
    """Merges commands with the same operation."""
    ids, action_rows = list[int](), list[int]()
    for _, env, count, row, action_row, *_ in alike:
        first = env - share.first
        targets.note(slice(first, first + count), row, _KINDS.get(op, PLAIN))
        ids += range(first, first + count)
        action_rows += range(action_row, action_row + count)
    return RowCommand(
        _core.Op.RESET if op == _core.Op.RESET_INTO_ROW else op,
        None if ids == list(range(share.count)) else ids,
        tuple(column[action_rows] for column in actions) if op == _core.Op.STEP else (),
        None if alike[0][-1] is None else [taken[-1] for taken in alike],
    )


def _message(taken: Taken, share: Share, first_worker: int) -> MessageCommand:
    op, env, _, worker, _, sequence, parts = taken
    assert parts is not None  # every message to a shard has a request
    env = -1 if env == _core.WHOLE_WORKER else env - share.first
    return MessageCommand(op, worker - first_worker, env, parts, sequence)
