"""Log levels and warning filters of the pool's process, applied in workers so that they make no record in vain."""

from __future__ import annotations

import logging
import pickle
import sys
import warnings
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import cloudpickle

Action: TypeAlias = Literal["default", "error", "ignore", "always", "module", "once"]


@dataclass(frozen=True)
class WarningFilter:
    """An entry of `warnings.filters`, in a form that can travel."""

    action: Action
    message: str
    category: bytes
    category_module: str
    module: str
    lineno: int


@dataclass(frozen=True)
class Verbosity:
    """Levels of loggers and filters of warnings, as they are in one process.

    Attributes:
        root_level: The root logger's level.
        levels: Those that were set explicitly, by logger.
        disabled: What `logging.disable` was told.
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
            with suppress(Exception):  # a category that is not known here: nobody can warn of it
                _add(packed)


def loggers() -> list[logging.Logger]:
    """All loggers there are, but for the root."""
    return [logger for logger in list(logging.root.manager.loggerDict.values()) if isinstance(logger, logging.Logger)]


def _pack(entry: Any) -> WarningFilter | None:
    action, message, category, module, lineno = entry
    try:
        pickled = cloudpickle.dumps(category)
    except Exception:
        return None
    return WarningFilter(action, _pattern(message), pickled, category.__module__, _pattern(module), lineno)


def _pattern(regex: Any) -> str:
    pattern: str = getattr(regex, "pattern", regex)  # some of Python's own are strings
    return pattern or ""


def _add(packed: WarningFilter) -> None:
    if packed.action == "ignore" and packed.category_module not in sys.modules:
        return  # no reason to import it: what is warned of all the same is ignored by the pool's process
    category: type[Warning] = pickle.loads(packed.category)
    # A filter of the pool must not raise in an env; whether to is decided where the warning is issued again.
    action: Action = "default" if packed.action == "error" else packed.action
    warnings.filterwarnings(action, packed.message, category, packed.module, packed.lineno, append=True)
