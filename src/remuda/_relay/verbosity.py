"""Log levels and warning filters of the pool's process. Workers apply them, so they make no useless records."""

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
    """An entry of `warnings.filters`, in a form that can be sent."""

    action: Action
    message: str
    category: bytes
    category_module: str
    category_name: str
    module: str
    lineno: int


@dataclass(frozen=True)
class Verbosity:
    """The levels of loggers and the filters of warnings of a process.

    Attributes:
        root_level: The root logger's level.
        levels: The explicitly set levels, by logger.
        disabled: The level of `logging.disable`.
        filters: The filters of warnings, in the order in which they apply.
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
        """Applies the levels and filters to this process."""
        logging.root.setLevel(self.root_level)
        for name, level in self.levels.items():
            logging.getLogger(name).setLevel(level)
        logging.disable(self.disabled)
        warnings.resetwarnings()
        for packed in self.filters:
            with suppress(Exception):  # if this process cannot find a category, it issues no such warnings
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
    pattern: str = getattr(regex, "pattern", regex)  # the patterns of Python's own filters may be strings
    return pattern or ""


def _add(packed: WarningFilter) -> None:
    # The filter "error" must not raise in an env, but only in the pool's process, which issues the warning again.
    action: Action = "default" if packed.action == "error" else packed.action
    warnings.filterwarnings(action, packed.message, _category(packed), packed.module, packed.lineno, append=True)


def _category(packed: WarningFilter) -> type[Warning]:
    """Returns the filter's category. If its module is not loaded, returns a stand-in, because imports may be slow."""
    if packed.category_module in sys.modules:
        category: type[Warning] = pickle.loads(packed.category)
        return category
    named: Any = _Named(packed.category_name, (Warning,), {"__module__": packed.category_module})
    return named  # type: ignore[no-any-return]


class _Named(type):
    """A warning category of which only the name is known. All classes with a base of this name are its subclasses."""

    def __subclasscheck__(cls, other: type) -> bool:
        wanted = cls.__module__, cls.__name__
        return any((base.__module__, base.__qualname__) == wanted for base in other.__mro__)
