"""Pickles functions and classes by value, as cloudpickle does, but keeps the file name of their code."""

from __future__ import annotations

import io
from collections import ChainMap
from collections.abc import Callable
from pickle import PickleBuffer
from types import CodeType
from typing import Any, ClassVar

import cloudpickle


def dumps(value: Any, protocol: int = 5, buffer_callback: Callable[[PickleBuffer], object] | None = None) -> bytes:
    """Pickles like `cloudpickle.dumps`."""
    file = io.BytesIO()
    Pickler(file, protocol, buffer_callback).dump(value)
    return file.getvalue()


def _reduce_code(code: CodeType) -> tuple[Callable[..., CodeType], tuple[Any, ...]]:
    """Keeps the file name of code, which cloudpickle drops since 3.1.3, so that tracebacks show source lines."""
    _, arguments = cloudpickle.Pickler.dispatch_table[CodeType](code)
    return _code_of_file, (code.co_filename, *arguments)


def _code_of_file(filename: str, *arguments: Any) -> CodeType:
    return CodeType(*arguments).replace(co_filename=filename)


class Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # it has no types
    """Pickles like cloudpickle, but keeps the file name of code objects."""

    dispatch_table: ClassVar[Any] = ChainMap({CodeType: _reduce_code}, cloudpickle.Pickler.dispatch_table)

    def __init__(
        self, file: io.BytesIO, protocol: int = 5, buffer_callback: Callable[[PickleBuffer], object] | None = None
    ) -> None:
        super().__init__(file, protocol=protocol, buffer_callback=buffer_callback)
