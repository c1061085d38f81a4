"""Keywords that a constructor does not know are refused with the name of the one that was meant."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


def check_keywords(what: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise ``TypeError`` for the first keyword that is not known.

    Args:
        what: was called, as its caller writes it.
        given: the keywords.
        known: those that there are.
    """
    names = list(known)
    for keyword in given:
        if keyword not in names:
            raise TypeError(f"{what}() got an unexpected keyword argument {keyword!r}{did_you_mean(keyword, names)}")


def did_you_mean(keyword: str, known: Iterable[str]) -> str:
    """What to add to an error about a keyword: the known one that is spelt alike, if there is one."""
    alike = difflib.get_close_matches(keyword, list(known), n=1)
    return f"; did you mean {alike[0]}=?" if alike else ""


def names_keywords(cls: type[T]) -> type[T]:
    """A decorator of classes: given a keyword that it does not know, the constructor says which was meant."""
    constructor: Callable[..., None] = cls.__init__
    parameters = inspect.signature(constructor).parameters.values()
    known = [parameter.name for parameter in parameters if parameter.kind in _BY_KEYWORD][1:]  # without self

    @functools.wraps(constructor)
    def checking(self: Any, *args: Any, **kwargs: Any) -> None:
        check_keywords(cls.__name__, kwargs, known)
        constructor(self, *args, **kwargs)

    cls.__init__ = checking  # type: ignore[method-assign]
    return cls


_BY_KEYWORD = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
