"""The options of a pool: their names, types, defaults and meanings, for `Pool` and for every face."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, Literal, TypeAlias, TypedDict

from gymnasium import Space

from remuda._engine.options.extras import Extras
from remuda._engine.options.fault_policy import FaultPolicy, OnFault
from remuda._engine.options.recording import Recording
from remuda._engine.options.remote_backend import RemoteBackend
from remuda._relay.output import WorkerOutput
from remuda.errors import EnvProgress

EnvFn: TypeAlias = Callable[[], Any]
BackendName: TypeAlias = Literal["auto", "process", "thread", "serial"]
StartMethod: TypeAlias = Literal["forkserver", "spawn", "fork"]
WorkerEnv: TypeAlias = Mapping[str, str] | Callable[[int], Mapping[str, str]]
Devices: TypeAlias = Sequence[int | str] | Literal["auto"]
AutoresetMode: TypeAlias = Literal["next_step", "same_step", "disabled", "background"]

Seeding: TypeAlias = Literal["gymnasium", "per_episode"]
OperationOf: TypeAlias = Callable[[str, EnvProgress], tuple[str, EnvProgress]]

SEEDINGS = ("gymnasium", "per_episode")


class FaceOptions(TypedDict, total=False):
    """The options of `PoolOptions` that no face has among the parameters of what it stands for."""

    num_workers: int | Literal["auto"] | None
    backend: BackendName | RemoteBackend
    preload: Sequence[str]
    threads_per_worker: int | None
    worker_env: WorkerEnv | None
    devices: Devices | None
    start_timeout: float | None
    max_worker_memory: int | str | None
    starts_serially: bool
    lazy: bool
    pin_workers: bool
    name: str | None
    vector_size: int | None
    resets_ahead: bool
    spares: int
    seeding: Seeding
    frames: int
    object_bytes: int
    extras: Extras | None
    faults: FaultPolicy | OnFault
    record: str | os.PathLike[str] | Recording | None
    trace_on_fault: str | os.PathLike[str] | None
    worker_output: WorkerOutput
    advise: bool
    operation_of: OperationOf | None


class PoolOptions(FaceOptions, total=False):
    """The options of `remuda.Pool`, which every face takes too and hands on to its pool.

    They are keywords, and each may be left out; its default is in brackets. A face that decides on one of them itself
    refuses it, and says why.

    Workers:
        num_workers ("auto"): Workers to share the envs; neighbours share a worker. "auto": as many as a trial of a
            moment finds best: the first env is built, and if that is quick, tried and built again; else each env gets a
            worker, as envs that render do. `Pool.choice` tells what was chosen and why. A number, or None for one
            worker each, so that none suffers from another's crash: then nothing is tried. Of vector envs, each counts
            as one. None is also the default of the faces, and with faults="restart", renewals, spares, threads, and
            resets in advance or in the
            background.
        backend ("process"): "process" (Linux), "thread" (envs that release the GIL), or "serial" (the caller steps
            them: for debugging). "auto": "process"; or "serial" where num_workers is "auto" too, workers that must be
            woken would gain little, and no option asks for what only processes have. An env that brings down its
            process then brings down yours. A `remuda.Ray`: on the machines of a Ray cluster.
        start_method (None): How worker processes start: "forkserver" (None means that), "spawn", or "fork".
        preload (()): Modules that the fork server imports once, for all workers to share. Once one is edited or
            reloaded, it is imported anew for pools that are made from then on.
        threads_per_worker (1): Threads that numeric libraries (OpenMP, OpenBLAS, MKL) may start in a worker; None
            leaves them alone.
        worker_env (None): Environment variables of worker processes: a mapping of strings, or a function that gets the
            index of a worker and returns its mapping, called here once for each. They are set before anything that the
            factories need is imported, unless it was preloaded or, with "fork", here; successors of workers get the
            same. So each simulator finds its GPU, or its port.
        devices (None): GPUs that worker processes take in turn: "cuda:1" or 1, as CUDA counts them in this program;
            "GPU-..." and "MIG-...", as `nvidia-smi -L` has them; "auto" for all that this program sees, be it none.
            In the worker CUDA sees that one alone (`CUDA_VISIBLE_DEVICES`), and renderers find its number
            (`MUJOCO_EGL_DEVICE_ID`, `EGL_DEVICE_ID`). `worker_info().device` names it; `worker_env` has the last word.
        start_timeout (60.0): Seconds for all envs to be built; None for no limit.
        starts_serially (False): Start a worker only when the one before has built its envs, in the order of `env_fns`:
            for envs that must not be built side by side. It takes the sum of their times.
        max_worker_memory (None): Bytes, or a text such as "2GiB": a worker process that takes more, together with all
            that it has started, is replaced when its episode is over, and never within one. What counts is memory of
            their own, swapped out or not: no files, no shared memory, no GPU's. For one worker for each env only.
            `FaultPolicy.renew_every` goes by episodes instead.
        lazy (False): Build envs when they are first used: by the first reset of their slot, or a call. Env 0 is built
            at the start, and its spaces are those of all. What fails is told by that reset; `start_timeout` is the
            limit of each build. A worker's successor builds what it is asked for.
        max_concurrency (None): At most so many workers run `reset` or `step` at the same time; None for no limit.
        pin_workers (False): Keep each worker process to a core, in turn, once it has built its envs; with `devices` to
            one of those near its GPU, where the machine tells. It gained nothing where we measured it, and costs a lot
            where something else wants the core.
        name (None): Of the workers, as `ps` and logs show them; None: "remuda", or what the face calls them.

    Episodes:
        autoreset ("next_step"): What happens when an episode ends. "next_step": the next step ignores its action and
            resets; "same_step": the env is reset at once, the terminal observation is in `Batch.final_obs`; "disabled":
            nothing, call `reset(env_ids=...)`. The meanings are Gymnasium's, whose `AutoresetMode` will do, too.
            "background": it resets by itself while you go on with the others, and its first observation comes with a
            later `recv`; until then it is in flight, and must not be sent anything.
        resets_ahead (False): With "next_step": a worker resets an env whose episode is over as soon as it has nothing
            else to do, instead of when the next step asks for it, so that slow resets run while you train. What steps
            and resets return is the same.
        spares (0): So many of `env_fns` are spare envs, reset in advance: a slot whose episode is over goes on with one
            of them at once, and its own becomes a spare and resets in the background. They must be interchangeable.
            With one worker for each env only.
        seeding ("gymnasium"): What a seed is good for. "gymnasium": for one reset; the episodes that follow go on with
            the env's random numbers. "per_episode": for all that follow too: each has a seed of its own, derived from
            the seed, the env and the episode's number, and told as `info["episode_seed"]`; see `Pool.reset`.
        vector_size (None): Each factory returns a vector env of so many envs (`gymnasium.vector.VectorEnv`, or what has
            its `num_envs`, `single_observation_space`, `single_action_space`, `reset`, `step` and `close`), which takes
            so many neighbouring slots of the batch and is stepped once for all of them. `autoreset` must be its own.
            None: it returns a single env. Not with `spares`, `record`, per-episode seeds, renewals and background
            autoreset.

    Shared memory:
        frames (4): How many batches you can hold, as views of shared memory, before further ones are copied out.
        object_bytes (65536): Bytes in shared memory, for each worker and in each direction, for what travels pickled:
            objects of spaces without a fixed size, irregular infos, answers to calls. What is larger goes over a
            socket, in several times the time.
        extras (None): Columns of your own, by name: functions that are called with the env after each of its resets and
            steps, in its worker, and return a number or an array; with a vector env, an array with a row for each of
            its envs. `Batch.extras` has them. Shape and dtype are found by calling the function when the env has been
            built, before its first reset; or they are declared, as `(function, space)` or
            `(function, (shape, dtype))`. What a function raises counts as raised by its env. A function must not change
            the env.
        observation_space (None): Lay rows out for this single-env space; None: for the one that env 0 reports.

    Faults and reports:
        faults ("raise"): What happens when an env or its worker fails: "raise", "restart", or a `FaultPolicy`.
        record (None): A directory for crash records, one for each fault, that `remuda replay` runs again; or a
            `Recording`.
        trace_on_fault (None): A directory for traces of what came before faults, the last minute of it, 20 at most: see
            `Pool.trace`.
        worker_output ("inherit"): Where stdout and stderr of worker processes go, native code and children included.
            "inherit": where the pool's go; "capture": into memory, the last 256 KiB of it; a directory: appended to its
            `worker-<index>.log`. `workers[i].output()` reads the latter two back; reports of deaths show their end.
        advise (True): Log once when another number of workers would be several times faster.
        operation_of (None): Where steps or calls stand for other operations, as in a face: gets the operation ("step")
            and the `EnvProgress` that a report of a fault would have, and returns those that it is to have.
    """

    start_method: StartMethod | None
    max_concurrency: int | None
    autoreset: AutoresetMode | Enum
    observation_space: Space[Any] | None
