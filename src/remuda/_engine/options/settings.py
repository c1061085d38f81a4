"""The options of one pool, checked and completed by the defaults."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from remuda._engine.options.checks import int_from, is_int
from remuda._engine.options.fault_policy import FaultPolicy
from remuda._engine.options.pool_options import OPTIONS, OptionValues, PoolOptions
from remuda._engine.options.refusals import check_pairs
from remuda._engine.stats.choice import WorkerChoice, one_each
from remuda._relay.receiver import ShownWarnings
from remuda._system.machine import backend_here
from remuda._wire.autoreset import AUTORESET_MODES, AutoresetMode

# The default of `num_workers` if no other option needs one worker for each env.
DEFAULT_NUM_WORKERS: Literal["auto"] | None = "auto"


@dataclass(frozen=True, kw_only=True)
class Settings(OptionValues):
    """The options in force of a pool, and facts that the pool has measured or derived from them."""

    num_envs: int  # the number of envs, spares included.
    num_workers: int  # with "auto", one for each env until a trial has chosen the number.
    measures: bool = False  # whether a trial must still choose the number of workers.
    may_step_itself: bool = False  # whether the trial may choose that the caller steps the envs.
    choice: WorkerChoice | None = None  # the choice of num_workers="auto"; None before it is made
    was_tried: bool = False  # whether env 0 was built for a trial, and must be built again.
    keeps_apart: bool = False  # whether the options need a worker for each env, so that no env suffers from another.
    is_remote: bool = False  # whether other machines step the envs.
    needs_processes: bool = False  # whether an option, such as a deadline, needs worker processes.
    keeps_last: bool = False  # whether the last result of each env is always kept.
    dealt: tuple[int, ...] | None = None  # the number of envs of each worker; None: equal shares.
    shown_warnings: ShownWarnings = field(default_factory=dict)  # the warnings of workers that were shown

    @classmethod
    def of(cls, options: PoolOptions, num_factories: int) -> Settings:
        """Returns the settings for a caller's options and this number of factories. Raises the errors of `Pool`."""
        given = {name: options.get(name, option.default) for name, option in OPTIONS.items()}
        values = {name: option.check(name, given[name]) for name, option in OPTIONS.items()}
        if given["backend"] is None:
            backend_here()
        num_workers = given["num_workers"] if "num_workers" in options else _default_num_workers(values)
        is_auto = isinstance(num_workers, str) and num_workers == "auto"
        values["num_workers"] = num_factories if is_auto or num_workers is None else num_workers
        settings = cls(
            num_envs=num_factories * (values["vector_size"] or 1),
            keeps_apart=values["faults"] != FaultPolicy() or values["max_worker_memory"] is not None,
            needs_processes=AUTORESET_MODES[values["autoreset"]].in_background
            or any(option.keeps_processes and values[name] != option.in_force for name, option in OPTIONS.items()),
            **values,
        )
        return settings._leaving_open(may_step_itself=given["backend"] == "auto") if is_auto else settings

    def _leaving_open(self, *, may_step_itself: bool) -> Settings:
        """Returns the settings for num_workers="auto". A trial chooses the number later, unless it is clear already."""
        if self.backend == "serial" and not self.spares:
            one = WorkerChoice(1, "serial", "the caller steps all envs, one after another")
            return replace(self, num_workers=1, choice=one)
        why = None
        if self.spares or self.max_worker_memory:
            why = "spares" if self.spares else "their workers are watched"
        elif self.backend == "thread":
            why = "a trial would step an env in this process"
        if why is not None:
            kind: Literal["process", "thread"] = "thread" if self.backend == "thread" else "process"
            return replace(self, choice=one_each(self.num_workers, kind, why))
        return replace(self, measures=True, may_step_itself=may_step_itself and not self.needs_processes)

    @property
    def options(self) -> dict[str, Any]:
        """All `PoolOptions`, with the values in force."""
        return {name: getattr(self, name) for name in OPTIONS}

    def __post_init__(self) -> None:
        if self.num_envs < 1:
            raise ValueError("expected at least one env, got an empty list of env_fns")
        self._check_numbers()
        self._check_sharing()
        check_pairs(self)

    def _check_numbers(self) -> None:
        """Checks those options that the number of envs limits: `num_workers` and `spares`."""
        most, what = self.num_envs // self.width, "envs" if self.vector_size is None else "vector envs"
        if not is_int(self.num_workers) or not 1 <= self.num_workers <= most:
            raise ValueError(
                f"expected num_workers to be 'auto', None, or an int from 1 to {most} (the number of {what}), "
                f"got {self.num_workers!r}"
            )
        int_from(0, self.num_envs - 1)("spares", self.spares)

    def _check_sharing(self) -> None:
        """Raises ValueError if envs would share a worker, and an option forbids that."""
        for name, option in OPTIONS.items():
            got = getattr(self, name)
            is_shared = self.num_workers != self.num_envs // self.width
            if option.needs_one_worker_each is not None and got != option.default and is_shared:
                raise ValueError(
                    f"expected num_workers=None (one for each env) with {name}={got}, got {self.num_workers}: "
                    f"{option.needs_one_worker_each}"
                )

    @property
    def mode(self) -> AutoresetMode:
        """The properties of the autoreset mode."""
        return AUTORESET_MODES[self.autoreset]

    @property
    def width(self) -> int:
        """The number of envs that one factory builds. They are in neighbouring slots."""
        return self.vector_size or 1

    @property
    def has_resets_ahead(self) -> bool:
        """Whether a worker resets an env as soon as its episode is over, without a command."""
        wanted = self.resets_ahead or self.spares > 0 or self.mode.in_background
        return wanted and self.max_concurrency is None

    @property
    def rebuilds(self) -> bool:
        """Whether an env may have to be rebuilt."""
        return self.faults.restarts or self.faults.renew_every is not None or self.max_worker_memory is not None

    @property
    def log_bytes(self) -> int:
        """The bytes of each env's log of commands; 0: there is no log."""
        recorded = 0 if self.crash_dir is None else self.crash_dir.bytes_per_env
        return max(recorded, self.faults.bytes_per_env if self.faults.resumes else 0)

    @property
    def remedy(self) -> str:
        """The end of errors about faults: options with which the pool would continue, or a fault could be replayed."""
        if not self.log_advice or self.faults.restarts or (self.vector_size is not None and self.backend != "process"):
            return ""
        needs_no_advice = self.crash_dir is not None or self.vector_size is not None
        replay = "" if needs_no_advice else ', and crash_dir="crashes" to replay them'
        return f'; pass faults="restart" to continue after faults{replay}'

    def envs_of_worker(self) -> tuple[int, ...]:
        """Returns the number of envs of each worker. Neighbouring envs, which share cache lines, share a worker."""
        if self.dealt is not None:
            return self.dealt
        share, rest = divmod(self.num_envs // self.width, self.num_workers)
        return tuple((share + (w < rest)) * self.width for w in range(self.num_workers))


def _default_num_workers(values: dict[str, Any]) -> Literal["auto"] | None:
    """Returns the default of `num_workers` for these values of the other options.

    It is None if envs must not delay or break each other, or would be measured in the caller's process.
    """
    faults = values["faults"]
    one_each = (
        faults.restarts
        or faults.renew_every is not None
        or AUTORESET_MODES[values["autoreset"]].in_background
        or values["backend"] == "thread"
        or any(option.one_worker_each and values[name] != option.default for name, option in OPTIONS.items())
    )
    return None if one_each else DEFAULT_NUM_WORKERS


def signature_of_pool() -> inspect.Signature:
    """Returns the signature of a pool: `env_fns`, and each of `PoolOptions` as a keyword with its default."""
    kind = inspect.Parameter
    env_fns = kind("env_fns", kind.POSITIONAL_OR_KEYWORD, annotation="Sequence[EnvFn]")
    types = {name: getattr(one, "__forward_arg__", one) for name, one in PoolOptions.__annotations__.items()}
    options = [kind(name, kind.KEYWORD_ONLY, default=OPTIONS[name].default, annotation=types[name]) for name in types]
    return inspect.Signature([env_fns, *options])
