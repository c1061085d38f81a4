"""The options of one pool: complete with defaults, and checked."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

from gymnasium import Space

from remuda import _core
from remuda._engine.options.autoreset import autoreset_name
from remuda._engine.options.extras import Extras, check_extras
from remuda._engine.options.fault_policy import FaultPolicy, policy_for
from remuda._engine.options.given import Asked
from remuda._engine.options.memory_limit import memory_limit
from remuda._engine.options.pool_options import (
    SEEDINGS,
    AutoresetMode,
    BackendName,
    Devices,
    OperationOf,
    PoolOptions,
    Seeding,
    StartMethod,
    WorkerEnv,
)
from remuda._engine.options.recording import Recording, recording_for
from remuda._engine.options.remote_backend import RemoteBackend
from remuda._engine.options.timeouts import check_timeout
from remuda._engine.options.trace_directory import trace_directory
from remuda._engine.stats.choice import Choice
from remuda._engine.stats.snapshot import Setup
from remuda._relay.output import WorkerOutput, check_output
from remuda._relay.receiver import ShownWarnings
from remuda._wire.layout import AUTORESET

BACKENDS = ("process", "thread", "serial")

# Of a pool whose caller says nothing about it, and whose other options do not ask for one worker an env.
DEFAULT_NUM_WORKERS: Literal["auto"] | None = "auto"

_LEAST_OBJECT_BYTES = 4096

# Options that only processes have, the value that others must have, and why.
_OF_PROCESSES = (
    ("worker_env", None, ", and share its environment"),
    ("devices", None, ", and see the GPUs that it sees"),
    ("max_worker_memory", None, ", which nobody replaces"),
    ("worker_output", "inherit", " and write where it writes; use backend='process', or redirect the process"),
)


@dataclass(frozen=True)
class Settings:
    """How a pool runs its envs: `PoolOptions`, which says what each means, complete with defaults, and checked."""

    num_envs: int  # the spares counted
    num_workers: int
    backend: BackendName = "process"
    start_method: StartMethod = "forkserver"
    autoreset: AutoresetMode = "next_step"
    frames: int = 4
    object_bytes: int = 1 << 16
    observation_space: Space[Any] | None = None
    extras: Extras | None = None
    preload: Sequence[str] = field(default_factory=tuple)
    threads_per_worker: int | None = 1
    worker_env: WorkerEnv | None = None
    devices: Devices | None = None
    start_timeout: float | None = 60.0
    max_worker_memory: int | None = None
    max_concurrency: int | None = None
    pin_workers: bool = False
    worker_output: WorkerOutput = "inherit"
    name: str = "remuda"
    faults: FaultPolicy = field(default_factory=FaultPolicy)
    record: Recording | None = None
    trace_on_fault: Path | None = None
    spares: int = 0
    seeding: Seeding = "gymnasium"
    vector_size: int | None = None
    resets_ahead: bool = False
    lazy: bool = False
    starts_serially: bool = False
    measures: bool = False  # how many workers there are to be; until then, one for each env
    may_step_itself: bool = False  # whether the caller may step the envs instead, where measuring finds that best
    choice: Choice | None = None  # what measuring has found best
    advise: bool = True
    operation_of: OperationOf | None = None
    asked: Asked = field(default_factory=Asked)
    first_env: int = 0  # its number among the envs of a larger pool, of which this is a part on another machine
    shown_warnings: ShownWarnings = field(default_factory=dict)  # of workers, so that none is shown twice

    @classmethod
    def of(cls, options: PoolOptions, num_factories: int, shown_warnings: ShownWarnings) -> Settings:
        """What a caller's options mean for so many factories.

        Raises:
            ValueError, TypeError: One that cannot be.
            OSError: The directory for `record` or `trace_on_fault` cannot be made or written to.
        """
        asked = options.get("backend", "process")
        if isinstance(asked, RemoteBackend):
            raise TypeError(
                f"expected backend to be one of {('auto', *BACKENDS)}, got {asked!r}: other machines are for "
                "remuda.Pool itself, for remuda.gymnasium and for remuda.sb3"
            )
        backend = "process" if asked == "auto" else asked
        faults = policy_for(options.get("faults", "raise"), backend)
        num_workers = options["num_workers"] if "num_workers" in options else _default_num_workers(options, faults)
        is_auto = isinstance(num_workers, str) and num_workers == "auto"
        resolved = {
            "num_envs": num_factories * (check_vector_size(options.get("vector_size")) or 1),
            "num_workers": num_factories if is_auto or num_workers is None else num_workers,
            "backend": backend,
            "start_method": options.get("start_method") or "forkserver",
            "autoreset": autoreset_name(options.get("autoreset", "next_step")),
            "max_worker_memory": memory_limit(options.get("max_worker_memory")),
            "preload": check_preload(options.get("preload", ())),
            "faults": faults,
            "record": recording_for(options.get("record")),
            "trace_on_fault": trace_directory(options.get("trace_on_fault")),
            "name": options.get("name") or "remuda",
            "shown_warnings": shown_warnings,
            "asked": Asked.of(options, faults, defaults_of_options()),
        }
        settings = cls(**{**options, **resolved})  # the rest are these fields as they are
        return settings._leaving_open(may_step_itself=asked == "auto") if is_auto else settings

    def _leaving_open(self, *, may_step_itself: bool) -> Settings:
        """These, with what "auto" stands for still to be measured, unless it is known already."""
        for has_it, what in ((self.spares, "spares"), (self.max_worker_memory, "envs whose workers are watched")):
            if has_it:
                return replace(self, choice=Choice(self.num_workers, self.workers_are, f"{what} have a worker each"))
        if self.backend == "serial":
            one = Choice(1, "serial", "the caller steps all envs, one after another")
            return replace(self, num_workers=1, choice=one)
        return replace(self, measures=True, may_step_itself=may_step_itself and not self.asked.needs_processes)

    @property
    def options(self) -> dict[str, Any]:
        """Every one of `PoolOptions`, with the value that is in force."""
        return {name: getattr(self, name) for name in PoolOptions.__annotations__}

    def __post_init__(self) -> None:
        if self.num_envs < 1:
            raise ValueError("expected at least one env, got an empty list of env_fns")
        self._check_workers()
        for name in ("max_concurrency", "threads_per_worker"):
            number = getattr(self, name)
            if number is not None and not (_is_int(number) and number >= 1):
                raise ValueError(f"expected {name} to be an int from 1 up, or None, got {number!r}")
        if self.backend not in BACKENDS:
            raise ValueError(f"expected backend to be one of {('auto', *BACKENDS)}, got {self.backend!r}")
        if self.autoreset not in tuple(AUTORESET):
            raise ValueError(f"expected autoreset to be one of {tuple(AUTORESET)}, got {self.autoreset!r}")
        if self.seeding not in SEEDINGS:
            raise ValueError(f"expected seeding to be one of {SEEDINGS}, got {self.seeding!r}")
        if not _is_int(self.frames) or not 1 <= self.frames < _core.MAX_FRAMES:
            raise ValueError(f"expected frames to be an int from 1 to {_core.MAX_FRAMES - 1}, got {self.frames!r}")
        if not _is_int(self.object_bytes) or self.object_bytes < _LEAST_OBJECT_BYTES:
            raise ValueError(
                f"expected object_bytes to be an int from {_LEAST_OBJECT_BYTES} up, got {self.object_bytes!r}"
            )
        if self.observation_space is not None and not isinstance(self.observation_space, Space):
            raise TypeError(
                f"expected observation_space to be a gymnasium.Space or None, got {self.observation_space!r}"
            )
        check_extras(self.extras)
        if not isinstance(self.lazy, bool):
            raise TypeError(f"expected lazy to be True or False, got {self.lazy!r}")
        self._check_vectors()
        self._check_spares()
        self._check_resets_ahead()
        self._check_memory()
        check_output(self.worker_output)
        self._check_processes()
        check_timeout(self.start_timeout, "start_timeout")
        if self.start_timeout is not None and self.start_timeout < 0:
            raise ValueError(f"expected start_timeout to be at least 0, or None, got {self.start_timeout}")

    def _check_workers(self) -> None:
        most, what = self.num_envs // self.width, "envs" if self.vector_size is None else "vector envs"
        if not _is_int(self.num_workers) or not 1 <= self.num_workers <= most:
            raise ValueError(
                f"expected num_workers to be 'auto', None, or an int from 1 to {most} (the number of {what}), "
                f"got {self.num_workers!r}"
            )

    def _check_vectors(self) -> None:
        """What needs envs that can be reset, built or recorded one by one."""
        if self.vector_size is None:
            return
        refused = [
            (self.spares != 0, "spares=0", self.spares),
            (self.autoreset == "background", "autoreset='next_step', 'same_step' or 'disabled'", self.autoreset),
            (self.resets_ahead, "resets_ahead=False", self.resets_ahead),
            (self.faults.renew_every is not None, "renew_every=None", self.faults.renew_every),
            (self.max_worker_memory is not None, "max_worker_memory=None", self.max_worker_memory),
            (self.record is not None, "record=None", self.record),
            (self.seeding == "per_episode", "seeding='gymnasium'", self.seeding),
        ]
        for is_refused, expected, got in refused:
            if is_refused:
                raise ValueError(
                    f"expected {expected} with vector_size={self.vector_size}, got {got!r}: the envs in a vector env "
                    "are neither reset nor built one by one"
                )
        if self.faults.restarts and self.backend != "process":
            raise ValueError(
                f"expected backend='process' with vector_size={self.vector_size} and faults='restart', got "
                f"{self.backend!r}: a vector env that failed is built anew with its process"
            )

    def _check_spares(self) -> None:
        if not _is_int(self.spares) or not 0 <= self.spares < self.num_envs:
            raise ValueError(
                f"expected spares to be an int from 0 to {self.num_envs - 1} (one less than there are env_fns), "
                f"got {self.spares!r}"
            )
        if self.spares and self.num_workers != self.num_envs:
            raise ValueError(
                f"expected num_workers=None (one for each env) with spares={self.spares}, got {self.num_workers}: "
                "the slow reset of one env would hold up the others of its worker"
            )
        if self.spares and self.max_concurrency is not None:
            raise ValueError(
                f"expected max_concurrency=None with spares={self.spares}, got {self.max_concurrency}: "
                "spares reset while others step"
            )

    def _check_resets_ahead(self) -> None:
        if self.resets_ahead and self.autoreset not in {"next_step", "background"}:
            raise ValueError(
                f"expected autoreset='next_step' with resets_ahead=True, got {self.autoreset!r}: with 'same_step' an "
                "env is reset within the step that ends its episode, with 'disabled' when it is told to"
            )
        if self.resets_ahead and self.max_concurrency is not None:
            raise ValueError(
                f"expected max_concurrency=None with resets_ahead=True, got {self.max_concurrency}: who resets in "
                "advance does so beside others that step"
            )

    def _check_processes(self) -> None:
        if self.backend == "process":
            return
        for name, expected, why in _OF_PROCESSES:
            if (got := getattr(self, name)) != expected:
                raise ValueError(
                    f"expected {name}={expected!r} for backend={self.backend!r}, got {got!r}: its workers run in this "
                    f"process{why}"
                )

    def _check_memory(self) -> None:
        if self.max_worker_memory is not None and self.num_workers != self.num_envs:
            raise ValueError(
                f"expected num_workers=None (one for each env) with max_worker_memory={self.max_worker_memory}, got "
                f"{self.num_workers}: a worker of several envs would be replaced in the middle of an episode of some"
            )

    @property
    def workers_are(self) -> Literal["process", "thread"]:
        """What backend workers have, if there are any beside the caller."""
        return "thread" if self.backend == "thread" else "process"

    @property
    def width(self) -> int:
        """How many envs, which are neighbours, come from one factory."""
        return self.vector_size or 1

    @property
    def has_resets_ahead(self) -> bool:
        """Whether a worker resets an env as soon as its episode is over, and not when it is told to."""
        wanted = self.resets_ahead or self.spares > 0 or self.autoreset == "background"
        return wanted and self.max_concurrency is None

    def setup(self, parts: int) -> Setup:
        """What its figures depend on. `parts`: into which the pool is split."""
        return Setup(
            envs_of_worker=self.envs_of_worker(),
            backend=self.backend,
            autoreset=self.autoreset,
            spares=self.spares,
            resets_ahead=self.resets_ahead,
            vector_size=self.vector_size,
            is_chosen=self.choice is not None,
            parts=parts,
            options=self.asked.options,
            keeps_apart=self.asked.keeps_apart,
            needs_processes=self.asked.needs_processes,
        )

    @property
    def has_successors(self) -> bool:
        """Whether a worker may have to be replaced."""
        return self.backend == "process" and self.rebuilds

    @property
    def rebuilds(self) -> bool:
        """Whether an env may have to be built anew."""
        return self.faults.restarts or self.faults.renew_every is not None or self.max_worker_memory is not None

    def envs_of_worker(self) -> tuple[int, ...]:
        """Neighbouring envs share a worker, and with it cache lines; the first workers take what is left over."""
        share, rest = divmod(self.num_envs // self.width, self.num_workers)
        return tuple((share + (w < rest)) * self.width for w in range(self.num_workers))


def _default_num_workers(options: PoolOptions, faults: FaultPolicy) -> Literal["auto"] | None:
    """None where envs are not to wait for, or suffer from, each other, or would be measured in the caller's process."""
    goes_on_without_some = options.get("spares") or options.get("resets_ahead")
    is_background = autoreset_name(options.get("autoreset", "next_step")) == "background"
    renews = faults.restarts or faults.renew_every is not None or options.get("max_worker_memory") is not None
    one_each = (
        renews or options.get("lazy") or goes_on_without_some or is_background or options.get("backend") == "thread"
    )
    return None if one_each else DEFAULT_NUM_WORKERS


def defaults_of_options() -> dict[str, Any]:
    """The values of options that are not given."""
    return {
        one.name: one.default if one.default_factory is MISSING else one.default_factory()
        for one in fields(Settings)
        if one.name in PoolOptions.__annotations__
    } | {"num_workers": "auto", "start_method": None, "name": None}


def signature_of_pool() -> inspect.Signature:
    """Returns the signature of a pool: `env_fns`, and each of `PoolOptions` as a keyword with its default."""
    kind, defaults = inspect.Parameter, defaults_of_options()
    env_fns = kind("env_fns", kind.POSITIONAL_OR_KEYWORD, annotation="Sequence[EnvFn]")
    types = {name: getattr(one, "__forward_arg__", one) for name, one in PoolOptions.__annotations__.items()}
    options = [kind(name, kind.KEYWORD_ONLY, default=defaults[name], annotation=types[name]) for name in types]
    return inspect.Signature([env_fns, *options])


def check_vector_size(vector_size: Any) -> int | None:
    if vector_size is not None and not (_is_int(vector_size) and vector_size >= 1):
        raise ValueError(f"expected vector_size to be an int from 1 up, or None, got {vector_size!r}")
    return None if vector_size is None else int(vector_size)


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def check_preload(preload: Sequence[str]) -> tuple[str, ...]:
    if isinstance(preload, str):
        raise TypeError(f"expected preload to be a sequence of module names, got {preload!r}; write [{preload!r}]")
    return tuple(preload)
