"""Hosts a worker's envs: builds, replaces and closes them, and serves the requests that the core's loop passes on."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any, NoReturn, cast

from remuda import _core
from remuda._crash.episode_start import OPTIONS_CHANGE, describe_start, load_start, repeat_start
from remuda._seeds import derive_seed
from remuda._wire.channel import Channel
from remuda._wire.computed import Computed, blamed, fit
from remuda._wire.failures import INTERRUPT, Interrupts, dump_named, is_interrupt, portable
from remuda._wire.info_columns import InfoColumn
from remuda._wire.layout import Layout
from remuda._wire.pickling import Buffers, dump, load
from remuda._wire.requests import (
    AddInfoColumns,
    CallEnv,
    CloseEnv,
    PutState,
    RememberedCalls,
    RememberOptions,
    RepeatCalls,
    TakeReplacement,
    TakeState,
    WorkerRequest,
)
from remuda._worker.env_report import (
    BuiltEnvs,
    EnvReport,
    Missing,
    Reports,
    check_fit,
    check_single,
    close_or_warn,
    free_closed_env,
    renders,
    report,
)
from remuda._worker.env_state import Place, put_state, take_state
from remuda._worker.factories import BuildError, EnvFn, unpack
from remuda._worker.forked_children import OneProcess, end_child
from remuda._worker.memory import has_grown
from remuda._worker.old_gym import converted
from remuda._worker.plain_pickles import plain_pickle
from remuda._worker.reset_defaults import EPISODE_SEED, ResetDefaults
from remuda._worker.row_pickling import RowPickling
from remuda._worker.worker_info import HostSpec, worker_context
from remuda.errors import EnvTimeoutError, InvalidEnvError


class EnvHost(RowPickling):
    """The envs of one worker, and the hooks that the worker's loop calls (see worker/loop.hpp).

    Attributes:
        info: Its worker.
        envs: The envs that its factories built.
        width: The number of neighbouring slots of each env.
        hung: By slot, the errors of envs that hang in a thread of their own now, until they are rebuilt.
        interrupts: Receives the exceptions of signal handlers, if the caller's thread runs the envs; otherwise None.
    """

    def __init__(
        self,
        spec: HostSpec,
        channel: Channel,
        before_goodbye: Callable[[], None] = lambda: None,
        built: BuiltEnvs | None = None,
        silence: Callable[[bool], None] = lambda is_silent: None,
    ) -> None:
        """Makes a host without envs.

        Args:
            spec: How to host the envs.
            channel: The channel to the pool.
            before_goodbye: Called when the envs are closed, before the pool is notified.
            built: The envs of all hosts in this process; None: this host is the only one.
            silence: Hides what this process logs and prints, or shows it again.
        """
        super().__init__(channel)
        self.info, self.width, self._first_slots = spec.info, spec.width, spec.first_slots
        self.envs: list[Any] = []
        self._built = BuiltEnvs() if built is None else built
        self.hung: dict[int, EnvTimeoutError] = {}
        self.interrupts: Interrupts | None = None
        self._computed: Sequence[Computed] = ()  # the columns of values that the caller's functions compute
        self._keeps_factories, self._is_lazy = spec.rebuilds or spec.is_lazy, spec.is_lazy
        self._env_fns: dict[int, EnvFn] = {}  # by index in `envs`: factories of envs that may have to be built later.
        self._before_goodbye, self._silence = before_goodbye, silence
        self._layout: Layout  # set before the loop can call a hook
        self._arena: _core.Arena | None = None
        self._defaults = ResetDefaults()
        self._remembered = RememberedCalls()  # the lasting calls, which rebuilt envs get again.
        self._replacements = 0  # the number of predecessors of this worker.
        self._rebuilt: dict[int, int] = {}  # by slot: the number of times that this worker has rebuilt its env.
        self._offered: dict[int, EnvFn] = {}  # by slot: an unpickled factory for the slot's next env.
        self._replacing: dict[int, tuple[EnvFn, Any]] = {}  # by slot: factory and env of an unused replacement.
        self._emptied: set[int] = set()  # slots with an env that was closed before its replacement was built.
        self._current: int | None = None  # the env that is being built or closed.
        self._info_columns = 0  # the number of columns for infos that the loop has

    @property
    def current_env(self) -> int | None:
        """The env that the loop's thread runs, builds or closes now, or None. Any thread may call this."""
        loop = self._loop
        return self._current if self._current is not None or loop is None else loop.current_env

    def note_record(self) -> None:
        """Counts a log record that is about to be sent to the pool. Any thread may call this."""
        loop = self._loop
        if loop is not None:  # records are not counted before the loop starts
            loop.note_record()

    # -- life ------------------------------------------------------------------------------------------

    def build(
        self,
        env_fns: Sequence[EnvFn],
        computed: Sequence[Computed] = (),
        before_each: Callable[[int], object] = lambda slot: None,
        *,
        layout: Layout | None = None,
        by_reset: bool = False,
    ) -> Reports:
        """Builds the envs.

        Args:
            env_fns: A factory for each env.
            computed: The caller's columns.
            before_each: Called before each env is built, with its first slot.
            layout: The layout that the envs must fit, if this worker is a successor.
            by_reset: Whether the first reset or call of each env builds it, rather than this function.

        Raises:
            BuildError: A factory raised, or did not return an env of its own that fits. Envs that were built are
                closed.
        """
        reports: Reports = []
        self._computed = computed
        for slot, env_fn in zip(self._first_slots, env_fns, strict=True):
            self._current = slot
            before_each(slot)
            try:
                report = self._build_first(slot, env_fn, by_reset=by_reset)
                if layout is not None and report is not None:
                    check_fit(layout, [report], slot)
                reports += [report] * self.width
                self._keep_factory(slot, env_fn)
            except BaseException as error:
                failure = self.describe(error, slot, "build")
                self.close_quietly()
                raise BuildError(failure) from error
        self._current = None
        return reports

    def _build_first(self, slot: int, env_fn: EnvFn, *, by_reset: bool) -> EnvReport | None:
        if by_reset or (self._is_lazy and slot != 0):
            self.envs.append(None)
            return None
        env = self._make(env_fn, self.name_of_factory(slot))
        self.envs.append(env)
        return self._report(env)

    def _make(self, env_fn: EnvFn, factory: str) -> Any:
        """Builds an env and checks it. `factory`: the name of `env_fn` in errors."""
        with worker_context(self.info):
            env = converted(env_fn(), factory)
        self._check_kind(env, factory)
        self._built.add(env, factory)
        return env

    def _keep_factory(self, slot: int, env_fn: EnvFn) -> None:
        """Keeps a factory only if it may be called again, because a kept factory may keep its pool alive."""
        place = self._place_of(slot)
        if self._keeps_factories or renders(self.envs[place]):
            self._env_fns[place] = env_fn
        else:
            self._env_fns.pop(place, None)

    def name_of_factory(self, slot: int) -> str:
        return f"env_fns[{slot // self.width}]"

    def _check_kind(self, env: Any, factory: str) -> None:
        check_single(env, factory)

    def _report(self, env: Any) -> EnvReport:
        return report(env, env.observation_space, env.action_space, [one.spec(env, None) for one in self._computed])

    def _env_at(self, slot: int) -> Any:
        return self.envs[self._place_of(slot)]

    def _place_of(self, slot: int) -> int:
        """Returns the index of a slot's env in `envs`."""
        return (slot - self.info.env_ids[0]) // self.width

    def start(self, layout: Layout, arena: _core.Arena, defaults: ResetDefaults | None = None) -> _core.WorkerLoop:
        """Makes the worker's loop. `defaults`: the reset defaults of the envs, if this worker is a successor."""
        self._layout, self._arena = layout, arena
        self._defaults = defaults or ResetDefaults()
        columns = layout.result_columns(arena)
        self._loop = _core.WorkerLoop(
            arena=arena,
            plan=layout.plan,
            spec=layout.worker_spec(self.info.index),
            envs=[self._env_at(slot) for slot in self.info.env_ids],
            hooks=self,
            obs_nest=layout.observation.nest,
            obs=columns.obs,
            final_obs=columns.final_obs,
            action_nest=layout.action.nest,
            actions=layout.action_columns(arena),
            functions=[column.function for column in self._computed],
            computed=columns.computed,
            step_columns=layout.step_columns,
        )
        self._announce_defaults()
        return self._loop

    def close(self) -> Buffers:
        """Closes every env. Returns the failures, described by `describe` and pickled."""
        failures = [self.describe(error, slot, "close") for slot, error in self.close_quietly()]
        self._before_goodbye()
        return dump(failures)

    def close_quietly(self) -> list[tuple[int, BaseException]]:
        """Closes every env; returns the exceptions of those that failed."""
        errors: list[tuple[int, BaseException]] = []
        for slot, env in zip(self._first_slots, self.envs, strict=False):
            self._current = slot
            try:
                if env is not None:
                    with OneProcess():
                        env.close()
            except BaseException as error:
                errors.append((slot, error))
        for slot in list(self._replacing):
            self._drop_replacement(slot)
        self._current = None
        self.envs, self._env_fns, self._computed = [], {}, ()
        # The loop and the host refer to each other. Dropping the loop frees both without Python's collector.
        self._loop = self._arena = None
        return errors

    # -- hooks that the loop calls -----------------------------------------------------------------------

    end_child = staticmethod(end_child)

    def flatten(self, obs: Any) -> tuple[list[Any], list[Any]]:
        return self._layout.observation.flatten(obs)

    def copy_obs(self, obs: Any) -> Any:
        return self._layout.observation.copy_one(obs)

    def reset_arguments(self, env: int, parts: Buffers) -> dict[str, Any] | PutState:
        arguments: dict[str, Any] | PutState = load(parts)
        return arguments

    def restore(self, env: int, wanted: PutState) -> Place:
        if wanted.seed is not None:
            self._defaults.bases[env] = wanted.seed
            self._give_seed(env)
        alike = partial(self._defaults.match, env)
        put = partial(put_state, self._env_at(env), wanted.state, self._layout.computed, alike)
        return cast(Place, self._get_loop().run_env_code(put))

    def complete_reset(self, env: int, named: dict[str, Any] | None) -> tuple[dict[str, Any], dict[str, Any] | None]:
        completed = self._defaults.complete(env, named, self._get_loop())
        self._announce_defaults()
        return completed

    def _announce_defaults(self) -> None:
        """Makes the loop call `complete_reset` if resets may need seeds or options."""
        self._get_loop().complete_resets(bool(self._defaults))

    def give_seed_back(self, env: int) -> None:
        self._give_seed(env)  # the one that the latest reset has not used

    def _give_seed(self, env: int) -> None:
        """Makes the env's next reset get a derived seed."""
        self._defaults.due.add(env)
        self._announce_defaults()

    def beginning(self, slot: int, arguments: dict[str, Any] | None) -> tuple[_core.Entry, bytes]:
        return describe_start(self._env_at(slot), arguments or {}, self._defaults.changes.get(slot, 0))

    def begin_replay(self) -> None:
        """Hides what the env logs and prints, because it did so before."""
        self._silence(True)

    def end_replay(self, why: str | None, error: BaseException | None) -> RuntimeError | None:
        """Returns the reason why an episode could not be played again, as an exception; None if it could."""
        self._silence(False)
        if error is not None:
            why = f"it raised {error!r} when it was played again"
        return None if why is None else RuntimeError(why)

    def replay_reset(self, slot: int, beginning: bytes) -> Any:
        start, env = load_start(beginning), self._env_at(slot)
        result: Any = self._get_loop().run_env_code(partial(repeat_start, env, start))
        base = self._defaults.bases.get(slot)
        if base is None or not base.of_every_episode:
            self._defaults.due.discard(slot)
            self._announce_defaults()
            return result
        obs, info = result
        return obs, {**info, EPISODE_SEED: start["seed"]}

    def has_other_options(self, slot: int, beginning: bytes) -> bool:
        """Whether the lasting options have changed since a reset that was made in advance."""
        change: int = load_start(beginning).get(OPTIONS_CHANGE, 0)
        return change != self._defaults.changes.get(slot, 0)

    def pickled(self, value: Any) -> bytes:
        """Returns bytes that are equal for equal values, for the digest of an info."""
        try:
            return plain_pickle(value)
        except Exception:  # such an info is refused when it is sent
            return type(value).__qualname__.encode()

    def fit_computed(self, column: int, value: Any) -> Any:
        return fit(self._layout.computed[column], value)

    def raise_for_column(self, column: int, error: Exception) -> NoReturn:
        if self.interrupts is not None and is_interrupt(error):
            raise error
        raise blamed(self._computed[column].path, error) from error

    def action_objects(self, parts: Buffers) -> list[Any]:
        objects: list[Any] = load(parts)
        return objects

    def handle(self, slot: int | None, parts: Buffers) -> Buffers:
        """Serves a request and returns the answer. `slot`: a slot of the env; None: the request is for the worker."""
        if slot is None:
            self._obey(load(parts))
            return dump(None)
        call: CallEnv | CloseEnv | TakeReplacement | TakeState = load(parts)
        if isinstance(call, CloseEnv):
            self._emptied.add(slot)
            self._empty(slot, None)
            return dump(None)
        if isinstance(call, TakeReplacement):
            self._settle_replacement(slot, is_wanted=call.is_wanted)
            return dump(None)
        if self._env_at(slot) is None:
            self.renew(slot)
        if isinstance(call, TakeState) or call.about is None:
            self._check_resumed(slot)
        if isinstance(call, TakeState):
            place = self._get_loop().place_of(slot)
            options = self._defaults.options.get(slot)
            take = partial(take_state, self._env_at(slot), call.fns, place, self._layout, options)
            return dump(self._get_loop().run_env_code(take))
        result = self._get_loop().run_env_code(partial(self._run_call, slot, call))
        answer = dump_named("a result", result)
        if call.about is not None:
            self._remembered.remember(slot, call.about, parts)
        return answer

    def _check_resumed(self, slot: int) -> None:
        if (why := self._get_loop().not_resumed(slot)) is not None:
            raise RuntimeError(
                f"the episode was not resumed ({why}), and ends at the env's next command; then call again"
            )

    def _run_call(self, slot: int, call: CallEnv) -> Any:
        env = self._env_at(slot)
        if self._layout.resumes and not call.reads(env):
            self._get_loop().note_call(slot, call.about is not None)
        return call.run(env)

    def _obey(self, request: WorkerRequest) -> None:
        match request:
            case AddInfoColumns():
                self.add_info_columns(request.columns, request.first)
            case RepeatCalls():
                self._repeat_calls(request.calls, request.replacements)
            case RememberOptions():
                for env in request.options:
                    if self._defaults.changes.get(env, 0) < request.change:  # else this worker began with these options
                        self._get_loop().reset_anew(env)
                self._defaults.remember_options(request.options, request.change)
                self._announce_defaults()

    def describe(self, error: BaseException, slot: int | None, operation: str) -> Buffers:
        name, text, trace, pickled = portable(error)
        if self.interrupts is not None and is_interrupt(error):
            self.interrupts[slot], pickled = error, INTERRUPT
        return dump((slot, self.info.index, operation, name, text, trace, pickled))

    def renew(self, slot: int) -> None:
        """Rebuilds the env of a slot, or builds it for the first time."""
        is_there, place = self._env_at(slot) is not None, self._place_of(slot)
        is_first = not is_there and slot not in self._emptied
        if is_there:
            self._empty(slot, Missing(InvalidEnvError(f"env {slot} could not be rebuilt")))
        env = self._make(self._env_fns[place], self.name_of_factory(slot))
        check_fit(self._layout, [self._report(env)], slot)
        if is_first:
            self._repeat(slot, env)
        else:
            self._prepare(slot, env)
        self._emptied.discard(slot)
        self._put(slot, env)

    def _empty(self, slot: int, stand_in: Missing | None) -> None:
        """Closes the env of a slot, if there is one, and leaves `stand_in` in its place."""
        if self._env_at(slot) is None:
            return
        rendered = renders(self._env_at(slot))
        text = f"env {slot} raised when it was closed to be rebuilt"
        close_or_warn(self._env_at(slot), text, is_callers=self.interrupts is not None)
        self._put(slot, stand_in)
        if rendered:
            free_closed_env()

    def _prepare(self, slot: int, env: Any) -> None:
        """Prepares a rebuilt env: repeats the lasting calls and gives it a seed for its next reset."""
        self._rebuilt[slot] = self._rebuilt.get(slot, 0) + 1
        self._repeat(slot, env)
        for one in self._defaults.bases.keys() & range(slot, slot + self.width):
            self._give_seed(one)

    # -- replacements of envs ------------------------------------------------------------------------------

    def offer(self, slot: int, env_fn: EnvFn) -> None:
        """Keeps a slot's next factory, unpickled, for `build_beside`. Only a pool in this process calls this."""
        self._offered[slot] = env_fn

    def has_grown(self) -> bool:
        return has_grown(self.info.index, self._layout.max_memory)

    def build_beside(self, slot: int, parts: Buffers) -> Buffers:
        """Builds another env for a slot and returns its report. The slot's own env stays until `TakeReplacement`.

        An env that renders is closed first, because its pictures and those of the new env would get mixed up. If the
        new env is dropped, the next reset builds one with the slot's old factory.
        """
        self._drop_replacement(slot)
        if renders(self._env_at(slot)):
            self._emptied.add(slot)
            self._empty(slot, None)
        env_fn = self._offered.pop(slot) if slot in self._offered else unpack(parts)
        env = self._make(env_fn, f"the new factory of env {slot}")
        self._replacing[slot] = env_fn, env
        return dump_named("spaces and metadata", self._report(env))

    def _settle_replacement(self, slot: int, *, is_wanted: bool) -> None:
        if not is_wanted:
            return self._drop_replacement(slot)
        if slot not in self._replacing:
            raise RuntimeError(f"what was built to replace env {slot} was lost with its worker")
        env_fn, env = self._replacing[slot]
        self._prepare(slot, env)
        self._empty(slot, None)
        del self._replacing[slot]
        self._emptied.discard(slot)
        self._put(slot, env)
        self._keep_factory(slot, env_fn)
        return None

    def _drop_replacement(self, slot: int) -> None:
        if slot not in self._replacing:
            return
        _, env = self._replacing.pop(slot)
        text = f"an env that was built to replace env {slot} raised in close"
        close_or_warn(env, text, is_callers=self.interrupts is not None)
        rendered = renders(env)
        del env
        if rendered:
            free_closed_env()

    def _repeat(self, slot: int, env: Any) -> None:
        rebuilds = self._replacements, self._rebuilt.get(slot, 0)
        for parts in self._remembered.of(slot):
            call: CallEnv = load(parts)  # loaded for each env, because an env may change its arguments
            with OneProcess():
                call.repeat(env, lambda seed: derive_seed(seed, slot, *rebuilds))

    def leave(self, slot: int, error: EnvTimeoutError) -> Any:
        """Gives up an env in whose code a thread hangs: answers its command with `error`. Returns the env.

        Called by the thread that has taken the loop over.
        """
        place, stand_in = self._place_of(slot), Missing(error)
        left, self.envs[place] = self.envs[place], stand_in
        self.hung[slot] = error
        self._get_loop().give_up(stand_in, error)
        return left

    def _put(self, slot: int, env: Any) -> None:
        self.envs[self._place_of(slot)] = env
        self.hung.pop(slot, None)
        for one in range(slot, slot + self.width):
            self._get_loop().replace_env(one, env)

    def receive(self) -> Buffers:
        return self._channel.recv()

    # -- requests that concern the whole worker ----------------------------------------------------------

    def add_info_columns(self, columns: Sequence[InfoColumn], first: int = 0) -> None:
        """Adds the pool's columns for infos, which are numbered from `first` on. Skips those that the loop already has.

        A successor gets all columns when it joins, and again the ones that were announced during its build.
        """
        assert self._arena is not None  # set by `start`
        for column in columns[max(0, self._info_columns - first) :]:
            self._add_info_column(column, self._layout.info_column(self._arena, column))
            self._info_columns += 1

    def _add_info_column(self, column: InfoColumn, place: _core.Column) -> None:
        self._get_loop().add_info_column(column.path, column.type, place)

    def _repeat_calls(self, calls: Mapping[int, dict[Hashable, Buffers]], replacements: int) -> None:
        """Repeats the lasting calls of the worker's predecessors. `replacements`: the number of predecessors."""
        self._replacements = replacements
        self._remembered.take_over(calls)
        for slot in calls:
            if (env := self._env_at(slot)) is not None:  # otherwise the slot's first env gets them when built
                self._repeat(slot, env)
