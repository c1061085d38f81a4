"""Log levels and warning filters of the pool's process, applied in workers so that they make no record in vain."""

from __future__ import annotations

import logging
import pickle
import sys
import warnings
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from remuda._wire import by_value

Action: TypeAlias = Literal["default", "error", "ignore", "always", "module", "once"]


@dataclass(frozen=True)
class WarningFilter:
    """An entry of `warnings.filters`, in a form that can travel."""

    action: Action
    message: str
    category: bytes
    category_module: str
    category_name: str
    module: str
    lineno: int


@dataclass(frozen=True)
class Verbosity:
    """Levels of loggers and filters of warnings, as they are in one process.

    Attributes:
        root_level: The root logger's level.
        levels: Those that were set explicitly, by logger.
        disabled: The level of `logging.disable`.
        filters: In the order in which they are asked.
    """

    root_level: int
    levels: dict[str, int]
    disabled: int
    filters: tuple[WarningFilter, ...]

    @classmethod
    def current(cls) -> Verbosity:
        return cls(
            root_level=logging.root.level,
            levels={logger.name: logger.level for logger in loggers() if logger.level != logging.NOTSET},
            disabled=logging.root.manager.disable,
            filters=tuple(filter(None, map(_pack, warnings.filters))),
        )

    def apply(self) -> None:
        """Makes this process just as verbose."""
        logging.root.setLevel(self.root_level)
        for name, level in self.levels.items():
            logging.getLogger(name).setLevel(level)
        logging.disable(self.disabled)
        warnings.resetwarnings()
        for packed in self.filters:
            with suppress(Exception):  # a category that is not known here has no warnings
                _add(packed)


def loggers() -> list[logging.Logger]:
    """Returns all loggers but the root."""
    return [logger for logger in list(logging.root.manager.loggerDict.values()) if isinstance(logger, logging.Logger)]


def _pack(entry: Any) -> WarningFilter | None:
    action, message, category, module, lineno = entry
    try:
        pickled = by_value.dumps(category)
    except Exception:
        return None
    names = category.__module__, category.__qualname__
    return WarningFilter(action, _pattern(message), pickled, *names, _pattern(module), lineno)


def _pattern(regex: Any) -> str:
    pattern: str = getattr(regex, "pattern", regex)  # some of Python's own are strings
    return pattern or ""


def _add(packed: WarningFilter) -> None:
    # A filter of the pool must not raise in an env; whether to is decided where the warning is issued again.
    action: Action = "default" if packed.action == "error" else packed.action
    warnings.filterwarnings(action, packed.message, _category(packed), packed.module, packed.lineno, append=True)


def _category(packed: WarningFilter) -> type[Warning]:
    """The filter's; where its module is not loaded here, a stand-in, for to import it may take half a second."""
    if packed.category_module in sys.modules:
        category: type[Warning] = pickle.loads(packed.category)
        return category
    named: Any = _Named(packed.category_name, (Warning,), {"__module__": packed.category_module})
    return named  # type: ignore[no-any-return]


class _Named(type):
    """A category that is known by its names alone: what has them, or is derived from what has, belongs to it."""

    def __subclasscheck__(cls, other: type) -> bool:
        wanted = cls.__module__, cls.__name__
        return any((base.__module__, base.__qualname__) == wanted for base in other.__mro__)
