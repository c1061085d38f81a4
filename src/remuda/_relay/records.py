"""The wire format of log records and warnings: one JSON datagram each.

A datagram is JSON: texts, numbers, and lists and dicts of them. Whoever has got hold of the socket can make the pool's
process print something, and no more: nothing that comes from there is unpickled, imported or called.
"""

from __future__ import annotations

import json
import logging
import sys
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeVar

import numpy as np

from remuda._wire.failures import text_of

MAX_BYTES = 60_000  # of a datagram
_MAX_TEXT = 20_000  # bytes, in JSON, of a text that had to be cut; a datagram has room for two
_MAX_SHORT = 1_000  # the same of names and paths, which nobody makes that long in earnest
_MAX_DEPTH = 4  # of lists and dicts in each other
_MAX_INT = 1 << 63  # what is larger travels as text: making a number of endless digits takes endless time

_CUT = " [cut: it was too big for one record]"

# What every log record has, and of which type. The rest was given as `extra=`.
_TEXTS = ("name", "levelname", "pathname", "filename", "module", "funcName", "threadName", "processName", "taskName")
_NUMBERS = ("levelno", "lineno", "created", "msecs", "thread", "process")
_OTHER_TEXTS = ("exc_text", "stack_info")
_ORDINARY = frozenset({*_TEXTS, *_NUMBERS, *_OTHER_TEXTS})
# What is told in another way, or made anew there; and what would hide a record's methods.
_NEVER_TOLD = frozenset({"msg", "args", "exc_info", "relativeCreated", "message", "asctime", *dir(logging.LogRecord)})
_NOT_COPIED = _NEVER_TOLD | {"exc_text"}


class NoRecordError(ValueError):
    """What came is nothing that a worker says: somebody else has written to our socket."""


@dataclass(frozen=True)
class Logged:
    """A log record. `message`: with its arguments in it; `attributes`: all else, as plain values."""

    worker: int
    env: int | None
    message: str
    attributes: dict[str, Any]

    def to_record(self) -> logging.LogRecord:
        record = logging.makeLogRecord({})
        record.relativeCreated += (self.attributes["created"] - record.created) * 1000  # to the start of this process
        vars(record).update(self.attributes, msg=self.message, args=(), worker=self.worker, env=self.env)
        return record

    def check(self) -> None:
        """Raises NoRecordError when it could not be handled like a record that was made here."""
        _expect(type(self.message) is str and type(self.attributes) is dict and _is_plain(self.attributes))
        _expect(_NEVER_TOLD.isdisjoint(self.attributes))
        known = self.attributes.get
        _expect(all(isinstance(known(name), (str, type(None))) for name in (*_TEXTS, *_OTHER_TEXTS)))
        _expect(all(isinstance(known(name), (int, float, type(None))) for name in _NUMBERS))
        _expect(known("name") is not None and known("created") is not None and type(known("levelno")) is int)


@dataclass(frozen=True)
class Warned:
    """A warning, and the place it is about.

    Attributes:
        categories: Module and qualified name of its class and of the bases of that, the nearest first.
        text: What `str` makes of it.
    """

    worker: int
    env: int | None
    categories: list[list[str]]
    text: str
    filename: str
    lineno: int
    module: str

    def to_warning(self) -> Warning:
        """A warning of its class, where that is known here and says the same; else of the nearest base that does."""
        for place, (module, name) in enumerate(self.categories):
            text = self.text if place == 0 else f"{self.categories[0][1].rpartition('.')[2]}: {self.text}"
            if (category := _known_category(module, name)) and (warning := _make(category, text)):
                return warning
        return UserWarning(self.text)

    def check(self) -> None:
        """Raises NoRecordError when no warning of ours looks like that."""
        _expect(all(type(value) is str for value in (self.text, self.filename, self.module)))
        _expect(type(self.lineno) is int and type(self.categories) is list)
        for category in self.categories:
            _expect(type(category) is list and [type(part) for part in category] == [str, str])


_KINDS: dict[str, type[Logged | Warned]] = {"logged": Logged, "warned": Warned}


def load(datagram: bytes) -> Logged | Warned:
    """Raises NoRecordError for what no worker of ours would send."""
    try:
        told = json.loads(datagram.decode(errors="surrogatepass"))
        said = _KINDS[told.pop("kind")](**told)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise NoRecordError(f"expected a log record or a warning, got {datagram[:40]!r}") from None
    _expect(type(said.worker) is int and said.worker >= 0)
    _expect(said.env is None or (type(said.env) is int and said.env >= 0))
    said.check()
    return said


def _dump(said: Logged | Warned) -> bytes:
    return _json({"kind": type(said).__name__.lower(), **vars(said)})


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="surrogatepass")


def _expect(good: bool) -> None:
    if not good:
        raise NoRecordError("expected a log record or a warning as a worker sends it, got another")


# -- log records -----------------------------------------------------------------------------------------


def dump_record(record: logging.LogRecord, worker: int, env: int | None) -> bytes:
    """Raises what formatting the record raises."""
    attributes = {str(name): plain(value) for name, value in vars(record).items() if name not in _NOT_COPIED}
    attributes["exc_text"] = record.exc_text or _traceback(record)
    said = Logged(worker, env, str.__str__(type(record).getMessage(record)), attributes)
    datagram = _dump(said)
    return datagram if len(datagram) <= MAX_BYTES else _dump(_cut_record(said))


def _traceback(record: logging.LogRecord) -> str | None:
    return logging.Formatter().formatException(record.exc_info) if record.exc_info else None


def _cut_record(said: Logged) -> Logged:
    """Without what was given as `extra=`. Messages tell most at their start, tracebacks at their end."""
    ordinary = {name: _shorten(value) for name, value in said.attributes.items() if name in _ORDINARY}
    if (text := said.attributes["exc_text"]) is not None:
        ordinary["exc_text"] = _cut(text, from_end=True)
    return Logged(said.worker, said.env, _cut(said.message) + _CUT, ordinary)


def _cut(text: str, limit: int = _MAX_TEXT, *, from_end: bool = False) -> str:
    while (size := len(_json(text))) > limit:
        kept = min(len(text) - 1, len(text) * limit // size)
        text = text[len(text) - kept :] if from_end else text[:kept]
    return text


def _shorten(value: Any) -> Any:
    return _cut(value, _MAX_SHORT) if isinstance(value, str) else value if isinstance(value, (int, float)) else None


# -- warnings --------------------------------------------------------------------------------------------


def dump_warning(warning: Warning, filename: str, lineno: int, module: str, worker: int, env: int | None) -> bytes:
    bases = [kind for kind in type(warning).__mro__ if issubclass(kind, Warning)]
    categories = [[kind.__module__, kind.__qualname__] for kind in bases]
    said = Warned(worker, env, categories, text_of(warning), str(filename), int(lineno), str(module))
    datagram = _dump(said)
    if len(datagram) <= MAX_BYTES:
        return datagram
    names = [[_shorten(part) for part in category] for category in categories[:8]]
    short = {"categories": names, "text": _cut(said.text) + _CUT}
    return _dump(Warned(**{**vars(said), "filename": _shorten(said.filename), "module": _shorten(module), **short}))


def _known_category(module: str, name: str) -> type[Warning] | None:
    """The class of that name, where it has been imported already. Nothing is run to find it."""
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        # Not `getattr`: modules may import others when they are asked for what they do not have yet.
        found = vars(found).get(part) if isinstance(found, (ModuleType, type)) else None
    return found if isinstance(found, type) and issubclass(found, Warning) else None


_W = TypeVar("_W", bound=Warning)


def _make(category: type[_W], text: str) -> _W | None:
    """Past its constructor, which may want anything. None when it would say something else."""
    try:
        warning = Warning.__new__(category, text)
    except TypeError:  # it is made in another base's way
        return None
    return warning if text_of(warning) == text else None


# -- values ----------------------------------------------------------------------------------------------


def plain(value: Any, depth: int = _MAX_DEPTH) -> Any:
    """The value where it is plain; else its `repr`."""
    kind = type(value)
    if kind in _PLAIN or (kind is int and abs(value) < _MAX_INT):
        return value
    if issubclass(kind, np.generic):
        value = value.item()
        kind = type(value)
    for base, make in _SCALARS:
        if issubclass(kind, base):
            scalar = make(value)
            return scalar if base is not int or abs(scalar) < _MAX_INT else text_of(scalar, hex)
    if kind is list and depth > 0:
        return [plain(item, depth - 1) for item in value]
    if kind is dict and depth > 0 and all(type(key) is str for key in value):
        return {key: plain(item, depth - 1) for key, item in value.items()}
    return text_of(value, repr)


_PLAIN = frozenset({str, float, bool, type(None)})
# Subclasses of these, like enums, become what they are subclasses of.
_SCALARS: Any = ((str, str.__str__), (int, int.__index__), (float, float.__float__))


def _is_plain(value: Any, depth: int = 1 + _MAX_DEPTH) -> bool:
    """Of what came as JSON, which has no other types."""
    kind = type(value)
    if kind in _PLAIN:
        return True
    if kind in (list, dict):
        items = value.values() if isinstance(value, dict) else value
        return depth > 0 and all(_is_plain(item, depth - 1) for item in items)
    return bool(abs(value) < _MAX_INT)
