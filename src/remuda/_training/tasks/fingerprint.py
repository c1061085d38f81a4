"""Fingerprint: a digest of values that equal values share in every process, unlike their pickles."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Iterable, Mapping
from collections.abc import Set as AnySet
from enum import Enum
from hashlib import sha256
from typing import Any

import numpy as np

from remuda._training.acting import _array


class Fingerprint:
    """Digests numbers, texts, arrays, tensors and containers of these.

    Attributes:
        left_out: The names of the types whose values are not in the digests, because they have no canonical form. Only
            these names are.
    """

    def __init__(self) -> None:
        self.left_out = set[str]()

    def of(self, values: Iterable[Any]) -> str:
        """Returns the digest of a sequence of values as 16 hexadecimal digits."""
        try:
            return _joined("values", map(self._digest, values)).hex()[:16]
        except RecursionError:
            self.left_out.add("a value that contains itself")
            return "none"

    def _digest(self, value: Any) -> bytes:
        kind, parts = type(value).__qualname__, list[bytes]()
        match value:
            case Enum():
                parts = [value.name.encode()]
            case np.generic():
                return self._digest_of_array(value)
            case None | bool() | int() | float() | complex() | str():
                parts = [repr(value).encode()]
            case bytes():
                parts = [value]
            case os.PathLike():
                kind, parts = "path", [os.fsencode(value)]
            case Mapping():
                kind, parts = "dict", sorted(self._digest(key) + self._digest(child) for key, child in value.items())
            case AnySet():
                kind, parts = "set", sorted(map(self._digest, value))
            case list() | tuple() | range():
                parts = list(map(self._digest, value))
            case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
                fields = dataclasses.fields(value)
                parts = [self._digest((field.name, getattr(value, field.name))) for field in fields]
            case _:
                return self._digest_of_array(value)
        return _joined(kind, parts)

    def _digest_of_array(self, value: Any) -> bytes:
        array = _as_array(value)
        if array is None:
            self.left_out.add(type(value).__qualname__)
            return _joined(getattr(value, "__qualname__", type(value).__qualname__), [])
        form = f"{getattr(value, 'dtype', array.dtype)} {array.shape}"
        is_plain = array.dtype.kind in "biufcSUmM"
        return _joined(form, [array.tobytes()] if is_plain else map(self._digest, array.ravel().tolist()))


def _as_array(value: Any) -> np.ndarray[Any, Any] | None:
    """Returns an array or tensor as an array; None for another object."""
    if not hasattr(value, "__array__"):
        return None
    try:
        return np.asarray(_array(value) if "torch" in sys.modules else value)
    except Exception:  # a sparse tensor, for example
        return None


def _joined(kind: str, parts: Iterable[bytes]) -> bytes:
    digest = sha256(kind.encode())
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.digest()
