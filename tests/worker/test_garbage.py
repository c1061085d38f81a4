"""Exceptions that a worker keeps are freed with it, although their tracebacks hold the worker's frames."""

from __future__ import annotations

import gc
import threading
from typing import Any

import pytest
from arena_views import arenas
from pool_envs import hooked

from remuda import Pool


@pytest.mark.parametrize("backend", ["thread", "serial"])
def test_an_env_may_keep_its_exception(backend: Any) -> None:
    def keep(env: Any, _: Any) -> None:
        try:
            raise ValueError("to be kept")
        except ValueError as error:
            env.kept = error

    with Pool(hooked(2, step=keep), backend=backend) as pool:
        pool.reset()
        pool.step([0, 0])
    del pool
    gc.collect()
    assert not arenas()


@pytest.mark.parametrize("backend", ["thread", "serial"])
def test_a_function_of_extras_may_keep_an_exception(backend: Any) -> None:
    kept: list[BaseException] = []

    def keep(env: Any, kept: list[BaseException] = kept) -> int:
        try:
            raise ValueError("to be kept")
        except ValueError as error:
            kept.append(error)
        return 0

    with Pool(hooked(2), backend=backend, extras={"kept": keep}) as pool:
        pool.reset()
        pool.step([0, 0])
    del pool, keep, kept
    gc.collect()
    assert not arenas()


@pytest.mark.parametrize("backend", ["thread", "serial"])
def test_an_unused_failed_reset_in_advance_is_freed(backend: Any) -> None:
    failed = threading.Event()

    def fail(_: Any) -> None:
        failed.set()
        raise ValueError("not asked for")

    with Pool(hooked(2, length=1, autoreset=fail), backend=backend, resets_ahead=True) as pool:
        pool.reset()
        pool.step([0, 0])
        failed.wait()
    del pool
    gc.collect()
    assert not arenas()
