"""Warnings of workers are issued in the pool's process, under its filters."""

from __future__ import annotations

import importlib
import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pool_envs import counting, hooked
from programs import Script

from remuda import EnvError, Pool


@pytest.fixture
def caught() -> Iterator[list[warnings.WarningMessage]]:
    """Yields the warnings that are issued in this process, with no filter but the default."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        yield caught


def warn(category: Any = RuntimeWarning, text: str = "odd") -> Callable[..., None]:
    def hook(*_: Any) -> None:
        warnings.warn(text, category, stacklevel=1)

    return hook


LINE = warn.__code__.co_firstlineno + 2


def test_a_warning_from_one_line_is_shown_once_per_pool(start_method: Any, caught: list[Any]) -> None:
    for n in (1, 2):
        with Pool(hooked(4, range(4), step=warn()), num_workers=2, start_method=start_method) as pool:
            pool.reset()
            for _ in range(3):
                pool.step([0] * 4)
        ours = [w for w in caught if w.category is RuntimeWarning]
        assert len(ours) == n
    warning = ours[-1]
    assert (str(warning.message), warning.filename, warning.lineno) == ("odd", __file__, LINE)


def test_warnings_of_constructors_arrive(caught: list[Any]) -> None:
    Pool(hooked(2, build=warn()), num_workers=None).close()
    assert [str(w.message) for w in caught] == ["odd"]
    with pytest.raises(EnvError):
        Pool(hooked(2, build=lambda env: (warnings.warn("before", UserWarning, stacklevel=1), 1 / 0)), num_workers=None)
    assert str(caught[-1].message) == "before"


def test_filters_of_the_pools_process_apply(caught: list[Any]) -> None:
    warnings.filterwarnings("ignore", "quiet")
    warnings.filterwarnings("always", "often", FutureWarning)
    warnings.filterwarnings("once", "once")
    warnings.filterwarnings("ignore", module=r"nobody\.knows")
    with Pool(counting(2), num_workers=None) as pool:
        for text, category in (("quiet please", UserWarning), ("often", FutureWarning), ("once", UserWarning)):
            for _ in range(3):
                pool.apply(warn(category, text))
    messages = [str(w.message) for w in caught]
    assert [messages.count(text) for text in ("quiet please", "often", "once")] == [0, 6, 1]


def test_a_filter_matches_categories_by_name_without_importing_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caught: list[Any]
) -> None:
    (tmp_path / "category_of_late.py").write_text("class Late(UserWarning): pass\nclass Later(Late): pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    warnings.simplefilter("always", importlib.import_module("category_of_late").Late)

    def warn_often(env: Any) -> None:
        module = importlib.import_module("category_of_late")
        for category in (module.Late, module.Later, UserWarning):
            for _ in range(2):
                warnings.warn(category.__name__, category, stacklevel=1)

    with Pool(counting(1), num_workers=None) as pool:
        assert pool.apply(lambda env: "category_of_late" in sys.modules) == [False]
        pool.apply(warn_often)
    messages = [str(w.message) for w in caught]
    assert [messages.count(text) for text in ("Late", "Later", "UserWarning")] == [2, 2, 1]


def test_filters_by_module_receive_the_module(caught: list[Any]) -> None:
    def warn_in(env: Any) -> None:
        code = "import warnings; warnings.warn('here', UserWarning)"
        exec(compile(code, "/some/where.py", "exec"), {"__name__": "some.module"})

    with Pool(counting(1), num_workers=None) as pool:
        # the worker does not have this filter, but the pool's process does
        warnings.filterwarnings("ignore", module=r"some\.module")
        pool.apply(warn_in)
    assert caught == []


def test_a_category_that_cannot_travel_becomes_a_user_warning_and_a_giant_text_is_cut(caught: list[Any]) -> None:
    def warn_hard(env: Any) -> None:
        class HardToMake(UserWarning):
            def __init__(self, code: int, reason: str) -> None:
                super().__init__(f"{reason} ({code})")

            def __reduce__(self) -> Any:
                raise TypeError("not to be pickled")

        warnings.warn(HardToMake(3, "why"), stacklevel=1)
        warnings.warn("x" * 1_000_000, FutureWarning, stacklevel=1)

    with Pool(counting(1), num_workers=None) as pool:
        pool.apply(warn_hard)
    hard, giant = (warning for warning in caught if warning.filename == __file__)
    assert (hard.category, str(hard.message)) == (UserWarning, "HardToMake: why (3)")
    assert giant.category is FutureWarning
    assert str(giant.message).endswith("x [cut: it was too big for one record]")


@pytest.mark.usefixtures("caught")
def test_a_warning_that_a_filter_raises_is_logged_as_an_error(start_method: Any, log_records: list[Any]) -> None:
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", ".*multi-threaded", DeprecationWarning)
    with Pool(hooked(2, step=warn()), start_method=start_method, num_workers=None) as pool:
        pool.reset()
        assert pool.step([1, 2]).rewards.tolist() == [1, 2]
        pool.call("pid")
        (record,) = log_records
    assert (record.name, record.levelno, record.worker, record.env) == ("remuda", logging.ERROR, 1, 1)
    assert record.getMessage() == f"{__file__}:{LINE}: RuntimeWarning: odd"


def test_an_env_that_catches_its_warnings_keeps_them(caught: list[Any]) -> None:
    def catch(env: Any) -> int:
        with warnings.catch_warnings(record=True) as its:
            warnings.simplefilter("always")
            warnings.warn("mine", UserWarning, stacklevel=1)
        return len(its)

    with Pool(counting(1), num_workers=None) as pool:
        assert pool.apply(catch) == [1]
    assert caught == []


def test_a_category_defined_in_main_matches_its_filter(script: Callable[..., Script]) -> None:
    run = script("""
import warnings

class Mine(UserWarning):
    pass

warnings.simplefilter("ignore")
warnings.simplefilter("default", Mine)
for start_method in ("forkserver", "spawn", "fork"):
    with warnings.catch_warnings(record=True) as caught:
        with Pool(counting(2), start_method=start_method) as pool:
            pool.apply(lambda env: warnings.warn("odd", Mine))
            pool.apply(lambda env: warnings.warn("ignored", UserWarning))
    assert [w.category for w in caught if w.category is not DeprecationWarning] == [Mine], caught
""")
    assert run.await_end() == (0, "", "")
