"""Hosts a worker's envs: builds them, and does for the core's loop what is rare."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

import cloudpickle
from gymnasium import Space
from gymnasium.envs.registration import EnvSpec

from remuda import _core
from remuda._crash.episode_start import describe_beginning
from remuda._relay.log import logger
from remuda._wire.channel import Channel
from remuda._wire.failures import portable
from remuda._wire.info_columns import InfoColumn, field_of
from remuda._wire.layout import AUTORESET, Layout
from remuda._wire.pickling import Parts, dump, dump_whole, load
from remuda._wire.requests import AddInfoColumns, CallEnv, RememberOptions, TellAgain, WorkerRequest, remember
from remuda._wire.texts import text_of
from remuda._worker.reset_defaults import ResetDefaults, derive_seed
from remuda._worker.worker_info import WorkerInfo, worker_context
from remuda.errors import InvalidEnvError


class _Missing:
    """In the place of an env that could not be built anew: the old one was closed, and is not to be used again."""

    def __init__(self, slot: int) -> None:
        self.slot = slot

    def reset(self, **_: Any) -> NoReturn:
        raise InvalidEnvError(f"env {self.slot} could not be built anew")

    def step(self, _: Any) -> NoReturn:
        self.reset()

    def close(self) -> None:
        pass


@dataclass(frozen=True)
class EnvReport:
    """What a worker says of an env that it has built."""

    observation_space: Space[Any]
    action_space: Space[Any]
    metadata: dict[str, Any]
    render_mode: str | None
    spec: EnvSpec | None


class BuildError(Exception):
    """A factory failed; carries what the pool is to be told."""

    def __init__(self, failure: Parts) -> None:
        super().__init__("an env could not be built")
        self.failure = failure


class EnvHost:
    """The envs of one worker, and the hooks of its loop (see worker_loop.hpp).

    Attributes:
        info: Of its worker.
        envs: What its factories built.
        width: How many neighbouring slots each of those has.
    """

    width = 1

    def __init__(
        self,
        info: WorkerInfo,
        channel: Channel,
        *,
        rebuilds: bool,
        before_goodbye: Callable[[], None] = lambda: None,
    ) -> None:
        """Makes a host without envs.

        Args:
            info: Of its worker.
            channel: To the pool.
            rebuilds: An env may have to be built anew, so the factories are kept.
            before_goodbye: Called when the envs are closed and the pool has not been told so yet.
        """
        self.info = info
        self.envs: list[Any] = []
        self._rebuilds, self._env_fns = rebuilds, list[Callable[[], Any]]()
        self._reports: list[EnvReport] = []  # where an env may be built anew: of those that were built first
        self._channel, self._before_goodbye = channel, before_goodbye
        self._layout: Layout | None = None
        self._arena: _core.Arena | None = None
        self._loop: _core.WorkerLoop | None = None
        self._defaults = ResetDefaults()
        self._told: dict[int, dict[Hashable, Parts]] = {}  # by slot: requests, for envs that are built anew
        self._replacements = 0  # how many workers there were in our place
        self._rebuilt: dict[int, int] = {}  # by slot: how often its env was built anew here
        self._current: int | None = None  # the env that is being built or closed
        self._info_columns = 0  # how many its loop has

    @property
    def current_env(self) -> int | None:
        """The env whose code the loop's thread is running, if any. Any thread may ask."""
        loop = self._loop
        return self._current if self._current is not None or loop is None else loop.current_env

    def note_word(self) -> None:
        """Something is about to be logged to the pool. Any thread may say so."""
        loop = self._loop
        if loop is not None:  # before that, and afterwards, the pool hears all before it takes our word
            loop.note_word()

    # -- life ------------------------------------------------------------------------------------------

    def build(self, env_fns: Sequence[Callable[[], Any]]) -> list[EnvReport]:
        """Raises BuildError when a factory raises or gives no env of its own; what was built is closed."""
        reports = []
        if self._rebuilds:
            self._env_fns = list(env_fns)
        with worker_context(self.info):
            for slot, env_fn in zip(self.first_slots, env_fns, strict=True):
                self._current = slot
                try:
                    env = env_fn()
                    self._check(env, slot)
                    self.envs.append(env)
                    reports += [self._report(env)] * self.width
                except BaseException as error:
                    failure = self.describe(error, slot, "build")
                    self.close_quietly()
                    raise BuildError(failure) from error
        self._current = None
        self._reports = reports if self._rebuilds else []
        return reports

    @property
    def first_slots(self) -> tuple[int, ...]:
        """Of each env."""
        return self.info.env_ids[:: self.width]

    def name_of_factory(self, slot: int) -> str:
        return f"env_fns[{slot // self.width}]"

    def _check(self, env: Any, slot: int) -> None:
        factory = self.name_of_factory(slot)
        self._check_kind(env, factory)
        for other, known in zip(self.first_slots, self.envs, strict=False):
            if known is env:
                raise InvalidEnvError(
                    f"expected {factory} to build an env of its own, got the same object as "
                    f"{self.name_of_factory(other)}"
                )

    def _check_kind(self, env: Any, factory: str) -> None:
        if _is_vector_env(env):
            raise InvalidEnvError(
                f"expected {factory} to return a gymnasium.Env, got the vector env {env!r}; "
                f"pass vector_size={env.num_envs}"
            )
        check_names(env, factory, "a gymnasium.Env", _ENV_NAMES)
        check_spaces(env, factory, ("observation_space", "action_space"))

    def _report(self, env: Any) -> EnvReport:
        return report(env, env.observation_space, env.action_space)

    def _env_at(self, slot: int) -> Any:
        return self.envs[(slot - self.info.env_ids[0]) // self.width]

    def start(self, layout: Layout, arena: _core.Arena, defaults: ResetDefaults | None = None) -> _core.WorkerLoop:
        """`defaults`: of a successor: what resets are given by now."""
        self._layout, self._arena = layout, arena
        self._defaults = defaults or ResetDefaults()
        self._loop = _core.WorkerLoop(
            arena=arena,
            plan=layout.plan,
            index=self.info.index,
            first_env=layout.first_env(self.info.index),
            is_vector=layout.vector_size is not None,
            autoreset=AUTORESET[layout.autoreset],
            resets_ahead=layout.resets_ahead,
            spin_ns=layout.spinning.worker_ns,
            spins_heedlessly=layout.spinning.heedless,
            renew_every=layout.renew_every,
            renews_in_place=layout.renews_in_place(self.info.index),
            has_successors=layout.renews_workers,
            envs=[self._env_at(slot) for slot in self.info.env_ids],
            hooks=self,
            obs_nest=layout.observation.nest,
            obs=layout.obs_columns(arena),
            final_obs=layout.final_columns(arena),
            action_nest=layout.action.nest,
            actions=layout.action_columns(arena),
        )
        self._loop.complete_resets(bool(self._defaults))
        return self._loop

    def close(self) -> Parts:
        """Closes every env; returns how those that failed failed, as `describe` has it."""
        failures = [self.describe(error, slot, "close") for slot, error in self.close_quietly()]
        self._before_goodbye()
        return dump(failures)

    def close_quietly(self) -> list[tuple[int, BaseException]]:
        """Closes every env; returns the exceptions of those that failed."""
        errors: list[tuple[int, BaseException]] = []
        for slot, env in zip(self.first_slots, self.envs, strict=False):
            self._current = slot
            try:
                env.close()
            except BaseException as error:
                errors.append((slot, error))
        self._current = None
        self.envs, self._env_fns = [], []
        # The loop and we refer to each other, and the core's side is invisible to Python's collector.
        self._loop = self._arena = None
        return errors

    # -- hooks: what the loop cannot do by itself --------------------------------------------------------

    def flatten(self, obs: Any) -> tuple[list[Any], list[Any]]:
        return self._get_layout().observation.flatten(obs)

    def freeze(self, obs: Any, info: dict[str, Any]) -> bytes:
        """Terminal data as it is now: the reset that follows may overwrite it."""
        try:
            return dump_whole((obs, info))
        except Exception as error:
            raise not_pickled("a terminal observation and info", (obs, info), error) from error

    def pack(
        self,
        objects: list[Any],
        info: dict[str, Any] | None,
        wanted: list[tuple[tuple[str, ...], Any]] | None,
        final: bytes | None,
    ) -> Parts:
        """What goes along with a row.

        Args:
            objects: What of its observation has no column.
            info: What of its info has none.
            wanted: Values of infos that might have a column, and their paths.
            final: What `freeze` has returned.
        """
        fields = [field_of(path, value) for path, value in wanted] if wanted else []
        parts = objects, info, [field for field in fields if field is not None], final
        return dump_named("an observation and an info", parts, shown=2)

    def reset_arguments(self, env: int, parts: Parts) -> dict[str, Any]:
        arguments: dict[str, Any] = load(parts)
        if "seed" in arguments:
            self._get_loop().complete_resets(True)
        return arguments

    def complete_reset(self, env: int, named: dict[str, Any] | None) -> tuple[dict[str, Any], dict[str, Any] | None]:
        completed = self._defaults.complete(env, named, self._get_loop())
        self._get_loop().complete_resets(bool(self._defaults))
        return completed

    def beginning(self, slot: int, arguments: dict[str, Any] | None) -> tuple[_core.Entry, bytes]:
        return describe_beginning(self._env_at(slot), arguments or {})

    def action_objects(self, parts: Parts) -> list[Any]:
        objects: list[Any] = load(parts)
        return objects

    def handle(self, slot: int | None, parts: Parts) -> Parts:
        """Does what a message asks; its answer. `slot`: of the env that it names, if it does."""
        if slot is None:
            self._obey(load(parts))
            return dump(None)
        call: CallEnv = load(parts)
        result = call.run(self._env_at(slot))
        answer = dump_named("a result", result)
        if call.about is not None and self._rebuilds:
            remember(self._told.setdefault(slot, {}), call.about, parts)
        return answer

    def _obey(self, request: WorkerRequest) -> None:
        match request:
            case AddInfoColumns():
                self.add_info_columns(request.columns, request.first)
            case TellAgain():
                self._tell_again(request.told, request.replacements)
            case RememberOptions():
                self._remember_options(request.options)

    def describe(self, error: BaseException, slot: int | None, operation: str) -> Parts:
        return dump((slot, self.info.index, operation, *portable(error)))

    def renew(self, slot: int) -> None:
        """Builds the env of a slot anew, in the place of the one that is there."""
        i = slot - self.info.env_ids[0]
        try:
            self.envs[i].close()
        except BaseException as error:  # it may be the reason why a new one is needed
            logger.warning("env %d raised when it was closed to be built anew: %s", slot, text_of(error, repr))
        self._put(i, _Missing(slot))
        with worker_context(self.info):
            env = self._env_fns[i]()
        self._check(env, slot)
        for name in ("observation_space", "action_space"):
            if getattr(env, name) != getattr(self._reports[i], name):
                raise InvalidEnvError(
                    f"expected env_fns[{slot}] to build an env with the {name} of the one before, "
                    f"{getattr(self._reports[i], name)}, got {getattr(env, name)}"
                )
        self._rebuilt[slot] = self._rebuilt.get(slot, 0) + 1
        self._repeat(slot, env)
        self._defaults.note_built(slot)
        self._get_loop().complete_resets(bool(self._defaults))
        self._put(i, env)

    def _repeat(self, slot: int, env: Any) -> None:
        for parts in self._told.get(slot, {}).values():
            call: CallEnv = load(parts)  # anew: the env before may have changed what it was given
            call.repeat(env, partial(self._derive_seed, slot))

    def _derive_seed(self, slot: int, seed: int) -> int:
        return derive_seed(seed, slot, self._replacements, self._rebuilt.get(slot, 0))

    def _put(self, i: int, env: Any) -> None:
        self.envs[i] = env
        self._get_loop().replace_env(self.info.env_ids[i], env)

    def send(self, parts: Parts) -> None:
        self._channel.send(parts)

    def receive(self) -> Parts:
        return self._channel.recv()

    # -- requests that concern the whole worker ----------------------------------------------------------

    def add_info_columns(self, columns: Sequence[InfoColumn], first: int = 0) -> None:
        """These are the pool's columns from number `first` on. Those known already are passed over: a successor is told
        all when it joins, and again what was announced while it was being built."""
        assert self._arena is not None  # messages come only while the loop runs
        for column in columns[max(0, self._info_columns - first) :]:
            self._add_info_column(column, self._get_layout().info_column(self._arena, column))
            self._info_columns += 1

    def _add_info_column(self, column: InfoColumn, place: _core.Column) -> None:
        self._get_loop().add_info_column(column.path, column.type, place)

    def _tell_again(self, told: Mapping[int, dict[Hashable, Parts]], replacements: int) -> None:
        """What the workers before us, of which there were so many, had told their envs."""
        self._replacements = replacements
        self._told.update(told)
        for slot in told:
            self._repeat(slot, self._env_at(slot))

    def _remember_options(self, options: Mapping[int, bytes | None]) -> None:
        self._defaults.remember_options(options)
        self._get_loop().complete_resets(bool(self._defaults))
        for env in options:
            self._get_loop().reset_anew(env)

    def _get_layout(self) -> Layout:
        assert self._layout is not None  # set before the loop that calls us exists
        return self._layout

    def _get_loop(self) -> _core.WorkerLoop:
        assert self._loop is not None  # it asks
        return self._loop


_ENV_NAMES = ("reset", "step", "close", "observation_space", "action_space")


def _is_vector_env(env: Any) -> bool:
    """Whether it is one of Gymnasium's, or like them. (What answers to any name is none.)"""
    return isinstance(getattr(env, "num_envs", None), int) and isinstance(
        getattr(env, "single_observation_space", None), Space
    )


def check_names(env: Any, factory: str, kind: str, names: Sequence[str]) -> None:
    """Raises InvalidEnvError when an env lacks any of these, or is a class."""
    lacking = [name for name in names if not hasattr(env, name)]
    if lacking or isinstance(env, type):
        why = f"it has no {', '.join(lacking)}" if lacking else "a class, not yet an env"
        raise InvalidEnvError(f"expected {factory} to return {kind}, got {env!r} ({why})")


def check_spaces(env: Any, factory: str, names: Sequence[str]) -> None:
    """Raises InvalidEnvError when any of these is no space."""
    for name in names:
        if not isinstance(getattr(env, name), Space):
            raise InvalidEnvError(
                f"expected {factory} to return an env whose {name} is a gymnasium.Space, got {getattr(env, name)!r}"
            )


def dump_named(what: str, value: Any, shown: int | None = None) -> Parts:
    """As `dump`; an error says what it is that cannot be pickled. `shown`: it shows so many of the values only."""
    try:
        return dump(value)
    except Exception as error:
        raise not_pickled(what, value if shown is None else value[:shown], error) from error


def not_pickled(what: str, value: Any, error: Exception) -> TypeError:
    """An error that says what it is that cannot be pickled, instead of only the innermost type."""
    return TypeError(f"expected {what} that can be pickled, got {text_of(value, reprlib.repr)} ({text_of(error)})")


def report(env: Any, observation_space: Space[Any], action_space: Space[Any]) -> EnvReport:
    """`observation_space`, `action_space`: of a single env."""
    return EnvReport(
        observation_space=observation_space,
        action_space=action_space,
        metadata=dict(getattr(env, "metadata", None) or {}),
        render_mode=getattr(env, "render_mode", None),
        spec=_portable_spec(getattr(env, "spec", None)),
    )


def _portable_spec(spec: Any) -> EnvSpec | None:
    """None for one that cannot be pickled: its keyword arguments may hold anything."""
    if not isinstance(spec, EnvSpec):
        return None
    try:
        cloudpickle.dumps(spec)
    except Exception:
        return None
    return spec
