"""Errors for unknown keywords: they name the caller's class, and suggest the most similar keyword, or another call."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_INSTEAD = {
    "shared_memory": "arrays always travel through shared memory: leave it out",
    **dict.fromkeys(("copy", "zero_copy"), "a later step never changes a batch that you hold: leave it out"),
    "daemon": "no worker outlives its program: leave it out",
    "seed": "pass it to reset or seed",
    "batch_size": "use remuda.Pool, whose recv(min_envs=...) returns the first results",
    "timeout": "use start_timeout=, or a deadline, as in faults=remuda.FaultPolicy(step_timeout=...)",
    **dict.fromkeys(
        ("n_env", "n_envs", "num_env", "num_envs"),
        "there is one env for each function: write [make_env] * n, or call remuda.make_vec(id, num_envs=n), which "
        "makes a Gymnasium vector env of an id",
    ),
    **dict.fromkeys(
        ("render_mode", "env_kwargs", "wrappers", "frame_skip", "frame_stack"),
        "give it to the envs, in the functions that build them",
    ),
}
"""Advice for other libraries' options that a pool does not have."""

_SIMILAR = 0.83  # the least similarity of a suggestion: below it, names only share a word, such as "workers"

_parts: dict[str, tuple[str, str]] = {}
"""By keyword of a class that an option of the pool accepts: the option, and code that sets the keyword. The class that
is made first counts."""


def check_keywords(what: str, given: Iterable[str], known: Collection[str]) -> None:
    """Raises ``TypeError`` for the first unknown keyword in a call.

    Args:
        what: the name of the function or class in the caller's code.
        given: the keywords.
        known: the keywords that it accepts.
    """
    for keyword in given:
        if keyword not in known:
            see = "; help(remuda.PoolOptions) has all options" if "num_workers" in known else ""
            hint = did_you_mean(keyword, known) or see
            raise TypeError(f"{what}() got an unexpected keyword argument {keyword!r}{hint}")


def did_you_mean(keyword: str, known: Collection[str]) -> str:
    """Returns a suggestion for the error about an unknown keyword; "" if no known keyword is similar."""
    if keyword in _INSTEAD and "num_workers" in known and "num_envs" not in known:
        return f"; {_INSTEAD[keyword]}"
    parts = {name: part for name, part in _parts.items() if part[0] in known and name not in known}
    matches = difflib.get_close_matches(keyword, [*known, *parts], cutoff=_SIMILAR)
    for similar in sorted(matches, key=lambda name: name[0] != keyword[0]):  # names are seldom misspelt at the start
        return f"; did you mean {parts[similar][1] if similar in parts else f'{similar}='}?"
    return ""


def names_keywords(
    also: Iterable[str] = (),
    refused: Mapping[str, str] = MappingProxyType({}),
    option: str | None = None,
) -> Callable[[type[T]], type[T]]:
    """A decorator of classes: for an unknown keyword, the constructor's error suggests a similar one.

    Args:
        also: keywords that it accepts as ``**options``, in addition to those in its signature.
        refused: keywords of these that it refuses, and what to do instead.
        option: the option of a pool that accepts an instance of the class. If a constructor with this option gets a
            keyword of the class, its error names the option.
    """

    def naming(cls: type[T]) -> type[T]:
        constructor: Callable[..., None] = cls.__init__
        parameters = inspect.signature(constructor).parameters.values()
        own = [parameter.name for parameter in parameters if parameter.kind in _BY_KEYWORD][1:]  # without self
        taken = [*own, *(name for name in also if name not in refused)]
        if option is not None:
            for name in own:
                _parts.setdefault(name, (option, f"{option}={cls.__name__}({name}=...)"))

        @functools.wraps(constructor)
        def checking(self: Any, *args: Any, **kwargs: Any) -> None:
            for keyword in kwargs.keys() & refused.keys():
                raise TypeError(f"{cls.__name__}() takes no {keyword}=: {refused[keyword]}")
            check_keywords(cls.__name__, kwargs, taken)
            constructor(self, *args, **kwargs)

        cls.__init__ = checking  # type: ignore[method-assign]
        return cls

    return naming


def gives_name_to(*bases: type) -> Callable[[type[T]], type[T]]:
    """A decorator of classes: errors about arguments of methods that the class inherits from ``bases`` name the class.

    Python takes the name of a method from the class that defines it, such as that of parts, which users may not know.
    """

    def giving(cls: type[T]) -> type[T]:
        for name, method in ((name, method) for base in bases for name, method in vars(base).items()):
            for function in _layers(method):
                function.__qualname__ = f"{cls.__name__}.{name}"
        return cls

    return giving


def _layers(method: Any) -> Iterator[Any]:
    """Yields a function and those that it wraps; nothing for other objects."""
    while inspect.isfunction(method):
        yield method
        method = getattr(method, "__wrapped__", None)


def seeds_apart(reset: Callable[P, T]) -> Callable[P, T]:
    """A decorator of Stable-Baselines3's ``reset``: the error for an argument of Gymnasium's names the call for it."""

    @functools.wraps(reset)
    def resetting(*args: P.args, **kwargs: P.kwargs) -> T:
        for keyword in _BEFORE_RESET.keys() & kwargs.keys():
            what = f"{resetting.__qualname__}() got an unexpected keyword argument {keyword!r}"
            raise TypeError(f"{what}; call {_BEFORE_RESET[keyword]} before envs.reset()")
        return reset(*args, **kwargs)

    return resetting


_BEFORE_RESET = {"seed": "envs.seed(0)", "options": "envs.set_options({...})"}

_BY_KEYWORD = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
