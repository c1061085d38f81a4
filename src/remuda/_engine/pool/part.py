"""A part of a pool, or a whole pool: envs that receive commands and return results together."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal, NoReturn

import numpy as np
from gymnasium import Space
from gymnasium.vector.utils import batch_space

from remuda import _core
from remuda._copying import not_copied
from remuda._engine.batches.batch import Batch
from remuda._engine.calls import Call, call_attribute, get_attribute, set_attribute
from remuda._engine.commands.arguments import (
    check_common,
    check_env_ids,
    check_limit,
    check_order,
    check_rollout,
    check_whole,
    dump_objects,
)
from remuda._engine.commands.resets import Options
from remuda._engine.engine import Engine, with_hub_lock
from remuda._engine.options.checks import check_timeout
from remuda._engine.pool.state_checks import check_in_episode, check_states, check_taken
from remuda._engine.rollouts.columns import ColumnType, Declared, check_columns
from remuda._engine.rollouts.rollout import Rollout
from remuda._engine.running import SPLIT_SINCE
from remuda._engine.seeds import Seed
from remuda._error_frames import holds_nothing
from remuda._wire.env_state import EnvState, StateFns
from remuda._wire.pickling import bundle, dump
from remuda._wire.requests import CallEnv, TakeState
from remuda.errors import StateError

_STEP = _core.Op.STEP


class Part:
    """A part of a pool: envs that get commands and return results together. `Pool.split` returns parts::

        halves = pool.split(2)
        for half in halves:
            half.send_reset(seed=0)
        while learning:
            for half in halves:  # while the policy acts for one half, the other half's envs step
                batch = half.recv()
                half.send(policy(batch.obs))

    Env ids are those of the pool. A whole pool is a part too. Calls reach the envs of the part.

    Attributes:
        env_ids: (n,) int64, ascending.
        num_envs: n.
    """

    def __init__(self, engine: Engine, part: int, pool: Part | None = None) -> None:
        """`part`: the part's number. `pool`: the part's pool, held so that it stays open; None if this is a pool."""
        self._engine, self._exchange, self._pool = engine, engine.exchange, pool
        self._part, self._is_whole = part, pool is None
        self.env_ids: np.ndarray[Any, np.dtype[np.int64]] = engine.running.hub.env_ids(part)
        self.num_envs, self._ids = len(self.env_ids), self.env_ids.tolist()
        self._has_objects = engine.layout.action.num_objects > 0  # whether some values of actions have no column.
        self._failed_after: int | None = None  # the number of batches so far when an error was last raised

    @property
    def single_observation_space(self) -> Space[Any]:
        """The observation space of one env."""
        return self._engine.layout.observation_space

    @property
    def single_action_space(self) -> Space[Any]:
        """The action space of one env. With `seeding="per_episode"`, a reset of env 0 with a seed seeds it too."""
        return self._engine.action_spaces.single

    @property
    def observation_space(self) -> Space[Any]:
        """The space of `obs` in a batch of all `num_envs` envs: Gymnasium's `batch_space` of the single space."""
        return self._batched_spaces[0]

    @property
    def action_space(self) -> Space[Any]:
        """The space of actions for all `num_envs` envs: `pool.step(pool.action_space.sample())`.

        It is Gymnasium's `batch_space` of the single space. No reset seeds it; its own `seed` does.
        """
        return self._batched_spaces[1]

    @cached_property
    def _batched_spaces(self) -> tuple[Space[Any], Space[Any]]:
        """The batched spaces of observations and actions. Built only once: spaces built again would lose their seed."""
        single = self.single_observation_space, self.single_action_space
        return batch_space(single[0], self.num_envs), batch_space(single[1], self.num_envs)

    # -- commands and results ---------------------------------------------------------------------------------

    def send(self, actions: Any, env_ids: Iterable[int] | None = None, *, as_given: bool = False) -> None:
        """Sends each env its next action, and returns at once.

        Args:
            actions: An element of `action_space`, or for n envs of `batch_space(single_action_space, n)`: arrays of n
                rows, dicts or tuples of such, and for spaces without a fixed size a sequence of n. They are copied.
                Within a row, axes of length 1 may be missing or added.
            env_ids: The n envs, in the order of the actions; None for all. All envs of a vector env, in their order.
            as_given: Each env receives its row of the array `actions` with the array's dtype, instead of that of the
                action space. The rows are pickled, which takes longer. Rollouts and crash records have the space's
                dtype. Without effect on vector envs, and on spaces without a fixed size.

        Raises:
            ValueError, TypeError: `env_ids` is invalid, or names only some envs of a vector env. Nothing was sent.
            InvalidActionError: The number, shape or dtype is wrong, or a discrete choice is out of range. (The pool
                does not check the bounds of a Box.) Nothing was sent.
            StateError: An env has not been reset, or is in flight. Nothing was sent.
            BrokenPoolError, ClosedError: An env is lost, or the pool is closed.
        """
        if self._engine.hub is None:  # no local variable for the hub: a kept traceback would keep the hub
            return self._check_open()
        blobs = None
        if self._has_objects:
            actions, blobs, env_ids = self._without_objects(actions, env_ids)
        elif as_given and self._engine.layout.vector_size is None:
            env_ids = self._targets(env_ids)
            if len(actions) == len(env_ids):  # else the hub raises the error
                blobs = dump_objects([[action] for action in actions], env_ids)
        refusal = self._engine.hub.send(_STEP, env_ids, actions, blobs, self._part)
        if refusal is not None:
            self.send(actions, self._targets_after(refusal, env_ids), as_given=as_given)

    @with_hub_lock
    def send_reset(self, *, seed: Seed = None, options: Options = None, env_ids: Iterable[int] | None = None) -> None:
        """Sends envs a reset and returns at once. For `seed`, `options`, `env_ids` and what it raises see `reset`."""
        self._engine.resets.send(self._targets(env_ids), seed, options, self._part, to_all=env_ids is None)

    @with_hub_lock
    def request_obs(self, env_ids: Iterable[int] | None = None) -> None:
        """Requests the current observations of envs once more, without a step. Rewards are 0, and infos empty.

        Args:
            env_ids: The envs; None for all.

        Raises: See `send`.
        """
        targets = self._targets(env_ids)
        self._exchange.send(_core.Op.OBSERVE, targets, None, self._part, to_all=env_ids is None)

    def _repeat_obs(self, env_ids: Iterable[int]) -> None:
        """Does the same as `request_obs`, but if an env has just failed, the next step returns the row of the fault."""
        op = _core.Op.REPEAT if self._engine.layout.keeps_last else _core.Op.OBSERVE
        self._exchange.send(op, self._targets(env_ids), None, self._part, to_all=False)

    def recv(
        self,
        min_envs: int | None = None,
        timeout: float | None = None,
        max_envs: int | None = None,
        order: Literal["arrival", "slot"] = "arrival",
    ) -> Batch:
        """Waits for results of envs, and returns those that have arrived as a batch.

        Args:
            min_envs: The number of envs to wait for, if as many are in flight; None for all that are in flight.
            timeout: The seconds to wait at most. Then the batch has the results so far, perhaps none. The other envs
                stay in flight, for a later `recv`; nothing is lost.
            max_envs: The largest number of results to take, the first to arrive. With `vector_size`, a multiple of it.
            order: The order of the rows: "arrival", or "slot" for ascending `env_ids`. In both cases the envs that
                arrived first are taken, so that no env starves.

        Returns:
            A batch: of all envs by ascending `env_ids` if all were sent together, otherwise of some envs in `order`.

        Raises:
            ValueError, TypeError: An argument is invalid, or `min_envs` is larger than `num_envs`.
            StateError: No env is in flight.
            EnvError: Envs raised. The next `recv` returns the results of the others.
            WorkerDiedError: A worker died while it had work.
            EnvTimeoutError, CorruptReplyError, ShardDiedError: Subclasses of WorkerDiedError: the worker missed a
                deadline and was killed, wrote invalid data, or was a shard of a cluster.
            RestartLimitError: An env failed more often than `faults` allows.
        """
        waits = min_envs is None or (type(min_envs) is int and 0 < min_envs <= self.num_envs)
        is_plain = waits and timeout is None and max_envs is None and order == "arrival"
        if is_plain and self._engine.hub is not None:
            batch = self._engine.hub.receive(min_envs or 0, self._part)
            if batch is not None:
                return batch  # type: ignore[return-value]  # the type that the hub makes
        return self._receive(min_envs, timeout, max_envs, order)

    @with_hub_lock
    def _receive(
        self,
        min_envs: int | None = None,
        timeout: float | None = None,
        max_envs: int | None = None,
        order: str = "arrival",
        env_ids: Sequence[int] | None = None,
    ) -> Batch:
        """Receives like `recv`, and handles faults. `env_ids`: the envs to wait for, in the order of the rows."""
        self._check_open()
        check_limit("min_envs", min_envs)
        check_limit("max_envs", max_envs, self._engine.layout.vector_size)
        if min_envs is not None and min_envs > self.num_envs:
            raise ValueError(f"expected min_envs to be at most {self.num_envs} (the number of envs), got {min_envs}")
        check_timeout(timeout)
        check_order(order)
        exchange = self._exchange
        if self._engine.faults.urgent:
            self._raise_any()
        there = self._engine.running.slots.pending(self._part)
        if there == 0:
            self._raise_any()
            self._some(env_ids)
            raise StateError("expected envs in flight, got none: recv follows send, send_reset or request_obs")
        wanted = there if min_envs is None else min(min_envs, there)
        while True:
            exchange.wait(wanted, timeout, self._part)
            self._raise_any()
            ready = self._engine.running.slots.ready(self._part)
            if self._engine.running.slots.pending(self._part) < (1 if env_ids is None else wanted):
                raise StateError(
                    "expected envs in flight, got none: a handler of signals or logs has received the results"
                )
            limit = ready if max_envs is None else max_envs
            batch = self._engine.running.hub.take(limit, order == "slot", env_ids, self._part)
            if batch is not None:
                return batch  # type: ignore[return-value]
            wanted = ready + 1  # a handler has sent other envs' commands, and their results are among those

    @with_hub_lock
    def reset(self, *, seed: Seed = None, options: Options = None, env_ids: Iterable[int] | None = None) -> Batch:
        """Resets envs and waits for their first observations.

        Args:
            seed: An int seeds env i with `seed + i`; a sequence has a seed (or None) for each env. With
                seeding="per_episode" a seed is for all later episodes of env i, autoresets included: episode n,
                counted from 0, gets the lower 31 bits of
                `numpy.random.SeedSequence(seed, spawn_key=(i, n)).generate_state(1)[0]`, and an int is the same for
                all envs. An env without a seed continues the count of its last seed, or of one that the pool has
                drawn. A seed for env i also seeds `action_spaces[i]`, and one for env 0 `single_action_space`.
            options: A mapping for all envs, or a sequence with one mapping (or None) for each env, for this reset
                only. An env without options gets those of `set_reset_options`.
            env_ids: The envs; None for all.

        Returns: A batch of these envs, in the order of `env_ids`: first observations, reward 0, no flag set.

        Raises:
            ValueError, TypeError: An argument is invalid; with "per_episode" also a seed below 0. Nothing was sent.
            StateError: An env is in flight. Nothing was sent. (A reset of all envs instead drops what an error has
                left in flight. If the pool is divided, it drops what the parts have in flight, and makes the pool
                whole.)
            EnvError, WorkerDiedError, BrokenPoolError, ClosedError: See `send` and `recv`.
        """
        if env_ids is None and (self._is_left_over or self._is_divided):
            self.discard()
        self._check_quiet()
        targets = self._some(env_ids)
        self.send_reset(seed=seed, options=options, env_ids=targets)
        return self._receive(env_ids=targets)

    def step(self, actions: Any, env_ids: Iterable[int] | None = None) -> Batch:
        """Steps envs once: `send`, then `recv` for all of them.

        Args:
            actions, env_ids: See `send`.

        Returns: A batch of these envs, in the order of `env_ids`.

        Raises:
            StateError: With `env_ids`, also if any other env is in flight. Nothing was sent.
            Exception: Any error of `send` or `recv`.
        """
        if self._engine.hub is None or self._has_objects:
            return self._send_and_receive(actions, env_ids)
        batch = self._engine.hub.step(actions, env_ids, self._part)
        if type(batch) is Batch:
            return batch
        if batch is None:  # the actions were sent, but an event must be handled before results are received.
            return self._receive(env_ids=env_ids)  # type: ignore[arg-type]  # the hub accepts sequences only.
        return self.step(actions, self._targets_after(batch, env_ids))  # type: ignore[arg-type]  # `batch` is a refusal

    @with_hub_lock
    def _send_and_receive(self, actions: Any, env_ids: Iterable[int] | None) -> Batch:
        """Steps envs by `send` and `_receive`, for arguments that `hub.step` does not support."""
        targets = None
        if env_ids is not None:
            self._check_quiet()
            targets = self._targets(env_ids)
        self.send(actions, targets)
        return self._receive(env_ids=targets)

    @property
    def pending(self) -> int:
        """The number of envs in flight, in all parts of a divided pool. An env is in flight until a call returns its
        result or raises its error."""
        if self._engine.closed:
            return 0
        parts = self._parts if self._is_divided else (self,)
        return sum(self._engine.running.slots.pending(part._part) for part in parts)

    def discard(self) -> None:
        """Waits for all envs in flight, and drops their results and faults. Envs that failed must be reset. A divided
        pool is made whole.

        Raises:
            StateError: This is a part, and the pool has been split since, or made whole.
            ClosedError: The pool is closed.
        """
        self._engine.check_open()
        if self._is_divided:
            for part in self._parts:
                part.discard()
            self._part = self._engine.divide([self._ids])
        self._check_open()
        if self.pending or self._engine.faults.any_unraised:
            self._drop_pending()
        self._failed_after = None

    @with_hub_lock
    def _drop_pending(self) -> None:
        slots = self._engine.running.slots
        self._engine.batches.forget([slot for slot in self._ids if not slots.is_idle(slot)])
        self._exchange.drop_pending(self._part)

    @property
    def last_sent(self) -> int:
        """An int that grows with each command and call for these envs. Raises ClosedError after `close`."""
        self._engine.check_open()
        return self._engine.running.slots.last_sent(self._ids)

    @holds_nothing
    def rollout(self, steps: int, columns: Mapping[str, ColumnType] | None = None, parts: int = 1) -> Rollout:
        """Returns a rollout: memory for `steps` steps of all envs, into which workers write the envs' next steps.

        The envs need no reset: the rollout begins with their current observations. Until each env has made its steps,
        all steps go there, even those that other code sends. You may hold several rollouts. The memory of a rollout is
        reused when neither the rollout nor an array of it is held.

        Args:
            steps: The number of steps of each env, from 1 up.
            columns: Your own columns: names, and for each a dtype or (dtype, shape), of one env's entry at one step.
                Other columns are created when `act` first gets them.
            parts: The number of parts. More than 1, only for a whole pool, divides the envs like `Pool.split`, so that
                some step while others act. Then `env_ids` has another order. The pool stays divided until `split(1)`,
                `reset` or `discard`.

        Returns:
            The rollout, to be iterated over.

        Raises:
            ValueError, TypeError: An argument is invalid; a space has parts without a column, such as texts and graphs;
                or autoreset is "disabled" or "background". Nothing has changed.
            MemoryError: There is not enough memory. Nothing has changed.
            StateError: An env is in flight, must be reset, or was put there by `replace` and not reset since.
            NotImplementedError: This system is not Linux.
            EnvError, WorkerDiedError: An env could not return its observation.
        """
        self._check_rollout(steps, parts)
        declared = check_columns(columns)
        self._check_quiet()
        self._engine.faults.check_reset(self._ids)
        return self._begin_rollout(steps, declared, parts)

    def _check_rollout(self, steps: int, parts: int) -> None:
        """Checks the arguments of `rollout`, and whether the pool supports rollouts. Raises the errors of `rollout`."""
        self._engine.check_open()
        check_rollout(steps, self._engine.layout)
        if parts != 1 and self._pool is not None:
            raise ValueError(f"expected parts=1 for a part of a pool, got {parts}: only a whole pool can be divided")

    @with_hub_lock
    def _begin_rollout(self, steps: int, columns: Declared, parts: int) -> Rollout:
        self._check_open()
        return Rollout((self,), steps, columns)

    # -- functions in the envs --------------------------------------------------------------------------------

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

    @with_hub_lock
    def apply_async(
        self,
        fn: Callable[..., Any],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        env_ids: Iterable[int] | None = None,
        per_env_args: Sequence[tuple[Any, ...]] | None = None,
        with_spares: bool = False,
        about: Hashable = None,
        on_rebuild: Callable[..., Any] | None = None,
    ) -> Call:
        """Runs a function like `apply`, but returns at once.

        Args:
            per_env_args: The arguments for each env, instead of `args`. The envs of a vector env have equal arguments.
            with_spares: Whether the spares of a pool run the function too; their answers follow those of the slots. No
                effect on a part.
            about: The subject of a lasting call: a rebuilt env runs the latest call about each subject again, in the
                order of these calls. None: the call is not lasting.
            on_rebuild: The function that a rebuilt env runs instead of `fn`: `on_rebuild(env, derive, ...)`.
                `derive(seed)` returns a seed of 31 bits, derived from that seed (from 0 up), the env and the number of
                its rebuilds.

        Raises: See `call_async`; ValueError also if `per_env_args` has the wrong length.
        """
        self._engine.check_open()
        if args and isinstance(args[0], str) and args[0] == "render":  # faces call by other functions than `call_async`
            self._engine.rendering.note_request()
        layout, targets = self._engine.layout, self._named(env_ids)
        order = CallEnv(fn, args, kwargs, about, on_rebuild)
        if per_env_args is None:
            messages = [dump(order)] * len(targets)
        else:
            if (number := len(per_env_args)) != len(targets):
                raise ValueError(f"expected {len(targets)} tuples of arguments, one for each env, got {number}")
            if layout.vector_size is not None:
                check_common("arguments", per_env_args, targets, layout)
            messages = [dump(replace(order, args=args)) for args in per_env_args]
        call = self._engine.exchange.call(targets, messages, about, self._part)
        if with_spares and self._is_whole and layout.spares:
            self._engine.exchange.call_spares(call, dump(order), about)
        return call

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

    @with_hub_lock
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

    @with_hub_lock
    def replace(self, env_ids: Iterable[int] | None, env_fns: Sequence[Callable[[], Any]]) -> None:
        """Replaces envs (by another task or level) in living workers: no process is started or ended.

            pool.replace([2, 5], [lambda: make("assembly"), lambda: make("drawer")])
            batch = pool.reset(env_ids=[2, 5])

        First all new envs are built, each in the worker of its slot, beside the old env. Then each new env takes its
        place, and the old one is closed (an exception of its `close` is logged). A slot in the middle of an episode
        loses the episode, and no result reports that. The slot must then be reset: with autoreset "next_step" by its
        next step, which ignores its action, or by `reset(env_ids=...)`; in other modes only by the latter. Until then
        the slot has no observation and no state: `rollout`, `request_obs` and `get_state` raise StateError. In an
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

    # -- states -----------------------------------------------------------------------------------------------

    @with_hub_lock
    def get_state(self, env_ids: Iterable[int] | None = None, *, state_fns: StateFns = None) -> list[EnvState]:
        """Returns the state of each env: its position in its episode, from which `set_state` lets an env continue.

        A state has the env's own state, that of each wrapper around it, and the last observation. The env's own state
        is taken by its methods `get_state` and `set_state`, or by `clone_state` and `restore_state` (as in ale_py,
        random numbers included). For a MuJoCo simulation it is taken from the simulation's data, and for Gymnasium's
        classic control and toy text envs from their attributes, random numbers included. Of wrappers all attributes
        are taken.

        Args:
            env_ids: The envs; None for all.
            state_fns: Another way to take it: two functions, `get(env)`, which returns an object that can be pickled,
                and `put(env, state)`, both called with the env as its factory made it; or "attributes", for envs that
                have all their state in attributes that can be pickled (no outside simulator, no handles).

        Returns: A state for each env, in the order of `env_ids`. They can be pickled, kept, and put into other pools.

        Raises:
            InvalidEnvError: An env supports none of these, and `state_fns` is None. Nothing was sent.
            StateError: An env has not been reset, is in flight, or was rebuilt and has not been reset since. Nothing
                was sent.
            ValueError, TypeError: An argument is invalid, or the pool has `vector_size`. Nothing was sent.
            EnvError: A function raised, or the state cannot be pickled. The episode continues.
            WorkerDiedError, BrokenPoolError, ClosedError: A worker died, an env is lost, or the pool is closed.
        """
        self._engine.check_open()
        targets = self._named(env_ids)
        check_taken(state_fns, targets, self._engine)
        self._engine.faults.check_reset(targets)
        check_in_episode(targets, self._engine)
        messages = [dump(TakeState(state_fns))] * len(targets)
        return self._engine.exchange.call(targets, messages).result()

    @with_hub_lock
    def set_state(self, states: Sequence[EnvState], env_ids: Iterable[int] | None = None) -> Batch:
        """Puts each env into a state, from which the env's next step continues.

        This replaces a reset: the current episode of the env is dropped, and no other begins. Seeds and options of
        resets do not change.

        Args:
            states: One for each env, taken from an env that was made alike; several envs may get the same state.
            env_ids: The envs, in the order of the states; None for all.

        Returns: A batch of these envs, in the order of `env_ids`: the observation and the flags of the state, reward 0,
            `extras` computed again.

        Raises:
            ValueError, TypeError: There is not one state for each env; a state is from an env that was made
                differently; the pool has `vector_size`; or with same-step autoreset a state is after the end of an
                episode. Nothing was sent.
            StateError: An env is in flight. Nothing was sent.
            EnvError: A function raised. The env must be reset.
            WorkerDiedError, BrokenPoolError, ClosedError: See `reset`. With faults="restart" a rebuilt env is put into
                the state, too.
        """
        self._engine.check_open()
        targets = self._targets(env_ids)
        checked = check_states(states, targets, self._engine)
        self._check_quiet()
        self._engine.resets.restore(targets, checked, self._part, to_all=env_ids is None)
        return self._receive(env_ids=targets)

    @with_hub_lock
    def fork_state(
        self, source: int | Sequence[int], targets: int | Sequence[int], *, state_fns: StateFns = None
    ) -> Batch:
        """Copies the states of envs into other envs: `set_state(get_state(source), targets)`.

        Args:
            source: An env, which is copied into all `targets`; or one env for each of them.
            targets: The envs to set. They may be among the sources, because all states are taken first.
            state_fns: See `get_state`.

        Returns: See `set_state`.
        Raises: See `get_state` and `set_state`.
        """
        into = _ids(targets)
        if not into:
            raise ValueError("expected at least one env to copy into, got none at targets; name some")
        sources = _ids(source) if hasattr(source, "__len__") else [source] * len(into)
        if len(sources) != len(into):
            raise ValueError(f"expected one env, or {len(into)}, to copy into {into}, got {sources}")
        once = list(dict.fromkeys(sources))
        states = dict(zip(once, self.get_state(once, state_fns=state_fns), strict=True))
        return self.set_state([states[env] for env in sources], into)

    @holds_nothing
    def __reduce__(self) -> NoReturn:
        """Raises TypeError, because the workers cannot be copied."""
        raise not_copied(self)

    def __repr__(self) -> str:
        return f"<Part of a pool: {self.num_envs} envs>"

    # -- inside ------------------------------------------------------------------------------------------

    def _without_objects(
        self, actions: Any, env_ids: Iterable[int] | None
    ) -> tuple[tuple[Any, ...], list[Any], Sequence[int]]:
        """Splits actions. Returns (arrays for the columns, pickled objects for each env, env ids)."""
        targets = self._targets(env_ids)
        arrays, objects = self._engine.layout.action.split_batch(actions, len(targets))
        self._engine.faults.check_reset(targets)
        assert objects is not None
        blobs, layout = dump_objects(objects, targets), self._engine.layout
        if layout.vector_size is not None:  # the rows of a vector env have one message
            blobs = [bundle([(0, parts) for parts in own]) for own in layout.by_env(blobs)]
        return tuple(arrays), blobs, targets

    @with_hub_lock
    def _targets_after(self, refusal: _core.Refusal, env_ids: Iterable[int] | None) -> Iterable[int] | None:
        """Returns the `env_ids` for repeating a step that the hub has refused. Raises if it would be refused again."""
        if refusal.reason == _core.Reason.TARGETS:  # makes a list of a set or generator; raises for invalid ids
            return self._targets(env_ids)
        self._check_open()
        self._exchange.raise_refusal(refusal, self._part)

    def _raise_any(self) -> None:
        """Raises an error if there are faults. Then `_is_left_over` is True until the next batch."""
        try:
            if self._engine.faults.any_unraised:
                self._exchange.log(self._part)
            self._engine.faults.raise_any(self._part)
        except BaseException:
            self._failed_after = self._engine.running.hub.caller.batches
            raise

    @property
    def _is_left_over(self) -> bool:
        """Whether no batch was received since an error was raised. Then a reset of all envs drops what is in flight."""
        hub = self._engine.hub
        return hub is not None and self._failed_after == hub.caller.batches

    @property
    def _is_divided(self) -> bool:
        """Whether this is a pool that is divided into parts now."""
        hub = self._engine.hub
        return hub is not None and self._pool is None and not hub.slots.has_part(self._part)

    @property
    def _parts(self) -> tuple[Part, ...]:
        """The parts into which the pool was divided last."""
        return tuple(Part(self._engine, number, self) for number in self._engine.running.slots.part_numbers)

    def _targets(self, env_ids: Iterable[int] | None) -> Sequence[int]:
        self._check_open()
        targets = self._named(env_ids)
        if env_ids is not None and self._engine.layout.vector_size is not None:
            check_whole(targets, self._engine.layout)
        return targets

    def _some(self, env_ids: Iterable[int] | None) -> Sequence[int] | None:
        """Returns the checked env ids; None for all envs. Raises ValueError if there are none."""
        targets = None if env_ids is None else self._targets(env_ids)
        if targets is not None and len(targets) == 0:
            raise ValueError("expected env_ids to have at least one env, got none; nothing was sent")
        return targets

    def _check_open(self) -> None:
        self._engine.check_open()
        if not self._engine.running.slots.has_part(self._part):
            raise StateError(SPLIT_SINCE)

    def _check_quiet(self) -> None:
        if self.pending:
            raise StateError(f"expected no env in flight, got {self.pending}; call recv or discard first")

    def _named(self, env_ids: Iterable[int] | None) -> Sequence[int]:
        return self._ids if env_ids is None else check_env_ids(env_ids, self._ids)


def _ids(ids: Any) -> list[int]:
    return list(ids) if hasattr(ids, "__len__") else [ids]
