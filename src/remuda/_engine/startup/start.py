"""Starts the workers of a pool, and lays out the shared memory, with the state of an earlier pool if there is one."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from remuda import _core
from remuda._backends.base import Assignment, Backend, BuildingBackend
from remuda._backends.local import SerialBackend
from remuda._backends.thread import ThreadBackend
from remuda._engine.options.checks import check_autoreset, variables_of
from remuda._engine.options.crash_dir import Factories, described, pickled_specs
from remuda._engine.options.devices import Device, find_devices
from remuda._engine.options.extras import check_extras
from remuda._engine.options.pool_options import BackendName, EnvFn
from remuda._engine.options.settings import Settings
from remuda._engine.running import Running
from remuda._engine.stats.snapshot import hosted_ids
from remuda._system.cores import whole_cores
from remuda._system.interpreter import has_gil
from remuda._system.limits import check_file_length
from remuda._system.memory import addressable_bytes, check_memory
from remuda._wire.layout import Layout, Spinning
from remuda._worker.env_report import EnvReport, Reports, check_fit
from remuda._worker.reset_defaults import ResetDefaults
from remuda._worker.worker_info import HostSpec, WorkerInfo

Counts: TypeAlias = "np.ndarray[tuple[int, int], np.dtype[np.uint64]]"

RESETS, STEPS, RESULTS, SEED_BASE, SEEDED_AT, COUNTED_FROM, NEEDS_RESET, IS_FRESH_ON_SHARD = range(8)
"""The columns of `Counts`. `Progress` in shm/plan.hpp explains them."""

_MOST_ROLLOUT_ROWS = 1 << 31
_SPIN_NS = 4_000_000  # the longest spin, because after a longer wait the time of waking up hardly matters


def make_backend(settings: Settings) -> BuildingBackend:
    """Makes a backend of the kind that the option `backend` names."""
    if settings.backend == "serial":
        return SerialBackend()
    if settings.backend == "thread":
        return ThreadBackend(pins=settings.pin_workers)
    if sys.platform != "linux":
        raise NotImplementedError(
            f"expected Linux for backend='process', got {sys.platform}; use backend='thread' or 'serial' here"
        )
    from remuda._backends.process.backend import ProcessBackend  # imported here because only this backend needs it

    return ProcessBackend(settings)


def start(
    settings: Settings,
    env_fns: Sequence[EnvFn],
    begun: BuildingBackend | None,
    inherited: Inheritance | None = None,
) -> Running:
    """Starts workers, which build the envs, and lays out the shared memory. If this raises, no worker is left.

    Args:
        settings, env_fns: Those of the pool.
        begun: A backend that has built the first env.
        inherited: The state of an earlier pool that this one replaces.
    """
    try:
        factories = None if settings.crash_dir is None else described(env_fns)
        backend = begun or make_backend(settings)
        assignments = assign(settings, env_fns)
        workers = backend.build(assignments, settings.start_timeout)
    except BaseException:
        if begun is not None:
            begun.stop(0)
        raise
    return lay_out(settings, backend, [report for worker in workers for report in worker], factories, inherited)


def lay_out(
    settings: Settings,
    backend: Backend,
    built: Reports,
    factories: Factories | None = None,
    inherited: Inheritance | None = None,
) -> Running:
    """Lays out the shared memory for envs that workers have built, and starts the loops of the workers.

    `built`: the report of each env. An env that is built later is assumed to be like env 0.
    """
    assert built[0] is not None  # env 0 is always built at the start, even with `lazy`
    reports = [built[0] if one is None else one for one in built]
    try:
        layout = _layout(settings, reports)
        check_memory(sum(size for _, size in layout.plan.reserved))  # the other bytes are only addresses
        check_file_length(layout.plan.bytes)
        arena = _core.Arena.create(layout.plan)
        defaults = ResetDefaults()
        if inherited is not None:
            defaults = inherited.defaults
            progress_of(arena, layout)[:] = inherited.progress
        hub = _hub(settings, layout, arena, backend)
        backend.attach(layout, arena, defaults)
        backend.watch(hub)
    except BaseException:
        backend.stop(0)
        raise
    specs = {} if factories is None else pickled_specs(reports)
    return Running(backend, hub, arena, layout, reports, factories, specs, defaults)


def assign(settings: Settings, env_fns: Sequence[EnvFn]) -> list[Assignment]:
    """Deals the envs out to workers."""
    assignments, computed = [], check_extras(settings.extras)
    found = () if settings.devices is None else find_devices(settings.devices)
    devices = found or (Device(),)
    for index, env_ids in enumerate(hosted_ids(settings.envs_of_worker())):
        device = devices[index % len(devices)]
        info = WorkerInfo(index, settings.num_workers, env_ids, device.name)
        factories = env_fns[env_ids[0] // settings.width : (env_ids[-1] + 1) // settings.width]
        variables = {**device.variables, **variables_of(settings.worker_env, index)}
        by_reset = settings.faults.reports_resets
        spec = HostSpec(info, settings.vector_size, settings.rebuilds, settings.lazy, by_reset)
        assignments.append(Assignment(spec, factories, variables, computed, device.cores))
    return assignments


def _layout(settings: Settings, reports: Sequence[EnvReport]) -> Layout:
    override = settings.observation_space
    observation_space = reports[0].observation_space if override is None else override
    action_space = reports[0].action_space
    if settings.vector_size is not None:
        check_autoreset(settings.autoreset, [report.metadata for report in reports[:: settings.vector_size]])
    layout = Layout(
        envs_of_worker=settings.envs_of_worker(),
        frames=settings.frames,
        autoreset=settings.autoreset,
        observation_space=observation_space,
        action_space=action_space,
        spinning=spinning_for(settings.backend, settings.num_workers, settings.max_concurrency, whole_cores()),
        blob_bytes=-(-settings.object_bytes // 64) * 64,  # rounded up to whole cache lines
        keeps_last=settings.keeps_last or settings.rebuilds,
        renew_every=settings.faults.renew_every or 0,
        max_memory=settings.max_worker_memory or 0,
        renews_workers=settings.backend == "process",
        log_bytes=settings.log_bytes,
        resumes=settings.faults.resumes,
        spares=settings.spares,
        resets_ahead=settings.has_resets_ahead,
        vector_size=settings.vector_size,
        computed=reports[0].computed,
        step_columns=sum(column.of_step for column in check_extras(settings.extras)),
        reward_shape=reports[0].reward_shape,
        any_observation=override is not None,
        must_agree=reports[0].must_agree,
    )
    check_fit(layout, reports, name="env 0")
    if not _core.Arena.is_sparse:
        return layout
    # Reserves addresses, not memory: the limit for all rollouts together.
    return replace(layout, rollout_rows=min(addressable_bytes() // layout.row_bytes, _MOST_ROLLOUT_ROWS))


def spinning_for(backend: BackendName, num_workers: int, max_concurrency: int | None, cores: int) -> Spinning:
    """Decides whether the pool's caller and its workers may spin while they wait. `cores`: the number of whole cores.

    The caller computes or waits on one core. Workers may spin if each has a core: with as many workers as cores, one of
    them shares the caller's. The caller may spin if the workers that may run at once do not need its core. Threads spin
    only without the GIL, because otherwise they would compete for it.
    """
    if backend == "serial" or (backend == "thread" and has_gil()):
        return Spinning()
    at_work = num_workers if max_concurrency is None else min(num_workers, max_concurrency)
    return Spinning(
        worker_ns=_SPIN_NS if num_workers <= cores and cores > 1 else 0,
        pool_ns=_SPIN_NS if at_work < cores else 0,
        one_sleeps=num_workers == cores,
    )


def _hub(settings: Settings, layout: Layout, arena: _core.Arena, backend: Backend) -> _core.Hub:
    columns = layout.result_columns(arena)
    return _core.Hub(
        arena=arena,
        plan=layout.plan,
        envs_of_worker=list(layout.envs_of_worker),
        autoreset=layout.mode.core,
        columns=[*columns.fixed, *columns.obs],
        final_columns=columns.final_obs,
        computed=columns.computed,
        actions=layout.sent_actions(arena),
        queues=backend.queues(),
        spin_ns=layout.spinning.pool_ns,
        # The serial backend ignores `max_concurrency`: it runs one env at a time.
        max_running=settings.num_workers
        if settings.max_concurrency is None or settings.backend == "serial"
        else settings.max_concurrency,
        one_sleeps=layout.spinning.one_sleeps,
        ignore_load=layout.spinning.ignore_load,
    )


@dataclass(frozen=True)
class Inheritance:
    """The state that a new pool takes over from an earlier pool of the same envs, by env id in the new pool.

    Attributes:
        progress: (n, 8): the counts of each env.
        defaults: The seeds and options of resets.
    """

    progress: Counts
    defaults: ResetDefaults


def progress_of(arena: _core.Arena, layout: Layout) -> Counts:
    """Returns the counts of all envs (resets, steps, ...): a view (n, 8) of shared memory."""
    column = arena.column(np.dtype(np.uint64), [8], layout.plan.progress)
    counts: Counts = column.view(layout.num_envs)
    return counts
