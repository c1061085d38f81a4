"""Tries whether an env can be built twice. Only then may it be measured, because measuring uses it up."""

from __future__ import annotations

import gc
import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from remuda._wire.failures import text_of
from remuda._worker.env_report import renders
from remuda._worker.measuring import read_clocks, spent


@dataclass(frozen=True)
class Limits:
    """The seconds from which a build is slow: of a build alone, and of one that has also imported modules."""

    alone: float = 0.05
    importing: float = 1.0


@dataclass(frozen=True)
class SecondBuild:
    """The result of building an env twice.

    Attributes:
        refusal: Why the first env must not be measured; None: it may be measured, and is then rebuilt.
        stays: Whether the first env can still be used. Otherwise it is lost.
    """

    refusal: str | None = None
    stays: bool = True


@dataclass(frozen=True)
class FirstBuild:
    """How the first env was built: its seconds, and whether modules were imported meanwhile."""

    seconds: float
    imported: bool


class BuildClock:
    """Measures the first build, which begins when this is made."""

    def __init__(self) -> None:
        self._begin, self._modules = read_clocks(), len(sys.modules)

    def read(self) -> FirstBuild:
        return FirstBuild(spent(self._begin, read_clocks()), imported=len(sys.modules) > self._modules)


def try_second_build(
    env_fn: Callable[[], Any], env: Any, first: FirstBuild, limits: Limits, *, own_process: bool
) -> SecondBuild:
    """Builds an env like `env` and closes it, if that is quick and has no visible effect.

    Args:
        env_fn: The factory of `env`.
        env: The first env.
        first: How it was built.
        limits: The limits of a quick build.
        own_process: Whether this is the process of a worker, and not the caller's.
    """
    if getattr(env, "render_mode", None) == "human":
        return SecondBuild("it shows itself on a screen")
    if renders(env):
        return SecondBuild(
            f"it renders (render_mode={env.render_mode!r}), and envs that render in one process may draw wrong pictures"
        )
    if first.seconds >= (limits.importing if first.imported else limits.alone):
        return SecondBuild(_took(first.seconds))
    if own_process and _has_children():
        return SecondBuild("it has started a process, whose work measuring would not see")
    with _quiet() if own_process else warnings.catch_warnings():
        return _build_and_close(env_fn, env, limits)


def _build_and_close(env_fn: Callable[[], Any], env: Any, limits: Limits) -> SecondBuild:
    begin = read_clocks()
    try:
        second = env_fn()
    except BaseException as error:  # whatever it is, there is the first env
        return SecondBuild(f"it could not be built a second time ({type(error).__name__}: {text_of(error)})")
    seconds = spent(begin, read_clocks())
    if _core_of(second) is _core_of(env):
        return SecondBuild("its factory returns the same object again")
    with suppress(Exception):  # the caller has not requested this env
        second.close()
    del second
    gc.collect()
    return SecondBuild(_took(seconds) if seconds >= limits.alone else None)


def _took(seconds: float) -> str:
    return f"building it takes {1e3 * seconds:.0f} ms, so it is not built again for a trial"


def _core_of(env: Any) -> Any:
    return getattr(env, "unwrapped", env)


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppresses logs and warnings: the envs that stay log them, too."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
