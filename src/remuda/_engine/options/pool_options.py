"""The table of a pool's options: the type, default, check and needs of each option, and its meaning.

A new option is a field of `OptionValues`, a key of `FaceOptions` or `PoolOptions`, and an entry in the docstring of
`PoolOptions`. Pairs of options that exclude each other are in `refusals.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any, Literal, TypeAlias, TypedDict

from gymnasium import Space

from remuda import _core
from remuda._engine.options.checks import (
    Option,
    autoreset_mode,
    checked_by,
    int_from,
    memory_limit,
    module_names,
    one_of,
    option,
    seconds,
    single_space,
    true_or_false,
    value_of,
)
from remuda._engine.options.crash_dir import CrashDir, crash_dir_for
from remuda._engine.options.extras import Extras, check_extras
from remuda._engine.options.fault_policy import FaultPolicy, OnFault
from remuda._relay.output import WorkerOutput, check_output
from remuda._system.interpreter import no_command
from remuda._system.machine import backend_here

EnvFn: TypeAlias = Callable[[], Any]
BackendName: TypeAlias = Literal["auto", "process", "thread", "serial"]
StartMethod: TypeAlias = Literal["forkserver", "spawn", "fork"]
WorkerEnv: TypeAlias = Mapping[str, str] | Callable[[int], Mapping[str, str]]
Devices: TypeAlias = Sequence[int | str] | Literal["auto"]
AutoresetMode: TypeAlias = Literal["next_step", "same_step", "disabled", "background"]
Seeding: TypeAlias = Literal["gymnasium", "per_episode"]

BACKENDS = ("process", "thread", "serial")
_LEAST_OBJECT_BYTES = 4096


class RemoteBackend:
    """The base class for values of the option `backend` that put envs on other machines, such as `remuda.Ray`."""

    def pool_type(self) -> type[Any]:
        """Returns the class of pools for envs on these machines. It takes the arguments of `Pool`."""
        raise NotImplementedError


def _backend(name: str, given: Any) -> BackendName:
    if given is None:
        return backend_here(warns=False)  # `Settings.of` warns
    backend: BackendName = one_of("auto", *BACKENDS)(name, given)
    return backend_here(warns=False) if backend == "auto" else backend


def _start_method(name: str, given: Any) -> StartMethod:
    if given is None:
        return "forkserver" if no_command() is None else "fork"
    method: StartMethod = one_of("forkserver", "spawn", "fork")(name, given)
    return method


def _pinning(name: str, given: Any) -> bool | tuple[frozenset[int], ...]:
    if given is None or (isinstance(given, int) and not given):
        return False
    if not hasattr(os, "sched_setaffinity"):
        raise ValueError(f"expected {name}=False on this system, which has no call to keep a thread on a core")
    if isinstance(given, int):
        return True
    allowed = os.sched_getaffinity(0)
    what = f"expected {name} to be True, False, or sets of the cores {sorted(allowed)}, such as [{{0, 1}}, {{2, 3}}]"
    if not isinstance(given, Sequence) or not all(isinstance(one, (Set, Sequence)) for one in given):
        raise TypeError(f"{what}; got {given!r}")
    if not given or not all(one and allowed.issuperset(one) for one in given):
        raise ValueError(f"{what}; got {given!r}")
    return tuple(map(frozenset, given))


@dataclass(frozen=True, kw_only=True)
class OptionValues:
    """All options of a pool, with the values in force."""

    num_workers: int = option("auto")
    backend: BackendName = option(None, _backend)
    start_method: StartMethod = option(None, _start_method, keeps_processes=True)
    preload: Sequence[str] = option((), module_names)
    threads_per_worker: int | None = option(1, int_from(1, or_none=True), keeps_processes=True)
    worker_env: WorkerEnv | None = option(None, keeps_processes=True, of_processes=", and share its environment")
    devices: Devices | None = option(None, keeps_processes=True, of_processes=", and see the GPUs that it sees")
    start_timeout: float | None = option(60.0, seconds())
    starts_serially: bool = option(False)
    max_worker_memory: int | None = option(
        None,
        value_of(memory_limit),
        keeps_processes=True,
        one_worker_each=True,
        of_processes=", which cannot be replaced",
        not_on_a_cluster="it takes one worker for each env, and those of a shard host several",
        needs_one_worker_each="a worker of several envs would be replaced in the middle of an episode of some",
    )
    lazy: bool = option(False, true_or_false, one_worker_each=True)
    max_concurrency: int | None = option(None, int_from(1, or_none=True), keeps_processes=True)
    pin_workers: bool | tuple[frozenset[int], ...] = option(False, _pinning, keeps_processes=True)
    name: str = option(None, value_of(lambda given: given or "remuda"))
    autoreset: AutoresetMode = option("next_step", autoreset_mode)
    resets_ahead: bool = option(False, keeps_processes=True, one_worker_each=True)
    spares: int = option(
        0,
        one_worker_each=True,
        not_on_a_cluster="a spare may back any slot, and most slots are on other machines",
        needs_one_worker_each="the slow reset of one env would hold up the others of its worker",
    )
    seeding: Seeding = option("gymnasium", one_of("gymnasium", "per_episode"))
    vector_size: int | None = option(None, int_from(1, or_none=True))
    frames: int = option(4, int_from(1, _core.MAX_FRAMES - 1))
    object_bytes: int = option(1 << 16, int_from(_LEAST_OBJECT_BYTES))
    extras: Extras | None = option(None, checked_by(check_extras))
    observation_space: Space[Any] | None = option(None, single_space)
    faults: FaultPolicy = option("raise", value_of(FaultPolicy.of), keeps_processes=True)
    crash_dir: CrashDir | None = option(
        None,
        value_of(crash_dir_for),
        keeps_processes=True,
        not_on_a_cluster="crash records would lie on the machines of the shards",
    )
    worker_output: WorkerOutput = option(
        "inherit",
        checked_by(check_output),
        keeps_processes=True,
        of_processes=" and write where it writes; use backend='process', or redirect the process",
    )
    log_advice: bool = option(True)


OPTIONS: dict[str, Option] = {one.name: one.metadata["option"] for one in fields(OptionValues)}
"""The entries of the table of options, by the option's name."""


class FaceOptions(TypedDict, total=False):
    """The options that each face adds to the parameters of the class that it replaces."""

    num_workers: int | Literal["auto"] | None
    backend: BackendName | RemoteBackend | None
    preload: Sequence[str]
    threads_per_worker: int | None
    worker_env: WorkerEnv | None
    devices: Devices | None
    start_timeout: float | None
    max_worker_memory: int | str | None
    starts_serially: bool
    lazy: bool
    pin_workers: bool | Sequence[Collection[int]]
    name: str | None
    vector_size: int | None
    resets_ahead: bool
    spares: int
    seeding: Seeding
    frames: int
    object_bytes: int
    extras: Extras | None
    faults: FaultPolicy | OnFault
    crash_dir: str | os.PathLike[str] | CrashDir | None
    worker_output: WorkerOutput
    log_advice: bool


class PoolOptions(FaceOptions, total=False):
    """The options of `remuda.Pool`, which every face takes too and hands on to its pool.

    They are keywords. Each may be left out, and then has the default that stands beside its name. A face that decides
    on one of them itself refuses it, and says why.

    Workers:
        num_workers ("auto"): The number of workers, None for one worker for each env, or "auto". Neighbouring envs
            share a worker. With None, no env suffers from the crash of another. "auto" takes as many as a short trial
            finds best. The trial builds the first env in a worker process. If that takes less than a second, the trial
            steps it, closes it, and builds it again for the pool. Otherwise each env gets a worker, as envs that render
            do, and envs in threads. `Pool.choice` has the choice and the reason. A vector env counts as one. None is
            also the default of the faces, and with faults="restart" or "resume", renewals, limits of memory, spares,
            lazy envs, threads, and resets in advance or in the background.
        backend (None): Where envs run: "process", "thread", "serial", "auto", None, or a `remuda.Ray`. "process" needs
            Linux. "thread" is for envs that release the GIL, and for Python without it. With "serial" the caller steps
            the envs, for debugging. None is "process" on Linux, else "thread", with a warning, because envs in threads
            share the GIL and a crash. "auto" is like None, or "serial" if num_workers is "auto" too, separate workers
            would gain little, and no option needs processes. An env that crashes its process then crashes yours. A
            `remuda.Ray`: the machines of a Ray cluster.
        start_method (None): How worker processes start: "forkserver", "spawn", or "fork". None means "forkserver", or
            "fork" in a program that cannot start another Python interpreter because it is frozen, as by PyInstaller, or
            embeds Python. Only workers of "fork" see patched methods and changed globals of modules. Workers of the
            fork server see those that a module in `preload` changes. With "fork", a thread of the pool forks this
            program once, before the first worker starts. The copy, the template, forks all workers and their
            successors. They have your memory, shared until it is written to, and your context variables as of that
            moment, but not your thread-local data. No lock that another thread held is ever released in them.
            Environment variables, working directory and import path are those of the time when a worker starts.
        preload (()): Modules that the fork server imports once, for all workers to share. A module that is edited or
            reloaded later is imported again for pools that are made after that.
        threads_per_worker (1): Threads that numeric libraries (OpenMP, OpenBLAS, MKL) may start in a worker; None sets
            no limit.
        worker_env (None): Environment variables of worker processes. A mapping of strings, or a function that takes the
            index of a worker and returns its mapping. The pool calls it once for each worker. The variables are set
            before anything that the factories need is imported, unless it was preloaded or, with "fork", imported here.
            Successors of workers get the same variables. So each simulator finds its GPU.
        devices (None): GPUs that worker processes take in turn. "cuda:1" or 1, as CUDA counts them in this program;
            "GPU-..." and "MIG-...", as `nvidia-smi -L` lists them; "auto" for all that this program sees, even if there
            are none. CUDA sees only that GPU in the worker (`CUDA_VISIBLE_DEVICES`), and renderers find its number
            (`MUJOCO_EGL_DEVICE_ID`, `EGL_DEVICE_ID`). `worker_info().device` names it. `worker_env` overrides these
            variables. Without a GPU of NVIDIA, a device that is named is assigned with a warning in the log.
        start_timeout (60.0): Seconds in which all envs must be built; None for no limit.
        starts_serially (False): Start one worker after another. Each starts when the one before has built its envs, in
            the order of `env_fns`, for envs that must not be built at the same time. The start takes the sum of their
            times.
        max_worker_memory (None): The memory that a worker may take: bytes, or a text such as "2GiB". A worker process
            that takes more, together with all that it has started, is replaced when its episode is over, and never
            within one. The limit counts their own memory, swapped out or not: no files, no shared memory, no memory of
            GPUs. It needs one worker for each env. `FaultPolicy.renew_every` replaces envs by episodes instead.
        lazy (False): Build envs when they are first used: by the first reset of their slot, or a call. Env 0 is built
            at the start, and its spaces are those of all. The reset raises what its factory raises; `start_timeout` is
            the limit of each build. The successor of a worker builds the envs that are used.
        max_concurrency (None): The number of workers that may run `reset` or `step` at the same time; None for no
            limit.
        pin_workers (False): Keep each worker on one core. The workers take cores in turn, once they have built their
            envs; with `devices` a core near the GPU, if the machine reports that. Or sets of cores, such as
            `[{0, 1}, {2, 3}]`, which the workers take in turn. It needs Linux. It gains little, and costs
            much if another program needs the core.
        name (None): The name of the workers in `ps` and logs; None: "remuda", or the name that a face gives them.

    Episodes:
        autoreset ("next_step"): The reset at the end of an episode: "next_step", "same_step", "disabled" or
            "background". "next_step": the next step ignores its action and resets. "same_step": the env is reset at
            once, and the terminal observation is in `Batch.final_obs`. "disabled": you call `reset(env_ids=...)`. These
            are Gymnasium's modes, and its `AutoresetMode` is accepted too. "background": the env resets by itself while
            you continue with the others, and its first observation comes with a later `recv`; until then it is in
            flight, and must not be sent anything.
        resets_ahead (False): Reset envs while you train, instead of in the next step. With "next_step", a worker resets
            an env as soon as its episode is over and the worker has nothing else to do. Steps and resets return the
            same values.
        spares (0): The number of `env_fns` that are spare envs, reset in advance. A slot with a finished episode
            continues with a spare at once, and its own env becomes a spare and resets in the background. The envs must
            be interchangeable. It needs one worker for each env.
        seeding ("gymnasium"): Whether a seed is for one reset, or for all later episodes. "gymnasium": a seed is for
            one reset, and later episodes continue the env's random numbers. "per_episode": a seed is for all later
            episodes too. Each has its own, derived from the seed, the env and the episode's number, and reported as
            `info["episode_seed"]`; see `Pool.reset`.
        vector_size (None): The number of envs in the vector env that each factory returns; None if it returns a single
            env. A vector env is a `gymnasium.vector.VectorEnv`, or has its `num_envs`, `single_observation_space`,
            `single_action_space`, `reset`, `step` and `close`. It takes as many neighbouring slots of the batch, and is
            stepped once for all of them. `autoreset` must be its own mode. Not with `spares`, `crash_dir`, per-episode
            seeds, renewals and background autoreset.

    Shared memory:
        frames (4): The number of batches in shared memory. You can hold all of them but one; further ones are copies.
        object_bytes (65536): Bytes in shared memory for pickled data, for each worker and direction. Such data are
            objects of spaces without a fixed size, irregular infos and answers to calls. Larger data goes over a
            socket, in several times the time.
        extras (None): Columns of your own: functions of an env, by name. The worker calls them after each of the env's
            resets and steps. They return a number or an array; for a vector env, an array with a row for each of its
            envs. `Batch.extras` has them. The pool finds shape and dtype by a call after the env has been built, before
            its first reset; or you declare them, as `(function, space)` or `(function, (shape, dtype))`. An exception
            of a function counts as one of its env. A function must not change the env. A `remuda.StepColumn` has a
            value for each step instead, as rewards do; not with `vector_size`.
        observation_space (None): The single-env space that rows are laid out for; None: the space that env 0 reports.

    Faults and reports:
        faults ("raise"): The reaction to an env or worker that fails: "raise", "restart", "resume", or a
            `FaultPolicy`.
        crash_dir (None): A directory for crash records, one for each fault, which `remuda replay` runs again; or a
            `CrashDir`.
        worker_output ("inherit"): The destination of stdout and stderr of worker processes, native code and children
            included. "inherit": that of the pool's process. "capture": memory, which keeps the last 256 KiB. A
            directory: `worker-<index>.log` in it, appended to. `workers[i].output()` returns the text of the last two;
            reports of deaths show its end.
        log_advice (True): Log once if another number of workers would at least double the speed. Name the options that
            continue after faults, and that replay them, in errors about faults.
    """

    start_method: StartMethod | None
    max_concurrency: int | None
    autoreset: AutoresetMode | Enum
    observation_space: Space[Any] | None
