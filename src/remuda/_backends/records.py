"""What a worker logs and warns, in the form in which it travels to the pool's process: one datagram each.

Only plain values are in a datagram; whatever else a record holds is pickled for itself, with its text beside it, so
that what cannot be unpickled on the other side costs no more than itself.
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cloudpickle

MAX_BYTES = 60_000  # of a datagram
_MAX_TEXT = 20_000  # bytes of a text that had to be cut; a datagram has room for two

_CUT = " [cut: it was too big for one record]"

_PLAIN = frozenset({str, int, float, bool, bytes, type(None)})
# What every log record has. The rest was given as `extra=`.
_ORDINARY = frozenset(vars(logging.makeLogRecord({})))
_OWN_WAY = frozenset({"msg", "args", "exc_info", "exc_text", "relativeCreated"})


@dataclass(frozen=True)
class Carried:
    """A value that is not plain."""

    pickled: bytes | None
    text: str

    def unpack(self) -> Any:
        """The value, or its text when it cannot be had here."""
        if self.pickled is None:
            return self.text
        try:
            return pickle.loads(self.pickled)
        except (Exception, SystemExit, GeneratorExit):  # of a class that is not known here
            return self.text


@dataclass(frozen=True)
class Logged:
    """A log record. `message`: its format and arguments."""

    worker: int
    env: int | None
    message: Any
    attributes: dict[str, Any]

    def to_record(self) -> logging.LogRecord:
        record = logging.makeLogRecord({})
        record.relativeCreated += (self.attributes["created"] - record.created) * 1000  # to the start of this process
        vars(record).update({name: _unpack(value) for name, value in self.attributes.items()})
        message = _unpack(self.message)
        record.msg, record.args = (message, ()) if isinstance(message, str) else message
        vars(record).update(worker=self.worker, env=self.env)
        return record


@dataclass(frozen=True)
class Warned:
    """A warning, and the place it is about."""

    worker: int
    env: int | None
    category: str
    message: Carried
    filename: str
    lineno: int
    module: str

    def to_warning(self) -> Warning:
        warning = self.message.unpack()
        return warning if isinstance(warning, Warning) else UserWarning(f"{self.category}: {warning}")


def load(datagram: bytes) -> Logged | Warned:
    said: Logged | Warned = pickle.loads(datagram)
    return said


# -- log records -----------------------------------------------------------------------------------------


def dump_record(record: logging.LogRecord, worker: int, env: int | None) -> bytes:
    """Raises what formatting the record raises, where its arguments have to be formatted here."""
    attributes = {name: _carry(value) for name, value in vars(record).items() if name not in _OWN_WAY}
    attributes["exc_text"] = record.exc_text or _traceback(record)
    datagram = pickle.dumps(Logged(worker, env, _message(record), attributes), protocol=5)
    return datagram if len(datagram) <= MAX_BYTES else _dump_cut(record, attributes, worker, env)


def _message(record: logging.LogRecord) -> Any:
    args = record.args or ()
    if isinstance(record.msg, str) and isinstance(args, tuple) and all(type(arg) in _PLAIN for arg in args):
        return record.msg, args
    return Carried(_pickle((record.msg, args)), record.getMessage())


def _traceback(record: logging.LogRecord) -> str | None:
    return logging.Formatter().formatException(record.exc_info) if record.exc_info else None


def _dump_cut(record: logging.LogRecord, attributes: dict[str, Any], worker: int, env: int | None) -> bytes:
    """Without what was given as `extra=`. Messages tell most at their start, tracebacks at their end."""
    ordinary = {name: _shorten(value) for name, value in attributes.items() if name in _ORDINARY}
    if (text := attributes["exc_text"]) is not None:
        ordinary["exc_text"] = _cut(text, slice(-_MAX_TEXT, None))
    message = _cut(record.getMessage()) + _CUT
    return pickle.dumps(Logged(worker, env, (message, ()), ordinary), protocol=5)


def _cut(text: str, part: slice = slice(_MAX_TEXT)) -> str:
    return text.encode(errors="replace")[part].decode(errors="ignore")


def _shorten(value: Any) -> Any:
    """Names and paths, which nobody makes that long in earnest."""
    return value[:500] if isinstance(value, str) else value if type(value) in _PLAIN else None


# -- warnings --------------------------------------------------------------------------------------------


def dump_warning(warning: Warning, filename: str, lineno: int, module: str, worker: int, env: int | None) -> bytes:
    """One that is too big keeps its category only where that is made of a text."""

    def dump(carried: Carried) -> bytes:
        said = Warned(worker, env, type(warning).__name__, carried, filename, lineno, module)
        return pickle.dumps(said, protocol=5)

    text = _text(str, warning)
    datagram = dump(Carried(_pickle(warning), text))
    if len(datagram) > MAX_BYTES:
        text = _cut(text) + _CUT
        datagram = dump(Carried(_pickle_short(type(warning), text), text))
    return datagram


def _pickle_short(category: type[Warning], text: str) -> bytes | None:
    try:
        pickled = _pickle(category(text))
    except Exception:
        return None
    return pickled if pickled is not None and len(pickled) <= MAX_BYTES // 2 else None


# -- values ----------------------------------------------------------------------------------------------


def _carry(value: Any) -> Any:
    return value if type(value) in _PLAIN else Carried(_pickle(value), _text(repr, value))


def _unpack(value: Any) -> Any:
    return value.unpack() if isinstance(value, Carried) else value


def _pickle(value: Any) -> bytes | None:
    """None for what cannot be pickled."""
    for dumps in (pickle.dumps, cloudpickle.dumps):  # the second also for classes of the pool's `__main__`
        try:
            pickled: bytes = dumps(value, protocol=5)
        except Exception:
            continue
        return pickled
    return None


def _text(make: Callable[[Any], str], value: Any) -> str:
    try:
        return make(value)
    except Exception:
        return f"<{type(value).__qualname__}>"
