"""Python objects <-> lists of buffers, arrays out of band (pickle protocol 5)."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any, TypeAlias

import cloudpickle

Parts: TypeAlias = Sequence[Any]  # bytes-like; the first is the pickle, the rest its buffers


def dump(value: Any) -> Parts:
    """Pickles `value`; the buffers of its arrays are not copied, so use them before they change."""
    buffers: list[pickle.PickleBuffer] = []
    try:
        head = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    except Exception:  # a class or function of __main__, a lambda: cloudpickle can, or says why not
        buffers.clear()
        head = cloudpickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    return [head, *(buffer.raw() for buffer in buffers)]


def load(parts: Parts) -> Any:
    return pickle.loads(parts[0], buffers=parts[1:])
