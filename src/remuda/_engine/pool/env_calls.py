"""Calls methods of envs, and sets their attributes and their options, beside their steps."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from remuda._engine.commands.arguments import check_common, check_env_ids, check_whole
from remuda._engine.commands.engine import Engine
from remuda._engine.commands.resets import Options
from remuda._engine.running.calls import Call, call_attribute, get_attribute, set_attribute
from remuda._wire.pickling import dump_for_worker
from remuda._wire.requests import CallEnv


class EnvCalls:
    """The calls into envs of a pool, or of a part of it; a divided pool can be called, too."""

    _engine: Engine
    _ids: list[int]
    _is_whole: bool
    """Whether these are all of the pool's envs, its spares included."""

    def call(self, name: str, /, *args: Any, env_ids: Iterable[int] | None = None, **kwargs: Any) -> list[Any]:
        """`env.name(*args, **kwargs)` for each env, or the attribute itself where it cannot be called.

        Wrappers are looked through. An env that is in flight answers when it is done. A vector env is asked once, and
        its answer stands for each of its envs.

        Returns: One value for each env, pickled there and unpickled here.
        Raises: As `Call.result` does.
        """
        return self.call_async(name, *args, env_ids=env_ids, **kwargs).result()

    def call_async(self, name: str, /, *args: Any, env_ids: Iterable[int] | None = None, **kwargs: Any) -> Call:
        """Calls as `call(name, ...)` does, but returns at once; the answers are the returned object's `result()`.

        Raises:
            ValueError, TypeError: `env_ids` that are none. Nothing was sent.
            BrokenPoolError, ClosedError: One of the envs can never answer. Nothing was sent.
        """
        return self.apply_async(call_attribute, (name, args, kwargs), env_ids=env_ids)

    def apply(
        self, fn: Callable[..., Any], /, *args: Any, env_ids: Iterable[int] | None = None, **kwargs: Any
    ) -> list[Any]:
        """Runs `fn(env, *args, **kwargs)` in each env's worker; `fn` is pickled (lambdas too).

        Returns, raises: As `call` does.
        """
        return self.apply_async(fn, args, kwargs, env_ids).result()

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
        """Runs a function as `apply` does, but returns at once.

        Args:
            per_env_args: Arguments for each env, instead of `args` for all. Those of a vector env's must be equal.
            with_spares: The same in every spare of a pool, whose answers are not returned; not where a part is called.
            about: The subject of a lasting call: an env that is rebuilt gets the latest call about each subject again,
                in the order of these calls. None: nothing lasting.
            again: Called then in the place of `fn`: `again(env, derive, ...)`. `derive(seed)` is another seed, which
                follows from that one (from 0 up), the env and how often it was rebuilt; of 31 bits.

        Raises:
            ValueError, TypeError: `env_ids` that are none; `per_env_args` of another number. Nothing was sent.
            BrokenPoolError, ClosedError: One of the envs can never answer. Nothing was sent.
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
        """The attribute `name` of each env, found through its wrappers: unpickled copies. Raises as `call` does."""
        return self.apply(get_attribute, name, env_ids=env_ids)

    def set_attr(self, name: str, value: Any, env_ids: Iterable[int] | None = None, *, lasting: bool = False) -> None:
        """Sets the attribute `name` of each env to the same `value`; a pool with `env_ids` None that of spares, too.

        `lasting`: also of envs that are built anew, until it is set to something else in this way. Raises as `call`.
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
        """Sets the attribute `name` of each env to its own of the `values`, in the order of `env_ids`. `lasting` as in
        `set_attr`. Raises as `call` does, and a ValueError where there are not as many values as envs."""
        each = [(name, value) for value in values]
        about = ("attribute", name) if lasting else None
        self.apply_async(set_attribute, env_ids=env_ids, per_env_args=each, about=about).result()

    def render(self) -> list[Any]:
        """`env.render()` of each env. What a vector env returns stands for each of its envs, whole. Raises as
        `call` does."""
        return self.call("render")

    def set_reset_options(self, options: Options, env_ids: Iterable[int] | None = None) -> None:
        """Sets the options of all resets to come that name none, autoresets included, until it is called again.

        They hold for resets that begin after what the envs have been sent so far, and outlive restarts of workers and
        envs. An env that has been reset in advance, and not been asked for it yet, is reset once more. What is passed
        is copied at once, and each reset gets a copy.

        Args:
            options: For every env alike; a sequence with one mapping (or None) for each env; None: no more options.
            env_ids: Which envs; None for all. With spares there is but one mapping, for all of the pool.

        Raises:
            ValueError, TypeError: Options of another form, or that cannot be pickled. Those before stay in force.
                With `vector_size` always: vector envs reset theirs by themselves.
            BrokenPoolError, ClosedError: It can never be done.
        """
        self._engine.check_open()
        every_env = env_ids is None and self._is_whole
        self._engine.resets.remember(None if every_env else self._named(env_ids), options)

    def replace(self, env_ids: Iterable[int] | None, env_fns: Sequence[Callable[[], Any]]) -> None:
        """Puts other envs (another task, another level) into living workers: no process is started or ended.

            pool.replace([2, 5], [lambda: make("assembly"), lambda: make("drawer")])
            batch = pool.reset(env_ids=[2, 5])

        All are built first, each in the worker that hosts its slot, beside the env that is there; then each takes its
        place, and the old one is closed (what that raises is logged). A slot in the middle of an episode loses it, and
        no result reports that. The slot is to be reset: with autoreset "next_step" by its next step, which ignores its
        action, or by `reset(env_ids=...)`; in the other modes by that alone. Until then it has no observation and no
        state: `rollout`, `send_observe` and `get_state` raise a StateError. In a rollout that is open, with
        "next_step", the last step of the old env is truncated.

        An old env with a render mode that draws is closed before the new one is built. If this call raises then, the
        next reset of its slot, or the next call into it, builds the old env again; its episode is lost.

        From then on they are the envs of these slots: restarts and renewals build them, crash records name them, and
        lasting attributes and reset options of the slots hold for them, too. Their first reset without a seed gets one
        that is derived from the slot's last one, like that of any env that is rebuilt.

        Args:
            env_ids: Whose places they take, none of them in flight; None for all. Of a vector env all.
            env_fns: A factory for each env, or for each vector env.

        Raises:
            ValueError, TypeError: Arguments of another form; or the pool has spares.
            StateError: An env is in flight.
            InvalidEnvError: A factory that cannot be pickled (worker processes), or returned no env of its own.
            EnvError: A factory raised; its exception is the cause.
            SpaceMismatchError: Spaces do not fit into the pool's rows.
            WorkerDiedError: A worker died meanwhile; by `start_timeout`, too, which holds for each env.
            BrokenPoolError, ClosedError: It can never be done.
        Whatever is raised before the last env is built, all old ones go on as if nothing had been asked.
        """
        self._engine.check_open()
        targets = self._named(env_ids)
        if self._engine.layout.vector_size is not None:
            check_whole(targets, self._engine.layout)
        self._engine.replacing.replace(targets, env_fns)

    def _callable(self, env_ids: Iterable[int] | None) -> Sequence[int]:
        """Returns the ids of envs that may be called."""
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
        """Sends each env the order, with arguments of its own where there are any."""
        if per_env_args is None:
            messages = [dump_for_worker(order)] * len(targets)
        else:
            messages = [dump_for_worker(replace(order, args=args)) for args in per_env_args]
        call = self._engine.exchange.call(targets, messages, order.about)
        if to_spares and self._engine.layout.spares:
            self._engine.exchange.call_spares(call, dump_for_worker(order), order.about)
        return call

    def _named(self, env_ids: Iterable[int] | None) -> Sequence[int]:
        return self._ids if env_ids is None else check_env_ids(env_ids, self._ids)
