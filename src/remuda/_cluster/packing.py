"""Packs steps and their results as bytes, which Ray passes on unchanged.

Ray would pickle any other object itself. For the actions of a step this takes a third of a millisecond, most of the
cost of a message. Only plain arrays are packed here. Other messages (infos with objects, errors) and large ones are
left to Ray, which copies nothing on one machine.

A message is a head, then the bytes of each array, from a multiple of 8 on. The head has the layout of the arrays, and
the rest of the message. It is the same in nearly all steps, so both sides make or read each head only once:

    | 4 bytes: length of what follows | (specs of the arrays, the rest), pickled | padding | array | padding | array ...
"""

from __future__ import annotations

import pickle
from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from remuda._cluster.messages import Array, Ids, Reply, Rows
from remuda._wire.info_columns import InfoField

Spec: TypeAlias = "tuple[str, tuple[int, ...]] | None"  # the dtype and shape of an array; None: the array is missing

_LARGE = 1 << 16  # larger replies are not packed: Ray puts answers of more than 100 kB into its object store
_ALIGNMENT = 8
_LENGTH = 4  # bytes of the field with the head's length.
_NUMBER = 8  # bytes of the field with the message's number.
_HEADS = 256  # the most entries in each cache of this module


def pack_step(number: int, arrays: Sequence[Array], env_ids: Ids) -> bytes:
    """Packs a step as message `number`, with the ids of the envs. `arrays`: all columns of the actions."""
    return number.to_bytes(_NUMBER, "little") + _pack(arrays, None if env_ids is None else tuple(env_ids))


def unpack_step(message: bytes) -> tuple[int, tuple[Array, ...], Ids]:
    arrays, env_ids = _unpack(message[_NUMBER:])
    number = int.from_bytes(message[:_NUMBER], "little")
    return number, tuple(arrays), None if env_ids is None else list(env_ids)


def pack_reply(reply: Reply) -> Reply | bytes:
    """Packs a reply as bytes if it has only arrays and is small. Otherwise returns the reply itself."""
    if not reply.is_plain or reply.rows[0].nbytes > _LARGE:
        return reply
    rows = reply.rows[0]
    groups = rows.columns, rows.finals, rows.infos
    counts = tuple([None if group is None else len(group) for group in groups])
    arrays = [reply.progress, rows.env_ids, *(array for group in groups if group is not None for array in group)]
    return _pack(arrays, (counts, _pickled(rows.fields), reply.pending))


def unpack_reply(reply: Reply | bytes) -> Reply:
    if not isinstance(reply, bytes):
        return reply
    arrays, (counts, fields, pending) = _unpack(reply)
    groups, at = list[Any](), 2
    for count in counts:
        groups.append(None if count is None else arrays[at : at + count])
        at += count or 0
    columns, finals, infos = groups
    return Reply([Rows(arrays[1], columns, finals, infos, _unpickled(fields))], arrays[0], pending=pending)


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
    memory = memoryview(message)
    return [None if place is None else np.ndarray(place[0], place[1], memory, place[2]) for place in places], rest


@lru_cache(_HEADS)
def _head(specs: tuple[Spec, ...], rest: Hashable) -> bytes:
    content = pickle.dumps((specs, rest), 5)
    return b"".join([len(content).to_bytes(_LENGTH, "little"), content, _padding(_LENGTH + len(content))])


@lru_cache(_HEADS)
def _layout(head: bytes) -> tuple[list[tuple[tuple[int, ...], np.dtype[Any], int] | None], Any]:
    """Returns the shape, dtype and offset of each array of a message, and the rest of its head."""
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
    """Returns zero bytes that pad `size` bytes to a multiple of the alignment."""
    return bytes(-size % _ALIGNMENT)


@lru_cache(_HEADS)
def _pickled(fields: tuple[InfoField, ...]) -> bytes:
    return pickle.dumps(fields, 5)


@lru_cache(_HEADS)
def _unpickled(fields: bytes) -> tuple[InfoField, ...]:
    return pickle.loads(fields)  # type: ignore[no-any-return]
