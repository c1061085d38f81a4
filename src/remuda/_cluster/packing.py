"""Packs steps and what comes of them as bytes, which Ray hands on as they are.

Anything else that Ray is given it takes apart by itself, which takes it a third of a millisecond for the actions of a
step: most of what it costs to send one. Only plain arrays are packed here; what may need more (infos with objects,
errors), and what is large, goes Ray's way, which copies nothing on one machine.

A message is a head, then the bytes of each array, from a multiple of 8 on. The head says how the arrays lie, and what
else there is; it is the same in nearly all steps, so both sides make or read each only once:

    | 4 bytes: length of what follows | (specs of the arrays, the rest), pickled | padding | array | padding | array ...
"""

from __future__ import annotations

import pickle
from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from remuda._cluster.replies import Reply
from remuda._cluster.rows import Rows
from remuda._wire.info_columns import InfoField

Array = npt.NDArray[Any]
Ids = list[int] | None
Spec: TypeAlias = "tuple[str, tuple[int, ...]] | None"  # dtype and shape; None: there is no such array

_LARGE = 1 << 16  # bytes; Ray sends up to 100 kB along with the answer, and puts more into its object store
_ALIGNMENT = 8
_LENGTH = 4  # bytes of the head's own length
_HEADS = 256  # that are remembered


def pack_step(arrays: Sequence[Array], env_ids: Ids) -> bytes:
    """Actions without objects, and of which of a shard's envs they are."""
    return _pack(arrays, None if env_ids is None else tuple(env_ids))


def unpack_step(message: bytes) -> tuple[Sequence[Array], Ids]:
    arrays, env_ids = _unpack(message)
    return arrays, None if env_ids is None else list(env_ids)


def pack_reply(reply: Reply) -> Reply | bytes:
    """As bytes, if it can be, and if that is less work."""
    rows = reply.rows
    if rows is None or rows.extras is not None or reply.errors or reply.fault_reports or rows.nbytes > _LARGE:
        return reply
    groups = rows.columns, rows.finals, rows.infos
    counts = tuple([None if group is None else len(group) for group in groups])
    arrays = [rows.env_ids, *(array for group in groups if group is not None for array in group)]
    return _pack(arrays, (counts, _pickled(rows.fields)))


def unpack_reply(reply: Reply | bytes) -> Reply:
    """Its arrays are the caller's own, who may write to them."""
    if not isinstance(reply, bytes):
        return reply
    arrays, (counts, fields) = _unpack(reply)
    groups, at = list[Any](), 1
    for count in counts:
        groups.append(None if count is None else arrays[at : at + count])
        at += count or 0
    columns, finals, infos = groups
    return Reply(Rows(arrays[0], columns, finals, infos, _unpickled(fields)))


def _pack(arrays: Sequence[Array | None], rest: Hashable) -> bytes:
    pieces = [_head(tuple([None if array is None else (array.dtype.str, array.shape) for array in arrays]), rest)]
    for array in arrays:
        if array is not None:
            pieces.append(array.tobytes())
            pieces.append(_padding(array.nbytes))
    return b"".join(pieces)


def _unpack(message: bytes) -> tuple[list[Any], Any]:
    end = _LENGTH + int.from_bytes(message[:_LENGTH], "little")
    places, rest = _layout(message[:end])
    memory = bytearray(message)
    return [None if place is None else np.ndarray(place[0], place[1], memory, place[2]) for place in places], rest


@lru_cache(_HEADS)
def _head(specs: tuple[Spec, ...], rest: Hashable) -> bytes:
    content = pickle.dumps((specs, rest), 5)
    return b"".join([len(content).to_bytes(_LENGTH, "little"), content, _padding(_LENGTH + len(content))])


@lru_cache(_HEADS)
def _layout(head: bytes) -> tuple[list[tuple[tuple[int, ...], np.dtype[Any], int] | None], Any]:
    """Shape, dtype and offset of each array, and what else there is."""
    specs, rest = pickle.loads(head[_LENGTH:])
    places, at = list[Any](), len(head) + len(_padding(len(head)))
    for spec in specs:
        if spec is None:
            places.append(None)
            continue
        dtype, shape = np.dtype(spec[0]), spec[1]
        places.append((shape, dtype, at))
        size = dtype.itemsize * int(np.prod(shape))
        at += size + len(_padding(size))
    return places, rest


def _padding(size: int) -> bytes:
    """What brings so many bytes to a multiple of the alignment."""
    return bytes(-size % _ALIGNMENT)


@lru_cache(_HEADS)
def _pickled(fields: tuple[InfoField, ...]) -> bytes:
    return pickle.dumps(fields, 5)


@lru_cache(_HEADS)
def _unpickled(fields: bytes) -> tuple[InfoField, ...]:
    return pickle.loads(fields)  # type: ignore[no-any-return]
