"""Log levels and warning filters of the pool's process. Workers apply them, so they make no useless records."""

from __future__ import annotations

import logging
import warnings
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

Action: TypeAlias = Literal["default", "error", "ignore", "always", "module", "once"]


@dataclass(frozen=True)
class WarningFilter:
    """An entry of `warnings.filters`, in a form that can be sent. It matches categories by their names, because a
    worker may not have imported them."""

    action: Action
    message: str
    category: tuple[str, str]  # module and qualified name
    module: str
    lineno: int

    @classmethod
    def of(cls, entry: Any) -> WarningFilter:
        action, message, category, module, lineno = entry
        return cls(action, _pattern(message), (category.__module__, category.__qualname__), _pattern(module), lineno)

    def apply(self) -> None:
        """Adds the filter after the others of this process."""
        # The filter "error" must not raise in an env, but only in the pool's process, which issues the warning again.
        action: Action = "default" if self.action == "error" else self.action
        named: Any = _Named(self.category[1], (Warning,), {"__module__": self.category[0]})
        warnings.filterwarnings(action, self.message, named, self.module, self.lineno, append=True)


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
            filters=tuple(map(WarningFilter.of, warnings.filters)),
        )

    def apply(self) -> None:
        """Applies the levels and filters to this process."""
        logging.root.setLevel(self.root_level)
        for name, level in self.levels.items():
            logging.getLogger(name).setLevel(level)
        logging.disable(self.disabled)
        warnings.resetwarnings()
        for one in self.filters:
            one.apply()


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
