"""Packs steps and what comes of them as bytes, which Ray hands on as they are.

Anything else that Ray is given it takes apart by itself, which takes it a third of a millisecond for the actions of a
step: most of what it costs to send one. Only plain arrays are packed here; what may need more (infos with objects,
errors), and what is large, goes Ray's way, which copies nothing on one machine.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import numpy.typing as npt

from remuda._cluster.replies import Reply

Ids = list[int] | None

_LARGE = 1 << 16  # bytes; Ray sends up to 100 kB along with the answer, and puts more into its object store


def pack_step(arrays: Sequence[npt.NDArray[Any]], env_ids: Ids) -> bytes:
    """Actions without objects, and of which of a shard's envs they are."""
    return pickle.dumps((arrays, env_ids), 5)


def unpack_step(message: bytes) -> tuple[Sequence[npt.NDArray[Any]], Ids]:
    arrays, env_ids = pickle.loads(message)
    return arrays, env_ids


def pack_reply(reply: Reply) -> Reply | bytes:
    """As bytes, if it can be, and if that is less work."""
    rows = reply.rows
    if rows is None or rows.extras is not None or reply.errors or reply.fault_reports or rows.nbytes > _LARGE:
        return reply
    return pickle.dumps(reply, 5)


def unpack_reply(reply: Reply | bytes) -> Reply:
    return pickle.loads(reply) if isinstance(reply, bytes) else reply
