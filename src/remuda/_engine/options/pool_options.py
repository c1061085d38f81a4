"""The table of options of a pool: the type, default, check, meaning and needs of each.

A new option is a field of `OptionValues` and a key of `FaceOptions` or `PoolOptions`. Pairs of options that exclude
each other are in `refusals.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypedDict

from gymnasium import Space

from remuda import _core
from remuda._engine.options.autoreset import autoreset_mode
from remuda._engine.options.checks import (
    any_value,
    checked_by,
    directory,
    int_from,
    memory_limit,
    module_names,
    one_of,
    or_else,
    seconds,
    single_space,
    true_or_false,
    value_of,
)
from remuda._engine.options.extras import Extras, check_extras
from remuda._engine.options.fault_policy import FaultPolicy, OnFault
from remuda._engine.options.option import documentation, option, options_of
from remuda._engine.options.recording import Recording, recording_for
from remuda._relay.output import WorkerOutput, check_output
from remuda.errors import EnvProgress

EnvFn: TypeAlias = Callable[[], Any]
BackendName: TypeAlias = Literal["auto", "process", "thread", "serial"]
StartMethod: TypeAlias = Literal["forkserver", "spawn", "fork"]
WorkerEnv: TypeAlias = Mapping[str, str] | Callable[[int], Mapping[str, str]]
Devices: TypeAlias = Sequence[int | str] | Literal["auto"]
AutoresetMode: TypeAlias = Literal["next_step", "same_step", "disabled", "background"]
Seeding: TypeAlias = Literal["gymnasium", "per_episode"]
OperationOf: TypeAlias = Callable[[str, EnvProgress], tuple[str, EnvProgress]]

BACKENDS = ("process", "thread", "serial")
_LEAST_OBJECT_BYTES = 4096


class RemoteBackend:
    """The base of `backend=` for envs on other machines. Names the class of the pool that drives them from here."""

    def pool_type(self) -> type[Any]:
        """Returns the class of that pool, which takes what `Pool` takes."""
        raise NotImplementedError


def _backend(_: str, given: Any) -> BackendName:
    if isinstance(given, RemoteBackend):
        raise TypeError(
            f"expected backend to be one of {('auto', *BACKENDS)}, got {given!r}: other machines are for "
            "remuda.Pool itself, for remuda.gymnasium and for remuda.sb3"
        )
    if given not in ("auto", *BACKENDS):
        raise ValueError(f"expected backend to be one of {('auto', *BACKENDS)}, got {given!r}")
    return "process" if given == "auto" else given


@dataclass(frozen=True, kw_only=True)
class OptionValues:
    """Every option, with the value in force."""

    num_workers: int = option(
        "auto",
        any_value,
        """Workers to share the envs; neighbours share a worker. "auto": as many as a short trial finds best. The first
        env is built, and if that is quick, stepped and built again; else each env gets a worker, as envs that
        render do. `Pool.choice` tells what was chosen and why. A number, or None for one worker each, so that no
        env suffers from another's crash: then nothing is tried. A vector env counts as one. None is also the
        default of the faces, and with faults="restart", renewals, spares, threads, and resets in advance or in the
        background.""",
    )
    backend: BackendName = option(
        "process",
        _backend,
        """"process" (Linux), "thread" (envs that release the GIL), or "serial" (the caller steps them: for debugging).
        "auto": "process"; or "serial" where num_workers is "auto" too, separate workers would gain little, and no
        option asks for what only processes have. An env that brings down its process then brings down yours. A
        `remuda.Ray`: on the machines of a Ray cluster.""",
    )
    start_method: StartMethod = option(
        None,
        one_of("forkserver", "spawn", "fork", none="forkserver"),
        """How worker processes start: "forkserver" (None means that), "spawn", or "fork".""",
        keeps_processes=True,
    )
    preload: Sequence[str] = option(
        (),
        module_names,
        """Modules that the fork server imports once, for all workers to share. A module that is edited or reloaded
        later is imported anew for pools that are made from then on.""",
    )
    threads_per_worker: int | None = option(
        1,
        int_from(1, or_none=True),
        """Threads that numeric libraries (OpenMP, OpenBLAS, MKL) may start in a worker; None leaves them alone.""",
        keeps_processes=True,
    )
    worker_env: WorkerEnv | None = option(
        None,
        any_value,
        """Environment variables of worker processes: a mapping of strings, or a function that gets the index of a
        worker and returns its mapping, called here once for each. They are set before anything that the factories
        need is imported, unless it was preloaded or, with "fork", imported here; successors of workers get the
        same. So each simulator finds its GPU, or its port.""",
        keeps_processes=True,
        of_processes=", and share its environment",
    )
    devices: Devices | None = option(
        None,
        any_value,
        """GPUs that worker processes take in turn: "cuda:1" or 1, as CUDA counts them in this program; "GPU-..." and
        "MIG-...", as `nvidia-smi -L` has them; "auto" for all that this program sees, even if there are none. In
        the worker CUDA sees that one alone (`CUDA_VISIBLE_DEVICES`), and renderers find its number
        (`MUJOCO_EGL_DEVICE_ID`, `EGL_DEVICE_ID`). `worker_info().device` names it; `worker_env` has the last word.""",
        keeps_processes=True,
        of_processes=", and see the GPUs that it sees",
    )
    start_timeout: float | None = option(
        60.0,
        seconds,
        """Seconds for all envs to be built; None for no limit.""",
    )
    starts_serially: bool = option(
        False,
        any_value,
        """Start a worker only when the one before has built its envs, in the order of `env_fns`: for envs that must
        not be built side by side. It takes the sum of their times.""",
        not_on_a_cluster="shards start beside each other",
    )
    max_worker_memory: int | None = option(
        None,
        value_of(memory_limit),
        """Bytes, or a text such as "2GiB": a worker process that takes more, together with all that it has started, is
        replaced when its episode is over, and never within one. What counts is memory of their own, swapped out or
        not: no files, no shared memory, no GPU's. For one worker for each env only. `FaultPolicy.renew_every` goes
        by episodes instead.""",
        keeps_processes=True,
        one_worker_each=True,
        of_processes=", which nobody replaces",
        not_on_a_cluster="it takes one worker for each env, and those of a shard host several",
        needs_one_worker_each="a worker of several envs would be replaced in the middle of an episode of some",
    )
    lazy: bool = option(
        False,
        true_or_false,
        """Build envs when they are first used: by the first reset of their slot, or a call. Env 0 is built at the
        start, and its spaces are those of all. What fails is raised by that reset; `start_timeout` is the limit of
        each build. A worker's successor builds what it is asked for.""",
        one_worker_each=True,
    )
    max_concurrency: int | None = option(
        None,
        int_from(1, or_none=True),
        """At most so many workers run `reset` or `step` at the same time; None for no limit.""",
        keeps_processes=True,
        not_on_a_cluster="no shard knows what the others do; the number of workers limits each",
    )
    pin_workers: bool = option(
        False,
        any_value,
        """Keep each worker process to a core, in turn, once it has built its envs; with `devices` to one of those near
        its GPU, where the machine tells. It gained nothing in our measurements, and costs a lot where another
        program needs the core.""",
        keeps_processes=True,
    )
    name: str = option(
        None,
        or_else("remuda"),
        """Of the workers, as `ps` and logs show them; None: "remuda", or what the face calls them.""",
    )
    autoreset: AutoresetMode = option(
        "next_step",
        autoreset_mode,
        """What happens when an episode ends. "next_step": the next step ignores its action and resets; "same_step":
        the env is reset at once, the terminal observation is in `Batch.final_obs`; "disabled": nothing, call
        `reset(env_ids=...)`. The meanings are Gymnasium's, whose `AutoresetMode` will do, too. "background": it
        resets by itself while you go on with the others, and its first observation comes with a later `recv`; until
        then it is in flight, and must not be sent anything.""",
    )
    resets_ahead: bool = option(
        False,
        any_value,
        """With "next_step": a worker resets an env whose episode is over as soon as it has nothing else to do, instead
        of when the next step asks for it, so that slow resets run while you train. What steps and resets return is
        the same.""",
        keeps_processes=True,
        one_worker_each=True,
    )
    spares: int = option(
        0,
        any_value,
        """So many of `env_fns` are spare envs, reset in advance: a slot whose episode is over goes on with one of them
        at once, and its own becomes a spare and resets in the background. They must be interchangeable. With one
        worker for each env only.""",
        one_worker_each=True,
        not_on_a_cluster="a spare cannot back a slot of another shard",
        needs_one_worker_each="the slow reset of one env would hold up the others of its worker",
    )
    seeding: Seeding = option(
        "gymnasium",
        one_of("gymnasium", "per_episode"),
        """What a seed is good for. "gymnasium": for one reset; the episodes that follow go on with the env's random
        numbers. "per_episode": for all that follow too: each has a seed of its own, derived from the seed, the env
        and the episode's number, and told as `info["episode_seed"]`; see `Pool.reset`.""",
    )
    vector_size: int | None = option(
        None,
        int_from(1, or_none=True),
        """Each factory returns a vector env of so many envs (`gymnasium.vector.VectorEnv`, or what has its `num_envs`,
        `single_observation_space`, `single_action_space`, `reset`, `step` and `close`), which takes so many
        neighbouring slots of the batch and is stepped once for all of them. `autoreset` must be its own. None: it
        returns a single env. Not with `spares`, `record`, per-episode seeds, renewals and background autoreset.""",
    )
    frames: int = option(
        4,
        int_from(1, _core.MAX_FRAMES - 1),
        """How many batches you can hold, as views of shared memory, before further ones are copied out.""",
    )
    object_bytes: int = option(
        1 << 16,
        int_from(_LEAST_OBJECT_BYTES),
        """Bytes in shared memory, for each worker and in each direction, for what travels pickled: objects of spaces
        without a fixed size, irregular infos, answers to calls. What is larger goes over a socket, in several times
        the time.""",
    )
    extras: Extras | None = option(
        None,
        checked_by(check_extras),
        """Columns of your own, by name: functions that are called with the env after each of its resets and steps, in
        its worker, and return a number or an array; with a vector env, an array with a row for each of its envs.
        `Batch.extras` has them. Shape and dtype are found by calling the function when the env has been built,
        before its first reset; or they are declared, as `(function, space)` or `(function, (shape, dtype))`. What a
        function raises counts as raised by its env. A function must not change the env.""",
    )
    observation_space: Space[Any] | None = option(
        None,
        single_space,
        """Lay rows out for this single-env space; None: for the one that env 0 reports.""",
    )
    faults: FaultPolicy = option(
        "raise",
        value_of(FaultPolicy.of),
        """What happens when an env or its worker fails: "raise", "restart", or a `FaultPolicy`.""",
        keeps_processes=True,
    )
    record: Recording | None = option(
        None,
        value_of(recording_for),
        """A directory for crash records, one for each fault, that `remuda replay` runs again; or a `Recording`.""",
        keeps_processes=True,
        not_on_a_cluster="crash records would lie on the machines of the shards",
    )
    trace_on_fault: Path | None = option(
        None,
        directory,
        """A directory for traces of what came before faults, the last minute of it, 20 at most: see `Pool.trace`.""",
        not_on_a_cluster="a trace is of one machine, by its clock",
    )
    worker_output: WorkerOutput = option(
        "inherit",
        checked_by(check_output),
        """Where stdout and stderr of worker processes go, native code and children included. "inherit": where the
        pool's go; "capture": into memory, the last 256 KiB of it; a directory: appended to its
        `worker-<index>.log`. `workers[i].output()` reads the latter two back; reports of deaths show their end.""",
        keeps_processes=True,
        of_processes=" and write where it writes; use backend='process', or redirect the process",
    )
    advise: bool = option(
        True,
        any_value,
        """Log once when another number of workers would be several times faster.""",
    )
    operation_of: OperationOf | None = option(
        None,
        any_value,
        """Where steps or calls stand for other operations, as in a face: gets the operation ("step") and the
        `EnvProgress` that a report of a fault would have, and returns those that it is to have.""",
        not_on_a_cluster="it belongs to faces, which run on this machine",
    )


OPTIONS = options_of(OptionValues)
"""The table's entries, by name."""


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
    start_method: StartMethod | None
    max_concurrency: int | None
    autoreset: AutoresetMode | Enum
    observation_space: Space[Any] | None


_SECTIONS = {
    "num_workers": "Workers",
    "autoreset": "Episodes",
    "frames": "Shared memory",
    "faults": "Faults and reports",
}

PoolOptions.__doc__ = f"""The options of `remuda.Pool`, which every face takes too and hands on to its pool.

    They are keywords, and each may be left out; its default is in brackets. A face that decides on one of them itself
    refuses it, and says why.
{documentation(OPTIONS, _SECTIONS)}"""
