"""Chooses the number of workers by a trial, which builds the first env in a worker and measures the cost of its steps.

An env that was stepped for the trial is never kept, and one that is kept was never stepped. If the build takes long,
nothing is measured: the first env stays, and each other one gets a worker too.
"""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count
from statistics import median
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from remuda._backends.base import PATIENCE_SECONDS, BuildingBackend
from remuda._engine.options.extras import check_extras
from remuda._engine.options.fault_policy import FaultPolicy
from remuda._engine.options.pool_options import EnvFn
from remuda._engine.options.settings import Settings
from remuda._engine.running import Running
from remuda._engine.startup.start import assign, lay_out, make_backend
from remuda._engine.stats.choice import WorkerChoice, choose, one_each
from remuda._relay.log import logger
from remuda._wire.culprit import content_of
from remuda._worker.env_report import EnvReport
from remuda._worker.measuring import Measured, measure_in_worker
from remuda.errors import EnvError, RemudaError, StartTimeoutError, WorkerDiedError

if TYPE_CHECKING:
    from remuda._backends.process.backend import ProcessBackend

Adopt: TypeAlias = Callable[[Settings, Running], Any]
"""A function that makes a `Pool` of workers that already run."""

LONGEST_BUILD = 1.0  # seconds; an env that takes longer to build is not built again for a trial

_ROUND_TRIPS = 10
_THINK_SECONDS = 3e-3  # a pause as long as a learner may take: a waiting worker falls asleep
# Factories count as alike if they differ in values that are nested deeper, or come after so many others.
_DEPTH, _MOST_VALUES = 10, 1000


def settle(
    settings: Settings, env_fns: Sequence[EnvFn], cores: int, adopt: Adopt
) -> tuple[Settings, BuildingBackend | None]:
    """Returns the settings with the chosen workers, and a backend with the first worker (None: no worker runs yet).

    Raises the errors of `start` for env 0. Then nothing is left behind.
    """
    if not settings.measures:
        return settings, None
    num_envs, backend = settings.num_envs // settings.width, None
    if not are_alike(env_fns):
        chosen = one_each(num_envs, "process", "their factories differ, so that env 0 is no measure of the others")
    elif num_envs == 1 and not settings.may_step_itself:
        chosen = WorkerChoice(1, "process", "1 worker for 1 env")
    else:
        backend = cast("ProcessBackend", make_backend(settings))
        report, seconds = backend.build_first(assign(settings, env_fns), settings.start_timeout)
        if (why := _reason_against(report, seconds)) is not None:
            chosen = one_each(num_envs, "process", why)
        else:
            measured, wake = _try(settings, env_fns, backend, adopt)
            chosen, backend = choose(measured, num_envs, cores, wake), None
            settings = replace(settings, was_tried=True)
    logger.info("num_workers='auto': %s", chosen)
    return replace(settings, num_workers=chosen.num_workers, backend=chosen.backend, choice=chosen), backend


def name_trial(error: RemudaError, settings: Settings) -> None:
    """Adds the trial to the error of env 0's second build, whose factory may work only once."""
    if isinstance(error, (EnvError, WorkerDiedError)):
        is_of_first = 0 in error.env_ids
    else:
        is_of_first = re.search(r"env_fns\[0\]|the envs \[0\b", str(error)) is not None
    if not settings.was_tried or not is_of_first:
        return
    note = (
        "; env_fns[0] was called before, for the trial of num_workers='auto': if it works only once, pass a number, "
        f"as in num_workers={settings.num_workers}"
    )
    if isinstance(error, WorkerDiedError):
        error.remedy = note
    else:
        text = str(error)
        end = text.find("\n") if isinstance(error, StartTimeoutError) else -1  # the worker's stack follows there
        end = len(text) if end < 0 else end
        error.args = (text[:end] + note + text[end:], *error.args[1:])


def are_alike(env_fns: Sequence[EnvFn]) -> bool:
    """Whether factories share their code and the texts in it, apart from digits (a seed, port or path).

    This is a guess; only speed depends on it.
    """
    first, *others = env_fns
    kind = _kind(first, count())
    return all(one is first or _kind(one, count()) == kind for one in others)


def _kind(value: Any, seen: Iterator[int], depth: int = _DEPTH) -> Any:
    """Returns what two values of one kind have in common. `seen` counts the values that were looked at."""
    if depth == 0 or next(seen) >= _MOST_VALUES:
        return None
    parts: Iterable[Any]
    match value:
        case None | bool() | int() | float():
            return "a number"
        case str():
            return re.sub(r"\d+", "0", value)
        case bytes() | type() | BuiltinFunctionType() | ModuleType():
            return value
        case list() | tuple():
            parts = value
        case dict():
            parts = [*value, *value.values()]
        case functools.partial():
            parts = [value.func, value.args, value.keywords]
        case MethodType():
            parts = [value.__func__, value.__self__]
        case FunctionType():
            parts = [value.__code__, value.__defaults__, *map(content_of, value.__closure__ or ())]
        case CodeType():
            parts = [value.co_code, *value.co_names, *value.co_consts]
        case _:
            parts = [getattr(value, "__dict__", None)]
    return type(value), [_kind(part, seen, depth - 1) for part in parts]


def _reason_against(report: EnvReport | None, seconds: float) -> str | None:
    """Returns the reason to keep the first env, and not to measure it; None if there is none."""
    assert report is not None  # env 0 is built at once
    if report.render_mode == "human":
        return "it shows itself on a screen"
    if report.draws:
        return f"it draws in its steps (render_mode={report.render_mode!r}), and envs that draw need separate processes"
    if seconds >= LONGEST_BUILD:
        return f"building it takes {1e3 * seconds:.0f} ms, so it is not built again for a trial"
    return None


def _try(
    settings: Settings, env_fns: Sequence[EnvFn], backend: BuildingBackend, adopt: Adopt
) -> tuple[Measured, float | None]:
    """Measures the cost of a step, and of waking a worker if the caller may step envs. Stops the backend."""
    alone = replace(
        settings,
        num_envs=settings.width,
        num_workers=1,
        max_concurrency=None,
        faults=FaultPolicy(),
        crash_dir=None,
        seeding="gymnasium",
        resets_ahead=False,
        autoreset=settings.autoreset if settings.vector_size is not None else "next_step",
        log_advice=False,
    )
    try:
        built = backend.build(assign(alone, env_fns), None)
        reports = [report for worker in built for report in worker]
    except BaseException:
        backend.stop(0)
        raise
    pool, is_over = adopt(alone, lay_out(alone, backend, reports)), False
    try:
        measured = _measure(pool, [column.function for column in check_extras(settings.extras)])
        wake = _wake_seconds(pool) if settings.may_step_itself and measured.cost is not None else None
        is_over = measured.cost is not None
        return measured, wake
    finally:
        with suppress(EnvError, WorkerDiedError):  # errors of the trial's env do not matter
            pool.close(timeout=PATIENCE_SECONDS, terminate=not is_over)


def _measure(pool: Any, computed: Sequence[Callable[[Any], Any]]) -> Measured:
    try:
        measured: Measured = pool.apply_async(measure_in_worker, (computed,)).result(PATIENCE_SECONDS)[0]
    except TimeoutError:
        return Measured(None, 0, 0, f"it was not done after {PATIENCE_SECONDS:.0f} s")
    except RemudaError as error:
        return Measured(None, 0, 0, str(error))
    return measured


def _wake_seconds(pool: Any) -> float | None:
    """Returns the seconds from sending a command to a sleeping worker until its answer; None if the env raises."""
    trips = []
    try:
        pool.send_reset()
        if not len(pool.recv(timeout=PATIENCE_SECONDS)):
            return None
        for _ in range(_ROUND_TRIPS):
            think_until = time.perf_counter() + _THINK_SECONDS
            while (begin := time.perf_counter()) < think_until:
                pass
            pool.request_obs()
            pool.recv()
            trips.append(time.perf_counter() - begin)
    except RemudaError:
        return None
    return median(trips)
