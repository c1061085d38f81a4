"""Calls methods of envs, sets attributes and reset options, and replaces envs."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from remuda._engine.commands.arguments import check_common, check_env_ids, check_whole
from remuda._engine.commands.engine import Engine
from remuda._engine.commands.resets import Options
from remuda._engine.pool.in_turn import in_turn
from remuda._engine.running.calls import Call, call_attribute, get_attribute, set_attribute
from remuda._wire.pickling import dump
from remuda._wire.requests import CallEnv


class EnvCalls:
    """The methods of a pool or a part that call functions in envs."""

    _engine: Engine
    _part: int
    _ids: list[int]
    _is_whole: bool
    """Whether this is a pool, with all of its envs and spares, and no part."""

    def call(self, name: str, /, *args: Any, env_ids: Iterable[int] | None = None, **kwargs: Any) -> list[Any]:
        """Calls `env.name(*args, **kwargs)` for each env, or reads the attribute if it cannot be called.

        The name is looked up through wrappers. An env in flight answers when it is done. A vector env is called once,
        and its answer is that of each of its envs.

        Returns: One value for each env, pickled by the worker and unpickled here.
        Raises: See `call_async` and `Call.result`.
        """
        return self.call_async(name, *args, env_ids=env_ids, **kwargs).result()

    def call_async(self, name: str, /, *args: Any, env_ids: Iterable[int] | None = None, **kwargs: Any) -> Call:
        """Calls like `call(name, ...)`, but returns at once; `result()` of the returned object has the answers.

        Raises:
            ValueError, TypeError: `env_ids` is invalid. Nothing was sent.
            BrokenPoolError, ClosedError: An env is lost, or the pool is closed. Nothing was sent.
        """
        return self.apply_async(call_attribute, (name, args, kwargs), env_ids=env_ids)

    def apply(
        self, fn: Callable[..., Any], /, *args: Any, env_ids: Iterable[int] | None = None, **kwargs: Any
    ) -> list[Any]:
        """Runs `fn(env, *args, **kwargs)` in each env's worker; `fn` is pickled (lambdas too).

        Returns: One value for each env; see `call`.
        Raises: See `call`.
        """
        return self.apply_async(fn, args, kwargs, env_ids).result()

    @in_turn
    def apply_async(
        self,
        fn: Callable[..., Any],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        env_ids: Iterable[int] | None = None,
        per_env_args: Sequence[tuple[Any, ...]] | None = None,
        with_spares: bool = False,
        about: Hashable = None,
        again: Callable[..., Any] | None = None,
    ) -> Call:
        """Runs a function like `apply`, but returns at once.

        Args:
            per_env_args: The arguments for each env, instead of `args`. The envs of a vector env have equal arguments.
            with_spares: Whether the spares of a pool run the function too; their answers follow those of the slots. No
                effect on a part.
            about: The subject of a lasting call: a rebuilt env runs the latest call about each subject again, in the
                order of these calls. None: the call is not lasting.
            again: The function that a rebuilt env runs instead of `fn`: `again(env, derive, ...)`. `derive(seed)`
                returns a seed of 31 bits, derived from that seed (from 0 up), the env and the number of its rebuilds.

        Raises:
            ValueError, TypeError: `env_ids` is invalid, or `per_env_args` has the wrong length. Nothing was sent.
            BrokenPoolError, ClosedError: An env is lost, or the pool is closed. Nothing was sent.
        """
        targets = self._callable(env_ids)
        if per_env_args is not None:
            if len(per_env_args) != len(targets):
                number = len(per_env_args)
                raise ValueError(f"expected {len(targets)} tuples of arguments, one for each env, got {number}")
            self._check_common(per_env_args, targets)
        order = CallEnv(fn, args, kwargs, about, again)
        return self._ask(targets, order, per_env_args, to_spares=with_spares and self._is_whole)

    def get_attr(self, name: str, env_ids: Iterable[int] | None = None) -> list[Any]:
        """Returns copies of the attribute `name` of each env, looked up through wrappers. Raises: See `call`."""
        return self.apply(get_attribute, name, env_ids=env_ids)

    def set_attr(self, name: str, value: Any, env_ids: Iterable[int] | None = None, *, lasting: bool = False) -> None:
        """Sets the attribute `name` of each env to `value`. With `env_ids=None` a pool sets it in its spares, too.

        `lasting`: rebuilt envs get the value too, until another lasting one is set. Raises: See `call`.
        """
        self.apply_async(
            set_attribute,
            (name, value),
            env_ids=env_ids,
            with_spares=env_ids is None,
            about=("attribute", name) if lasting else None,
        ).result()

    def set_attrs(
        self, name: str, values: Sequence[Any], env_ids: Iterable[int] | None = None, *, lasting: bool = False
    ) -> None:
        """Sets the attribute `name` of each env to its entry of `values`, in the order of `env_ids`. For `lasting`
        see `set_attr`. Raises ValueError if `values` has the wrong length; see also `call`."""
        each = [(name, value) for value in values]
        about = ("attribute", name) if lasting else None
        self.apply_async(set_attribute, env_ids=env_ids, per_env_args=each, about=about).result()

    def render(self) -> list[Any]:
        """Returns `env.render()` of each env. The result of a vector env is repeated for each of its slots.

        Raises: See `call`.
        """
        return self.call("render")

    @in_turn
    def set_reset_options(self, options: Options, env_ids: Iterable[int] | None = None) -> None:
        """Sets options for later resets, autoresets included. A reset with `options` ignores them.

        The options hold for resets that begin after the commands sent so far, until new options are set for the env.
        They outlive restarts of workers and envs. An env that was reset in advance is reset once more if that reset was
        not used yet. `options` is copied at once, and each reset gets a copy.

        Args:
            options: A mapping for all envs; a sequence with one mapping (or None) for each env; None for no options.
            env_ids: The envs; None for all. A pool with spares takes only one mapping, for all envs.

        Raises:
            ValueError, TypeError: `options` is invalid or cannot be pickled, or the pool has `vector_size`, because
                vector envs reset their envs themselves. Earlier options stay in force.
            BrokenPoolError, ClosedError: An env is lost, or the pool is closed.
        """
        self._engine.check_open()
        every_env = env_ids is None and self._is_whole
        self._engine.resets.remember(None if every_env else self._named(env_ids), options)

    @in_turn
    def replace(self, env_ids: Iterable[int] | None, env_fns: Sequence[Callable[[], Any]]) -> None:
        """Replaces envs (by another task or level) in living workers: no process is started or ended.

            pool.replace([2, 5], [lambda: make("assembly"), lambda: make("drawer")])
            batch = pool.reset(env_ids=[2, 5])

        First all new envs are built, each in the worker of its slot, beside the old env. Then each new env takes its
        place, and the old one is closed (an exception of its `close` is logged). A slot in the middle of an episode
        loses the episode, and no result reports that. The slot must then be reset: with autoreset "next_step" by its
        next step, which ignores its action, or by `reset(env_ids=...)`; in other modes only by the latter. Until then
        the slot has no observation and no state: `rollout`, `send_observe` and `get_state` raise StateError. In an
        open rollout with "next_step", the last step of the old env is truncated.

        An old env with a render mode that draws is closed before the new one is built. If this call then raises, the
        next reset of its slot, or the next call into it, builds the old env again; its episode is lost.

        Later restarts and renewals build the new envs, and crash records name them. Lasting attributes and reset
        options of the slots hold for the new envs, too. Their first reset without a seed gets a seed that is derived
        from the slot's last one, as for any rebuilt env.

        Args:
            env_ids: The envs to replace, none of them in flight; None for all. A vector env is replaced as a whole.
            env_fns: A factory for each env, or for each vector env.

        Raises:
            ValueError, TypeError: An argument is invalid, or the pool has spares.
            StateError: An env is in flight.
            InvalidEnvError: A factory cannot be pickled (worker processes), or returned no env or another slot's env.
            EnvError: A factory raised; its exception is the cause.
            SpaceMismatchError: Spaces do not fit into the pool's rows.
            WorkerDiedError: A worker died, perhaps because an env took longer than `start_timeout` to build.
            BrokenPoolError, ClosedError: An env is lost, or the pool is closed.
        If an error is raised before all envs are built, the old envs continue unchanged.
        """
        self._engine.check_open()
        targets = self._named(env_ids)
        if self._engine.layout.vector_size is not None:
            check_whole(targets, self._engine.layout)
        self._engine.replacing.replace(targets, env_fns)

    def _callable(self, env_ids: Iterable[int] | None) -> Sequence[int]:
        """Checks that the pool is open, and returns the ids of the envs to call."""
        self._engine.check_open()
        return self._named(env_ids)

    def _check_common(self, per_env_args: Sequence[tuple[Any, ...]], targets: Sequence[int]) -> None:
        if self._engine.layout.vector_size is not None:
            check_common("arguments", per_env_args, targets, self._engine.layout)

    def _ask(
        self,
        targets: Sequence[int],
        order: CallEnv,
        per_env_args: Sequence[tuple[Any, ...]] | None,
        *,
        to_spares: bool,
    ) -> Call:
        """Sends each env the call `order`, with the env's arguments from `per_env_args` unless that is None."""
        if per_env_args is None:
            messages = [dump(order)] * len(targets)
        else:
            messages = [dump(replace(order, args=args)) for args in per_env_args]
        call = self._engine.exchange.call(targets, messages, order.about, self._part)
        if to_spares and self._engine.layout.spares:
            self._engine.exchange.call_spares(call, dump(order), order.about)
        return call

    def _named(self, env_ids: Iterable[int] | None) -> Sequence[int]:
        return self._ids if env_ids is None else check_env_ids(env_ids, self._ids)
