"""The wire format of log records and warnings: each is one pickle, sent as one datagram."""

from __future__ import annotations

import logging
import pickle
import sys
from contextlib import suppress
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from remuda._wire.exceptions import text_of

MAX_BYTES = 60_000  # the most bytes of a datagram
LOST = "_remuda_lost"  # the attribute of a record: the number of datagrams that were announced and then dropped
_MAX_TEXT = 6_000  # characters that stay of a long text: a datagram has room for two such texts, at 4 bytes a character
_MAX_NAME = 200  # characters that stay of names and paths, which are shorter in practice
_CUT = " [cut: it was too big for one record]"
_ORDINARY = {*vars(logging.makeLogRecord({})), "worker", "env"}  # the attributes that `extra=` did not give


def dump_record(record: logging.LogRecord, worker: int, env: int | None) -> bytes:
    """Returns the datagram for a log record, with texts in place of its arguments and its exception.

    A value that cannot be pickled is replaced by its `repr`. Raises the exceptions of formatting the record.
    """
    sent: dict[str, Any] = {**vars(record), "args": (), "exc_info": None, "worker": worker, "env": env}
    sent["msg"] = record.getMessage()
    if record.exc_info and not record.exc_text:
        sent["exc_text"] = logging.Formatter().formatException(record.exc_info)
    del sent["relativeCreated"]  # it counts from the start of this process: the receiver counts from its own
    try:
        datagram = pickle.dumps(sent)
    except Exception:
        datagram = pickle.dumps({name: _portable(value) for name, value in sent.items()})
    return datagram if len(datagram) <= MAX_BYTES else pickle.dumps(_cut(sent))


def _portable(value: Any) -> Any:
    try:
        pickle.dumps(value)
    except Exception:
        return text_of(value, repr)
    return value


def _cut(sent: dict[str, Any]) -> dict[str, Any]:
    """Shortens a record: drops what `extra=` gave, and keeps the start of the message and the end of the traceback."""
    short = {
        name: value[:_MAX_NAME] if isinstance(value, str) else value
        for name, value in sent.items()
        if name in _ORDINARY
    }
    return {**short, "msg": sent["msg"][:_MAX_TEXT] + _CUT, "exc_text": (sent["exc_text"] or "")[-_MAX_TEXT:] or None}


@dataclass(frozen=True)
class SentWarning:
    """A warning, and its place in the source.

    Attributes:
        classes: Module and qualified name of its class and of the bases of the class, the nearest first.
        text: The result of its `str`.
    """

    classes: list[tuple[str, str]]
    text: str
    filename: str
    lineno: int
    module: str
    worker: int
    env: int | None

    def to_warning(self) -> Warning:
        """Returns a warning of the sent class, or of its nearest base that is imported here and takes the text."""
        text = self.text
        for module, name in self.classes:
            with suppress(Exception):  # the class is not imported here, or takes other arguments
                warning: Warning = attrgetter(name)(sys.modules[module])(text)
                if str(warning) == text:
                    return warning
            text = f"{self.classes[0][1].rpartition('.')[2]}: {self.text}"
        return UserWarning(text)


def dump_warning(warning: Warning, filename: str, lineno: int, module: str, worker: int, env: int | None) -> bytes:
    """Returns the datagram for a warning."""
    classes = [(kind.__module__, kind.__qualname__) for kind in type(warning).__mro__]
    text = text_of(warning)
    if len(text) > 2 * _MAX_TEXT:
        text = text[: 2 * _MAX_TEXT] + _CUT
    return pickle.dumps(SentWarning(classes, text, str(filename), int(lineno), str(module), worker, env))
