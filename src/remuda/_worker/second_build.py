"""Checks whether an env can be built twice. Only then may the first one be measured, which makes it unusable."""

from __future__ import annotations

import gc
import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from remuda._wire.failures import is_interrupt, text_of
from remuda._worker.env_report import core_of, draws
from remuda._worker.forked_children import OneProcess
from remuda._worker.measuring import read_clocks, spent

_Built = TypeVar("_Built")


@dataclass(frozen=True)
class Limits:
    """The seconds from which a build counts as slow: `alone` if the build imports no modules, else `importing`."""

    alone: float = 0.05
    importing: float = 1.0


@dataclass(frozen=True)
class SecondBuild:
    """The result of building an env twice.

    Attributes:
        refusal: The reason not to measure the first env; None: it may be measured, and is then rebuilt.
        stays: Whether the first env can still be used. Otherwise it is lost.
    """

    refusal: str | None = None
    stays: bool = True


@dataclass(frozen=True)
class FirstBuild:
    """The duration of the first build, and whether modules were imported meanwhile."""

    seconds: float
    imported: bool


def timed(build: Callable[[], _Built]) -> tuple[_Built, FirstBuild]:
    """Returns the result of `build`, an env's first build, and the facts about it."""
    begin, modules = read_clocks(), len(sys.modules)
    built = build()
    return built, FirstBuild(spent(begin, read_clocks()), imported=len(sys.modules) > modules)


def try_second_build(
    env_fn: Callable[[], Any], env: Any, first: FirstBuild, limits: Limits, *, own_process: bool
) -> SecondBuild:
    """Builds a second env like `env` and closes it, unless that is slow or has visible effects.

    Args:
        env_fn: The factory of `env`.
        env: The first env.
        first: The facts about its build.
        limits: The limits of a quick build.
        own_process: Whether this is a worker's process, not the caller's.
    """
    if getattr(env, "render_mode", None) == "human":
        return SecondBuild("it shows itself on a screen")
    if draws(env):
        mode = f"render_mode={env.render_mode!r}"
        return SecondBuild(f"it draws in its steps ({mode}), and envs that draw in one process may draw wrong pictures")
    if first.seconds >= (limits.importing if first.imported else limits.alone):
        return SecondBuild(_took(first.seconds))
    if own_process and _has_children():
        return SecondBuild("it has started a process, whose work measuring would not see")
    with _quiet() if own_process else warnings.catch_warnings():
        return _build_and_close(env_fn, env, limits, own_process=own_process)


def _build_and_close(env_fn: Callable[[], Any], env: Any, limits: Limits, *, own_process: bool) -> SecondBuild:
    begin = read_clocks()
    try:
        with OneProcess():
            second = env_fn()
    except BaseException as error:  # not raised, because the first env still works
        if not own_process and is_interrupt(error):
            raise
        return SecondBuild(f"it could not be built a second time ({type(error).__name__}: {text_of(error)})")
    seconds = spent(begin, read_clocks())
    if core_of(second) is core_of(env):
        return SecondBuild("its factory returns the same object again")
    # Errors do not matter, because the caller has not requested this env.
    with suppress(Exception), OneProcess():
        second.close()
    del second
    gc.collect()
    return SecondBuild(_took(seconds) if seconds >= limits.alone else None)


def _took(seconds: float) -> str:
    return f"building it takes {1e3 * seconds:.0f} ms, so it is not built again for a trial"


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppresses logs and warnings of the second env, because the first one has issued the same ones."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
