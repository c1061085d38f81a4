"""Exceptions that a worker keeps are freed with it, although their tracebacks hold the worker's frames."""

from __future__ import annotations

import gc
import threading
from typing import Any

import pytest
from arena_views import arenas
from pool_envs import hooked

from remuda import Pool

has_raised = threading.Event()


def keep(env: Any, _: Any) -> None:
    env.kept = raised_and_caught()


def raised_and_caught() -> BaseException:
    try:
        raise ValueError("to be kept")
    except ValueError as error:
        has_raised.set()
        return error


def function_that_keeps() -> Any:
    def keep(env: Any, kept: list[BaseException] = []) -> int:  # noqa: B006 - the list belongs to the function
        kept.append(raised_and_caught())
        return 0

    return keep


def fail(_: Any) -> None:
    has_raised.set()
    raise ValueError("not asked for")


@pytest.mark.parametrize("backend", ["thread", "serial"])
@pytest.mark.parametrize(
    "make",
    [
        lambda **options: Pool(hooked(2, step=keep), **options),
        lambda **options: Pool(hooked(2), extras={"kept": function_that_keeps()}, **options),
        lambda **options: Pool(hooked(2, length=1, autoreset=fail), resets_ahead=True, **options),
    ],
    ids=["an env keeps it", "a function of extras keeps it", "an unused reset in advance has failed"],
)
def test_an_exception_is_freed_with_the_pool(make: Any, backend: Any) -> None:
    has_raised.clear()
    with make(backend=backend) as pool:
        pool.reset()
        pool.step([0, 0])
        has_raised.wait()
    del pool
    gc.collect()
    assert not arenas()
