from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from remuda.gymnasium.lazy_infos import LazyInfos

PLAIN = {"a": 1, "_a": True}


def lazy() -> LazyInfos:
    return LazyInfos(lambda: dict(PLAIN))


def test_infos_are_stacked_once_at_the_first_access() -> None:
    calls: list[int] = []
    infos = LazyInfos(lambda: calls.append(1) or dict(PLAIN))  # type: ignore[func-returns-value]
    assert isinstance(infos, dict)
    assert not calls
    assert infos["a"] == 1
    assert list(infos) == ["a", "_a"]
    assert calls == [1]


def _match(infos: dict[str, Any]) -> Any:
    match infos:
        case {"a": value}:
            return value


ACCESSES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "getitem": lambda d: d["a"],
    "get": lambda d: d.get("a"),
    "iter": list,
    "len": len,
    "repr": repr,
    "keys": lambda d: list(d.keys()),
    "== dict": lambda d: d == PLAIN,
    "dict()": dict,
    "{**d}": lambda d: {**d},
    "f(**d)": lambda d: dict(**d),
    "d | x": lambda d: d | {"b": 2},
    "x | d": lambda d: {"b": 2} | d,
    "update": lambda d: (d.update(b=2), dict(d)),
    "into": lambda d: (other := {"b": 2}, other.update(d)),
    "setitem": lambda d: (d.__setitem__("b", 2), dict(d)),
    "popitem": lambda d: (d.popitem(), dict(d)),
    "copy.copy": copy.copy,
    "copy.deepcopy": copy.deepcopy,
    "pickle": lambda d: pickle.loads(pickle.dumps(d)),
    "match": _match,
}


@pytest.mark.parametrize("access", ACCESSES.values(), ids=ACCESSES.keys())
def test_every_access_returns_what_a_plain_dict_returns(access: Callable[[dict[str, Any]], Any]) -> None:
    assert access(lazy()) == access(dict(PLAIN))


def test_two_lazy_infos_compare_by_their_contents_and_copies_are_plain_dicts() -> None:
    assert lazy() == lazy() != LazyInfos(dict)
    infos: dict[str, Any] = lazy()
    before = infos
    infos |= {"b": 2}
    assert infos is before
    assert infos == {**PLAIN, "b": 2}
    for made in (copy.copy(lazy()), copy.deepcopy(lazy()), lazy().copy(), pickle.loads(pickle.dumps(lazy()))):
        assert type(made) is dict


def test_every_method_of_dict_is_overridden() -> None:
    kept = {"__class_getitem__", "__getattribute__", "__hash__", "__init__", "__new__", "fromkeys"}
    for name in dict.__dict__.keys() - kept:
        method = getattr(LazyInfos, name)
        assert name == "__doc__" or method is not getattr(dict, name), name


def test_an_exception_in_stacking_is_raised_by_each_access() -> None:
    def stack() -> dict[str, Any]:
        raise ValueError("bad")

    infos = LazyInfos(stack)
    for _ in range(2):
        with pytest.raises(ValueError, match="bad"):
            len(infos)
