"""Log levels and warning filters of the pool's process. Workers apply them, so they make no useless records."""

from __future__ import annotations

import logging
import warnings
from dataclasses import dataclass
from typing import Any, TypeAlias

WarningFilter: TypeAlias = "tuple[Any, str, tuple[str, str], str, int]"
"""An entry of `warnings.filters` that can be sent: action, message, category, module and line number.

It has the module and the qualified name of the category, because a worker may not have imported the category.
"""


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
        entries: list[Any] = list(warnings.filters)
        return cls(
            root_level=logging.root.level,
            levels={logger.name: logger.level for logger in loggers() if logger.level != logging.NOTSET},
            disabled=logging.root.manager.disable,
            filters=tuple(
                (action, _pattern(message), (category.__module__, category.__qualname__), _pattern(module), lineno)
                for action, message, category, module, lineno in entries
            ),
        )

    def apply(self) -> None:
        """Applies the levels and filters to this process."""
        logging.root.setLevel(self.root_level)
        for name, level in self.levels.items():
            logging.getLogger(name).setLevel(level)
        logging.disable(self.disabled)
        warnings.resetwarnings()
        for action, message, (category_module, name), module, lineno in self.filters:
            # The filter "error" must not raise in an env, but only in the pool's process, which issues the warning
            # again.
            kind: Any = "default" if action == "error" else action
            named: Any = _Named(name, (Warning,), {"__module__": category_module})
            warnings.filterwarnings(kind, message, named, module, lineno, append=True)


def loggers() -> list[logging.Logger]:
    """Returns all loggers but the root."""
    return [logger for logger in list(logging.root.manager.loggerDict.values()) if isinstance(logger, logging.Logger)]


def _pattern(regex: Any) -> str:
    pattern: str = getattr(regex, "pattern", regex)  # the patterns of Python's own filters may be strings
    return pattern or ""


class _Named(type):
    """A warning category of which only the name is known. All classes with a base of this name are its subclasses."""

    def __subclasscheck__(cls, other: type) -> bool:
        wanted = cls.__module__, cls.__name__
        return any((base.__module__, base.__qualname__) == wanted for base in other.__mro__)
