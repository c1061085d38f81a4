"""A dict of infos that is filled when it is first read."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


class LazyInfos(dict[str, Any]):
    """The infos of one batch in Gymnasium's format. The dict is made when it is first read.

    It behaves like a plain dict: every method of ``dict`` fills it first, and copies and pickles of it are plain
    dicts. There are two differences: ``type(infos) is dict`` is false, and C code that reads a dict's memory
    without calling its methods sees an empty one until a method has been called.

    Args:
        stack: makes the dict; called once. If it raises, so does the method of the dict, and the next method calls
            it again.
    """

    __slots__ = ("_stack",)

    def __init__(self, stack: Callable[[], dict[str, Any]]) -> None:
        super().__init__()
        self._stack: Callable[[], dict[str, Any]] | None = stack

    def _fill(self) -> None:
        if self._stack is not None:
            stacked = self._stack()
            self._stack = None
            dict.update(self, stacked)

    def __reduce_ex__(self, protocol: object) -> tuple[type[dict[str, Any]], tuple[dict[str, Any]]]:
        return dict, (self.copy(),)


def _after_filling(name: str) -> Callable[..., Any]:
    method = getattr(dict, name)

    @functools.wraps(method)
    def filling(*args: Any, **kwargs: Any) -> Any:
        for arg in args:  # an argument may also be a `LazyInfos`, for example in a comparison
            if isinstance(arg, LazyInfos):
                arg._fill()
        return method(*args, **kwargs)

    return filling


# ``__iter__`` must be replaced too: if a subclass has dict's own, ``{**infos}`` and ``dict(infos)`` copy its memory
# without calling a method.
_NO_READERS = {"__new__", "__init__", "__doc__", "__getattribute__", "__hash__", "__class_getitem__", "fromkeys"}

for _name in vars(dict).keys() - _NO_READERS:
    setattr(LazyInfos, _name, _after_filling(_name))
