"""Keywords that a constructor does not know are refused with the name of the one that was meant."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
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


def names_keywords(
    also: Iterable[str] = (), refused: Mapping[str, str] = MappingProxyType({})
) -> Callable[[type[T]], type[T]]:
    """A decorator of classes: given a keyword that it does not know, the constructor says which was meant.

    Args:
        also: keywords that it takes as ``**options``, beside those that its signature names.
        refused: of these the ones that it does not take after all, and what to do instead.
    """

    def naming(cls: type[T]) -> type[T]:
        constructor: Callable[..., None] = cls.__init__
        parameters = inspect.signature(constructor).parameters.values()
        own = [parameter.name for parameter in parameters if parameter.kind in _BY_KEYWORD][1:]  # without self
        taken = [*own, *(name for name in also if name not in refused)]

        @functools.wraps(constructor)
        def checking(self: Any, *args: Any, **kwargs: Any) -> None:
            check_not_refused(cls.__name__, kwargs, refused)
            check_keywords(cls.__name__, kwargs, taken)
            constructor(self, *args, **kwargs)

        cls.__init__ = checking  # type: ignore[method-assign]
        return cls

    return naming


def check_not_refused(what: str, given: Iterable[str], refused: Mapping[str, str]) -> None:
    """Raise ``TypeError`` with the reason for the first keyword that is refused; arguments as :func:`check_keywords`'s.

    Args:
        what: was called, as its caller writes it.
        given: the keywords.
        refused: those that are, and what to do instead.
    """
    for keyword in given:
        if keyword in refused:
            raise TypeError(f"{what}() takes no {keyword}=: {refused[keyword]}")


_BY_KEYWORD = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
