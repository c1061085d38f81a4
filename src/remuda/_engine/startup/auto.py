"""Chooses the number of workers by a trial, which builds the first env in a worker and measures the cost of its steps.

An env that was stepped for the trial is never kept, and one that is kept was never stepped. If building takes long,
or cannot be repeated, nothing is measured: the first env stays, and each other one gets a worker too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from statistics import median
from typing import Any, TypeAlias

from remuda._backends.base import PATIENCE_SECONDS, BuildingBackend
from remuda._engine.options.extras import check_extras
from remuda._engine.options.fault_policy import FaultPolicy
from remuda._engine.options.pool_options import EnvFn
from remuda._engine.options.settings import Settings
from remuda._engine.running import Running
from remuda._engine.startup.alike import are_alike
from remuda._engine.startup.start import assign, lay_out, make_backend
from remuda._engine.stats.choice import WorkerChoice, choose, one_each
from remuda._relay.log import logger
from remuda._worker.measuring import Measured, measure
from remuda._worker.second_build import Limits
from remuda.errors import EnvError, RemudaError, WorkerDiedError

Adopt: TypeAlias = Callable[[Settings, Running], Any]
"""A function that makes a `Pool` of workers that already run."""

LIMITS = Limits()  # the trial builds an env a second time only if the first build took less

_ROUND_TRIPS = 10
_THINK_SECONDS = 3e-3  # a pause as long as a learner may take: a waiting worker falls asleep


def settle(
    settings: Settings, env_fns: Sequence[EnvFn], cores: int, adopt: Adopt
) -> tuple[Settings, BuildingBackend | None]:
    """Returns the settings with the chosen workers, and a backend with the first worker (None: no worker runs yet).

    Raises the errors of `start` for env 0. Then nothing is left behind.
    """
    if not settings.measures:
        return settings, None
    chosen, backend = _choose(settings, env_fns, cores, adopt)
    logger.info("num_workers='auto': %s", chosen)
    return replace(settings, num_workers=chosen.num_workers, backend=chosen.backend, choice=chosen), backend


def _choose(
    settings: Settings, env_fns: Sequence[EnvFn], cores: int, adopt: Adopt
) -> tuple[WorkerChoice, BuildingBackend | None]:
    kind, num_envs = settings.workers_are, settings.num_envs // settings.width
    if not are_alike(env_fns):
        return one_each(num_envs, kind, "their factories differ, so that env 0 is no measure of the others"), None
    if num_envs == 1 and not settings.may_step_itself:
        return WorkerChoice(1, kind, "1 worker for 1 env"), None
    backend = make_backend(settings)
    assignments = assign(settings, env_fns)
    second = backend.build_first(assignments, settings.start_timeout, LIMITS)
    if second.refusal is not None:
        chosen = one_each(num_envs, kind, second.refusal)
        if second.stays:
            return chosen, backend
        backend.stop(0)
        return chosen, None
    measured, wake = _try(settings, env_fns, backend, adopt)
    return choose(measured, num_envs, cores, kind, wake), None


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
        measured: Measured = pool.apply_async(measure, (), {"computed": computed}).result(PATIENCE_SECONDS)[0]
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
