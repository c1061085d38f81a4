"""The wire format of log records and warnings: one JSON datagram each.

A datagram is JSON: texts, numbers, and lists and dicts of them. Other code that writes to the socket can only make
the pool's process print something, because nothing from the socket is unpickled, imported or called.
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

MAX_BYTES = 60_000  # the most bytes of a datagram.
_MAX_TEXT = 20_000  # bytes in JSON of a shortened text; a datagram has room for two.
_MAX_SHORT = 1_000  # bytes of names and paths, which are shorter in practice.
_MAX_DEPTH = 4  # the most levels of nested lists and dicts.
_MAX_INT = 1 << 63  # larger numbers are sent as text, because parsing many digits is slow

_CUT = " [cut: it was too big for one record]"

# The attributes of every log record, by type. The others were given as `extra=`.
_TEXTS = ("name", "levelname", "pathname", "filename", "module", "funcName", "threadName", "processName", "taskName")
_NUMBERS = ("levelno", "lineno", "created", "msecs", "thread", "process")
_OTHER_TEXTS = ("exc_text", "stack_info")
_ORDINARY = frozenset({*_TEXTS, *_NUMBERS, *_OTHER_TEXTS})
# Attributes that are sent in another form, that the receiver makes, or that would hide a record's methods.
_NEVER_SENT = frozenset({"msg", "args", "exc_info", "relativeCreated", "message", "asctime", *dir(logging.LogRecord)})
_NOT_COPIED = _NEVER_SENT | {"exc_text"}


class NoRecordError(ValueError):
    """The datagram is not from a worker: other code has written to the socket."""


@dataclass(frozen=True)
class Logged:
    """A log record. `message`: the formatted message; `attributes`: the record's other attributes, as plain values."""

    worker: int
    env: int | None
    message: str
    attributes: dict[str, Any]

    def to_record(self) -> logging.LogRecord:
        record = logging.makeLogRecord({})
        # `relativeCreated` counts from the start of this process, and not of the worker.
        record.relativeCreated += (self.attributes["created"] - record.created) * 1000
        vars(record).update(self.attributes, msg=self.message, args=(), worker=self.worker, env=self.env)
        return record

    def check(self) -> None:
        """Raises NoRecordError if logging in this process could not handle the record's attributes."""
        _expect(type(self.message) is str and type(self.attributes) is dict and _is_plain(self.attributes))
        _expect(_NEVER_SENT.isdisjoint(self.attributes))
        known = self.attributes.get
        _expect(all(isinstance(known(name), (str, type(None))) for name in (*_TEXTS, *_OTHER_TEXTS)))
        _expect(all(isinstance(known(name), (int, float, type(None))) for name in _NUMBERS))
        _expect(known("name") is not None and known("created") is not None and type(known("levelno")) is int)


@dataclass(frozen=True)
class Warned:
    """A warning, and its place in the source.

    Attributes:
        categories: Module and qualified name of its class and of the bases of the class, the nearest first.
        text: The result of its `str`.
    """

    worker: int
    env: int | None
    categories: list[list[str]]
    text: str
    filename: str
    lineno: int
    module: str

    def to_warning(self) -> Warning:
        """Returns a warning of the sent class, or of its nearest base that is imported here and accepts the text."""
        for place, (module, name) in enumerate(self.categories):
            text = self.text if place == 0 else f"{self.categories[0][1].rpartition('.')[2]}: {self.text}"
            if (category := _known_category(module, name)) and (warning := _make(category, text)):
                return warning
        return UserWarning(self.text)

    def check(self) -> None:
        """Raises NoRecordError if no worker can have sent this warning."""
        _expect(all(type(value) is str for value in (self.text, self.filename, self.module)))
        _expect(type(self.lineno) is int and type(self.categories) is list)
        for category in self.categories:
            _expect(type(category) is list and [type(part) for part in category] == [str, str])


_KINDS: dict[str, type[Logged | Warned]] = {"logged": Logged, "warned": Warned}


def load(datagram: bytes) -> Logged | Warned:
    """Loads a datagram. Raises NoRecordError if no worker can have sent it."""
    try:
        fields = json.loads(datagram.decode(errors="surrogatepass"))
        record = _KINDS[fields.pop("kind")](**fields)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise NoRecordError(f"expected a log record or a warning, got {datagram[:40]!r}") from None
    _expect(type(record.worker) is int and record.worker >= 0)
    _expect(record.env is None or (type(record.env) is int and record.env >= 0))
    record.check()
    return record


def _dump(record: Logged | Warned) -> bytes:
    return _json({"kind": type(record).__name__.lower(), **vars(record)})


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="surrogatepass")


def _expect(good: bool) -> None:
    if not good:
        raise NoRecordError("expected a log record or a warning as a worker sends it, got another")


# -- log records -----------------------------------------------------------------------------------------


def dump_record(record: logging.LogRecord, worker: int, env: int | None) -> bytes:
    """Returns the datagram for a log record. Raises the exceptions of formatting the record."""
    attributes = {str(name): plain(value) for name, value in vars(record).items() if name not in _NOT_COPIED}
    attributes["exc_text"] = record.exc_text or _traceback(record)
    sent = Logged(worker, env, str.__str__(type(record).getMessage(record)), attributes)
    datagram = _dump(sent)
    return datagram if len(datagram) <= MAX_BYTES else _dump(_cut_record(sent))


def _traceback(record: logging.LogRecord) -> str | None:
    return logging.Formatter().formatException(record.exc_info) if record.exc_info else None


def _cut_record(sent: Logged) -> Logged:
    """Shortens a record: drops `extra=`, and keeps the start of the message and the end of the traceback."""
    ordinary = {name: _shorten(value) for name, value in sent.attributes.items() if name in _ORDINARY}
    if (text := sent.attributes["exc_text"]) is not None:
        ordinary["exc_text"] = _cut(text, from_end=True)
    return Logged(sent.worker, sent.env, _cut(sent.message) + _CUT, ordinary)


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
    sent = Warned(worker, env, categories, text_of(warning), str(filename), int(lineno), str(module))
    datagram = _dump(sent)
    if len(datagram) <= MAX_BYTES:
        return datagram
    names = [[_shorten(part) for part in category] for category in categories[:8]]
    short = {"categories": names, "text": _cut(sent.text) + _CUT}
    return _dump(Warned(**{**vars(sent), "filename": _shorten(sent.filename), "module": _shorten(module), **short}))


def _known_category(module: str, name: str) -> type[Warning] | None:
    """Returns the warning class of that name if it has been imported, else None. The search runs no code."""
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        # `getattr` is not used, because a module's `__getattr__` may import other modules.
        found = vars(found).get(part) if isinstance(found, (ModuleType, type)) else None
    return found if isinstance(found, type) and issubclass(found, Warning) else None


_W = TypeVar("_W", bound=Warning)


def _make(category: type[_W], text: str) -> _W | None:
    """Makes a warning without calling its constructor. Returns None if the warning would have another text."""
    try:
        warning = Warning.__new__(category, text)
    except TypeError:  # a base class besides Warning has its own `__new__`
        return None
    return warning if text_of(warning) == text else None


# -- values ----------------------------------------------------------------------------------------------


def plain(value: Any, depth: int = _MAX_DEPTH) -> Any:
    """Returns a value as JSON can hold it: plain values unchanged, others as text, mostly their `repr`."""
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
# Instances of subclasses of these types, such as enums, are converted to these types.
_SCALARS: Any = ((str, str.__str__), (int, int.__index__), (float, float.__float__))


def _is_plain(value: Any, depth: int = 1 + _MAX_DEPTH) -> bool:
    """Whether a value from JSON is plain: without deep nesting and without huge numbers."""
    kind = type(value)
    if kind in _PLAIN:
        return True
    if kind in (list, dict):
        items = value.values() if isinstance(value, dict) else value
        return depth > 0 and all(_is_plain(item, depth - 1) for item in items)
    return bool(abs(value) < _MAX_INT)
