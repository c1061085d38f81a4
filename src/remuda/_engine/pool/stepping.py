"""Sends actions to some of a pool's envs and receives their results: the two calls that everything is made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np

from remuda import _core
from remuda._engine.commands.arguments import check_limit, check_order, check_padding, check_whole, dump_objects
from remuda._engine.commands.batch import Batch
from remuda._engine.commands.engine import Engine
from remuda._engine.commands.resets import Options
from remuda._engine.options.checks import check_timeout
from remuda._engine.pool.env_calls import EnvCalls
from remuda._engine.running.running import SPLIT_SINCE
from remuda._engine.running.seeds import Seed
from remuda._system.memory import check_memory
from remuda._wire.pickling import Parts, bundle
from remuda.errors import StateError

_STEP = _core.Op.STEP


class Stepping(EnvCalls):
    """Envs that are sent and received together, apart from the other envs of their pool."""

    def __init__(self, engine: Engine, part: int, pool: Stepping | None = None) -> None:
        """`part`: its number. `pool`: what this is a part of; it stays open as long as this is there."""
        self._engine, self._exchange, self._pool = engine, engine.exchange, pool
        self._part, self._is_whole = part, pool is None
        self.env_ids: np.ndarray[Any, np.dtype[np.int64]] = engine.running.hub.env_ids(part)
        self.num_envs, self._ids = len(self.env_ids), self.env_ids.tolist()
        self._has_objects = engine.layout.action.num_objects > 0  # parts of actions that the core cannot write
        self._failed_after: int | None = None  # so many batches, the last time that faults were raised

    def send(self, actions: Any, env_ids: Iterable[int] | None = None) -> None:
        """Hands envs their next action and returns at once.

        Args:
            actions: An element of `action_space`, or for n envs of `batch_space(single_action_space, n)`: arrays of n
                rows, dicts or tuples of such, and for spaces without a fixed size a sequence of n. They are copied.
            env_ids: The n envs, in the order of the actions; None for all. Of a vector env all, in their order.

        Raises:
            ValueError: `env_ids` that are none, or not whole vector envs. Nothing was sent.
            InvalidActionError: Wrong number, shape, dtype, or out of range for a discrete choice. (The bounds of
                a Box are the env's affair.) Nothing was sent.
            StateError: An env has not been reset, or is in flight. Nothing was sent.
            BrokenPoolError, ClosedError: It can never answer.
        """
        if self._engine.hub is None:  # no name of our own for it here: see `Engine`
            return self._check_open()
        blobs = None
        if self._has_objects:
            actions, blobs, env_ids = self._without_objects(actions, env_ids)
        refusal = self._engine.hub.send(_STEP, env_ids, actions, blobs, self._part)
        return None if refusal is None else self.send(actions, self._targets_after(refusal, env_ids))

    def send_reset(self, *, seed: Seed = None, options: Options = None, env_ids: Iterable[int] | None = None) -> None:
        """Sends envs a reset and returns at once.

        Args:
            seed, options, env_ids: As in `reset`.

        Raises:
            ValueError, TypeError: Arguments of another form. Nothing was sent.
            StateError: An env is in flight. Nothing was sent.
            BrokenPoolError, ClosedError: It can never answer.
        """
        self._engine.resets.send(self._targets(env_ids), seed, options, self._part, to_all=env_ids is None)

    def send_observe(self, env_ids: Iterable[int] | None = None) -> None:
        """Requests the current observation of envs once more: no step is taken, reward is 0, the info empty.

        Args:
            env_ids: Which envs; None for all.

        Raises: As `send` does.
        """
        targets = self._targets(env_ids)
        self._exchange.send(_core.Op.OBSERVE, targets, None, self._part, to_all=env_ids is None)

    def recv(
        self,
        min_envs: int | None = None,
        timeout: float | None = None,
        max_envs: int | None = None,
        order: Literal["arrival", "slot"] = "arrival",
        *,
        pad_to: int | None = None,
    ) -> Batch:
        """Waits for results and takes those that are there.

        Args:
            min_envs: Wait until so many envs are done; None for all that are in flight.
            timeout: Seconds to wait at most. Then the batch has what is there: fewer envs, perhaps none. The rest
                stays in flight, for a later `recv`; nothing is lost.
            max_envs: Take no more than so many, the first to arrive. A multiple of `vector_size`, where there is one.
            order: Of the rows: "arrival", or "slot" for ascending `env_ids`. Nobody starves either way: which envs
                are taken depends on their arrival alone.
            pad_to: The batch has so many rows whatever came, for compiled programs, which want one shape: at most so
                many results are waited for and taken, and the rows after them are zeros, with -1 in `env_ids`.
                `Batch.valid` says which rows are results. They are in memory that is used again, page-locked for a GPU
                like the pool's own, and leased as that is. Not where spaces have parts without a fixed size.

        Returns:
            A batch of all envs by ascending `env_ids` when all were sent together, else of some in that order.

        Raises:
            ValueError: `pad_to` is less than `min_envs`, `max_envs` or `vector_size`, or not for such observations.
            MemoryError, OSError: There is no memory for batches of that size. Nothing was taken.
            StateError: Nothing was sent.
            EnvError: Envs raised; the others' results are still there for the next `recv`.
            WorkerDiedError: A worker died while it had work.
            EnvTimeoutError, CorruptReplyError, ShardDiedError: Its kinds: it missed a deadline and was killed, wrote
                what makes no sense, or was a shard of a cluster.
            RestartLimitError: An env failed more often than `faults` bears.
        """
        waits = min_envs is None or (type(min_envs) is int and 0 < min_envs <= self.num_envs)
        is_plain = waits and timeout is None and max_envs is None and order == "arrival" and pad_to is None
        if is_plain and self._engine.hub is not None:
            batch = self._engine.hub.receive(min_envs or 0, self._part)
            if batch is not None:
                return batch  # type: ignore[return-value]  # the type that the hub makes
        return self._receive(min_envs, timeout, max_envs, order, pad_to=pad_to)

    def _receive(
        self,
        min_envs: int | None = None,
        timeout: float | None = None,
        max_envs: int | None = None,
        order: str = "arrival",
        env_ids: Sequence[int] | None = None,
        pad_to: int | None = None,
    ) -> Batch:
        """Receives as `recv` does, and handles faults. `env_ids`: those that are waited for, in their order."""
        self._check_open()
        check_limit("min_envs", min_envs)
        check_limit("max_envs", max_envs, self._engine.layout.vector_size)
        check_timeout(timeout)
        check_order(order)
        if pad_to is not None:
            max_envs = self._make_padding(pad_to, min_envs, max_envs)
        exchange = self._exchange
        if exchange.attend():
            self._raise_any()
        there = exchange.pending(self._part)
        if there == 0:
            self._raise_any()
            raise StateError("expected envs in flight, got none: recv follows send, send_reset or send_observe")
        wanted = there if min_envs is None else min(min_envs, there)
        exchange.wait(wanted if pad_to is None else min(wanted, max_envs or 0), timeout, self._part)
        self._raise_any()
        if not exchange.pending(self._part):
            raise StateError("expected envs in flight, got none: a handler of signals or logs has received the results")
        limit = exchange.ready(self._part) if max_envs is None else max_envs
        return self._engine.running.hub.take(  # type: ignore[return-value]
            limit, order == "slot", env_ids, self._part, pad_to or 0
        )

    def _make_padding(self, pad_to: int, min_envs: int | None, max_envs: int | None) -> int:
        """Makes room for batches of so many rows. Returns how many envs such a batch takes at most."""
        layout = self._engine.layout
        check_padding(pad_to, layout, min_envs=min_envs, max_envs=max_envs)
        if needed := self._engine.running.hub.frames.padding_bytes(pad_to):
            check_memory(needed)
            self._engine.running.hub.make_padding(pad_to)
        whole = pad_to - pad_to % (layout.vector_size or 1)
        return whole if max_envs is None else max_envs

    def reset(self, *, seed: Seed = None, options: Options = None, env_ids: Iterable[int] | None = None) -> Batch:
        """Resets envs and waits for their first observations.

        Args:
            seed: An int seeds env i with `seed + i`; a sequence has a seed (or None) for each env. With
                seeding="per_episode" both are what the seeds of env i's episodes from now on are derived from,
                autoresets' too: the n-th, counted from 0, gets the lower 31 bits of
                `numpy.random.SeedSequence(seed, spawn_key=(i, n)).generate_state(1)[0]`; an int is the same for all
                envs. An env without a seed counts on from its last one, or from one that the pool has drawn. A seed
                for env i seeds `action_spaces[i]` too, one for env 0 also `single_action_space`.
            options: For every env alike, or a sequence with one mapping (or None) for each env. They are this reset's
                alone; without any an env gets those of `set_reset_options`.
            env_ids: Which envs; None for all.

        Returns: A batch of these envs, ordered as `recv` does: first observations, reward 0, no flag set.

        Raises:
            ValueError, TypeError: Arguments of another form; with "per_episode" also a seed below 0. Nothing was sent.
            StateError: An env is in flight. Nothing was sent. (What an error has left in flight is no hindrance when
                all envs are reset: it is dropped. A reset of all envs of a pool that is divided drops what its parts
                have in flight, and makes it whole.)
            EnvError, WorkerDiedError, BrokenPoolError, ClosedError: As `send` and `recv` do.
        """
        if env_ids is None and (self._is_left_over or self._is_divided):
            self.discard()
        self._check_quiet()
        self.send_reset(seed=seed, options=options, env_ids=env_ids)
        return self.recv()

    def step(self, actions: Any, env_ids: Iterable[int] | None = None, pad_to: int | None = None) -> Batch:
        """Steps envs once: `send`, then `recv` for all of them.

        Args:
            actions, env_ids: As in `send`; None for all envs.
            pad_to: As in `recv`: the batch has so many rows. No fewer than envs are stepped.

        Returns: A batch of these envs, in the order of `env_ids`.

        Raises:
            StateError: With `env_ids`, also for any other env that is in flight. Nothing was sent.
            Exception: All that `send` and `recv` raise.
        """
        if self._engine.hub is None or self._has_objects or pad_to is not None:
            return self._send_and_receive(actions, env_ids, pad_to)
        batch = self._engine.hub.step(actions, env_ids, self._part)
        if type(batch) is Batch:
            return batch
        if batch is None:  # sent, and something has come up
            return self._receive(env_ids=env_ids)  # type: ignore[arg-type]  # the hub takes sequences alone
        return self.step(actions, self._targets_after(batch, env_ids))  # type: ignore[arg-type]  # a refusal

    def _send_and_receive(self, actions: Any, env_ids: Iterable[int] | None, pad_to: int | None) -> Batch:
        """Steps in two calls."""
        targets = None
        if env_ids is not None:
            self._check_quiet()
            targets = self._targets(env_ids)
        if pad_to is not None:
            self._check_open()
            self._make_padding(pad_to, self.num_envs if targets is None else len(targets), None)
        self.send(actions, targets)
        return self._receive(env_ids=targets, pad_to=pad_to)

    @property
    def pending(self) -> int:
        """The number of envs with a command whose result was not received, and whose error was not raised."""
        return 0 if self._engine.closed else self._exchange.pending(self._part)

    def discard(self) -> None:
        """Waits for whatever is in flight and drops it, faults included. Envs that failed must be reset. A pool that is
        divided is made whole.

        Raises:
            StateError: Of a part: the pool has been split since, or made whole.
            ClosedError: The pool is closed.
        """
        self._check_open()
        self._exchange.discard(self._part)
        self._failed_after = None

    @property
    def last_sent(self) -> int:
        """int, which grows with each command and call that is sent to these envs. Raises ClosedError."""
        self._engine.check_open()
        return self._engine.running.slots.last_sent(self._ids)

    # -- inside ------------------------------------------------------------------------------------------

    def _without_objects(
        self, actions: Any, env_ids: Iterable[int] | None
    ) -> tuple[tuple[Any, ...], list[Any], Sequence[int]]:
        """Returns the columns of actions, their objects, pickled for each env, and the envs."""
        targets = self._targets(env_ids)
        arrays, objects = self._engine.layout.action.split_batch(actions, len(targets))
        self._engine.faults.check_reset(targets)
        assert objects is not None
        return tuple(arrays), self._blobs(dump_objects(objects, targets)), targets

    def _blobs(self, rows: list[Parts]) -> list[Parts]:
        """Returns the pickled objects of each env's rows."""
        layout = self._engine.layout
        if layout.vector_size is None:
            return rows
        return [bundle([(0, parts) for parts in own]) for own in layout.by_env(rows)]

    def _targets_after(self, refusal: _core.Refusal, env_ids: Iterable[int] | None) -> Iterable[int] | None:
        """Returns the `env_ids` to try again with after the hub has refused a step. Raises if that is of no use."""
        match refusal.reason:
            case _core.Reason.TARGETS:  # a set, a generator, or no ids of this part, which raises
                return self._targets(env_ids)
            case _core.Reason.PART if self._join_dropped():
                return env_ids
            case _:
                self._check_open()
                self._exchange.raise_refusal(refusal)

    def _raise_any(self) -> None:
        """Raises faults, and remembers that what is in flight then is left over."""
        try:
            self._engine.faults.raise_any(self._part)
        except BaseException:
            self._failed_after = self._engine.running.hub.caller.batches
            raise

    @property
    def _is_left_over(self) -> bool:
        """Whether what is in flight was so when an error was raised, and nothing has been received since."""
        hub = self._engine.hub
        return hub is not None and self._failed_after == hub.caller.batches

    @property
    def _is_divided(self) -> bool:
        """Whether these are the envs of a whole pool, which are sent and received in parts now."""
        return False

    def _join_dropped(self) -> bool:
        """Makes a pool whole that was divided for a rollout which was dropped. Returns whether it was so."""
        return False

    def _targets(self, env_ids: Iterable[int] | None) -> Sequence[int]:
        self._check_open()
        targets = self._named(env_ids)
        if env_ids is not None and self._engine.layout.vector_size is not None:
            check_whole(targets, self._engine.layout)
        return targets

    def _check_open(self) -> None:
        self._engine.check_open()
        if not self._engine.running.slots.has_part(self._part):
            raise StateError(SPLIT_SINCE)

    def _check_quiet(self) -> None:
        if self.pending:
            raise StateError(f"expected no env in flight, got {self.pending}; call recv or discard first")
