"""Functions that are pickled by value keep the name of their file."""

from __future__ import annotations

from typing import Any

import pytest
from pool_envs import counting

from remuda import EnvError, Pool
from remuda._wire import by_value
from remuda._wire.pickling import load


def _fail(env: Any) -> None:
    def inner() -> None:
        raise ValueError("of a function that no import finds")

    inner()


@pytest.mark.parametrize("start_method", ["forkserver", "spawn"])
def test_a_traceback_shows_the_lines_of_a_function_pickled_by_value(start_method: Any) -> None:
    def fail(env: Any) -> None:
        _fail(env)

    with Pool(counting(1), num_workers=1, start_method=start_method) as pool, pytest.raises(EnvError) as caught:
        pool.apply(fail)
    (failure,) = caught.value.failures
    assert "_fail(env)" in failure.traceback
    assert __file__ in failure.traceback


def test_nested_functions_keep_their_file() -> None:
    def outer() -> Any:
        return lambda: None

    copy = load([by_value.dumps(outer)])
    assert copy.__code__.co_filename == copy().__code__.co_filename == __file__
