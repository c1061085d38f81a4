"""Sends actions to some of a pool's envs and receives their results: the two calls that everything is made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np

from remuda import _core
from remuda._engine.pool.arguments import (
    check_limit,
    check_order,
    check_timeout,
    check_whole,
    dump_objects,
)
from remuda._engine.pool.batch import Batch
from remuda._engine.pool.callee import Callee
from remuda._engine.pool.engine import Engine
from remuda._engine.pool.resets import Options
from remuda._engine.pool.seeds import Seed
from remuda._wire.bundle import bundle
from remuda._wire.pickling import Parts
from remuda.errors import InvalidActionError, StateError


class Part(Callee):
    """Envs of a pool that are sent and received together, apart from its other parts: what `Pool.split` makes::

        halves = pool.split(2)
        for half in halves:
            half.send_reset(seed=0)
        while learning:
            for half in halves:  # while the policy deals with one half, the other half's envs step
                batch = half.recv()
                half.send(policy(batch.obs))

    Env ids are those of the pool. A whole pool is a part too. Calls reach the envs of the part.

    Attributes:
        env_ids: (n,) int64, ascending.
        num_envs: n.
    """

    def __init__(self, engine: Engine, part: int, env_ids: Sequence[int], pool: Part | None = None) -> None:
        """`pool`: what this is a part of; it stays open as long as this is there."""
        self._engine, self._exchange, self._pool = engine, engine.exchange, pool
        self._part, self._division = part, engine.division
        self.num_envs = len(env_ids)
        self.env_ids = np.array(env_ids, np.int64)
        self.env_ids.flags.writeable = False
        self._ids, self._is_whole = list(env_ids), pool is None
        self._failed_after: int | None = None  # so many batches, the last time that faults were raised
        self._advise_after: int | None = None  # so many batches, if ever

    def send(self, actions: Any, env_ids: Iterable[int] | None = None) -> None:
        """Hands envs their next action and returns at once.

        Args:
            actions: An element of `batch_space(single_action_space, n)`: arrays of n rows, dicts or tuples of
                such, and for spaces without a fixed size a sequence of n. They are copied.
            env_ids: The n envs, in the order of the actions; None for all. Of a vector env all, in their order.

        Raises:
            ValueError: `env_ids` that are none, or not whole vector envs. Nothing was sent.
            InvalidActionError: Wrong number, shape, dtype, or out of range for a discrete choice. (The bounds of
                a Box are the env's affair.) Nothing was sent.
            StateError: An env has not been reset, or is in flight. Nothing was sent.
            BrokenPoolError, ClosedError: It can never answer.
        """
        # What almost always happens has a short way through the core: between two batches of cheap envs the
        # caches are cold, and every line of Python counts.
        engine = self._engine
        is_ordinary = engine.short_way == self._division and engine.faults.none
        if is_ordinary and engine.running.hub.send_steps(actions, env_ids, self._part):
            return
        targets = self._targets(env_ids)
        arrays, objects = self._engine.layout.action.split_batch(actions, len(targets), InvalidActionError)
        self._engine.faults.check_reset(targets)
        blobs = None if objects is None else self._blobs(dump_objects(objects, targets))
        self._exchange.send(_core.Op.STEP, targets, arrays, blobs, self._part, to_all=env_ids is None)

    def _blobs(self, rows: list[Parts]) -> list[Parts]:
        """For each env what is for its rows."""
        layout = self._engine.layout
        if layout.vector_size is None:
            return rows
        return [bundle([(0, parts) for parts in its]) for its in layout.by_env(rows)]

    def send_reset(self, *, seed: Seed = None, options: Options = None, env_ids: Iterable[int] | None = None) -> None:
        """Tells envs to reset and returns at once; `seed`, `options` and `env_ids` as in `reset`."""
        self._engine.resets.send(self._targets(env_ids), seed, options, self._part, to_all=env_ids is None)

    def send_observe(self, env_ids: Iterable[int] | None = None) -> None:
        """Asks envs for their current observation once more: no step is taken, reward is 0, the info empty."""
        targets = self._targets(env_ids)
        self._engine.faults.check_reset(targets)
        self._exchange.send(_core.Op.OBSERVE, targets, [], None, self._part, to_all=env_ids is None)

    def recv(
        self,
        min_envs: int | None = None,
        timeout: float | None = None,
        max_envs: int | None = None,
        order: Literal["arrival", "slot"] = "arrival",
    ) -> Batch:
        """Waits for results and takes those that are there.

        Args:
            min_envs: Wait until so many envs are done; None for all that are in flight.
            timeout: Seconds to wait at most. Then the batch has what is there: fewer envs, perhaps none. The rest
                stays in flight, for a later `recv`; nothing is lost.
            max_envs: Take no more than so many, the first to arrive. A multiple of `vector_size`, where there is one.
            order: Of the rows: "arrival", or "slot" for ascending `env_ids`. Nobody starves either way: which envs
                are taken depends on their arrival alone.

        Returns:
            A batch of all envs by ascending `env_ids` when all were sent together, else of some in that order.

        Raises:
            StateError: Nothing was sent.
            EnvError: Envs raised; the others' results are still there for the next `recv`.
            WorkerDiedError: A worker died while it had work.
        """
        engine, taken = self._engine, None
        waits = min_envs is None or (type(min_envs) is int and min_envs > 0)
        is_plain = waits and timeout is None and max_envs is None and order == "arrival"
        if is_plain and engine.short_way == self._division and engine.faults.none:
            taken = engine.running.hub.finish(min_envs or 0, self._part)  # the short way, as in `send`
        if taken is None:
            taken = self._take(min_envs, timeout, max_envs, order)
        batch = engine.batches.make(taken, self.env_ids)
        if engine.batches.made == self._advise_after:
            self._advise()
        return batch

    def _take(self, min_envs: int | None, timeout: float | None, max_envs: int | None, order: str) -> tuple[Any, ...]:
        """What the hub hands out to `recv`."""
        self._check_open()
        check_limit("min_envs", min_envs)
        check_limit("max_envs", max_envs, self._engine.layout.vector_size)
        check_timeout(timeout)
        check_order(order)
        exchange = self._exchange
        if exchange.attend():
            self._raise_any()
        there = exchange.pending(self._part)
        if there == 0:
            self._raise_any()
            raise StateError("expected envs in flight, got none: recv follows send, send_reset or send_observe")
        exchange.wait(there if min_envs is None else min(min_envs, there), timeout, self._part)
        self._raise_any()
        limit = exchange.ready(self._part) if max_envs is None else max_envs
        return exchange.take(limit, self._part, by_slot=order == "slot")

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

        Raises:
            ValueError, TypeError: Arguments of another form; with "per_episode" also a seed below 0. Nothing was sent.
            StateError: An env is in flight. Nothing was sent. (What an error has left in flight is no hindrance when
                all envs are reset: it is dropped.)
            EnvError, WorkerDiedError, BrokenPoolError, ClosedError: As `send` and `recv` do.
        """
        if env_ids is None and self._is_left_over:
            self.discard()
        self._check_quiet()
        self.send_reset(seed=seed, options=options, env_ids=env_ids)
        return self.recv()

    def step(self, actions: Any, env_ids: Iterable[int] | None = None) -> Batch:
        """Steps envs once: `send`, then `recv` for all of them.

        Args:
            actions, env_ids: As in `send`; None for all envs.

        Returns: A batch of these envs, in the order of `env_ids`.

        Raises:
            StateError: With `env_ids`, also for any other env that is in flight. Nothing was sent.
            Exception: All that `send` and `recv` raise.
        """
        if env_ids is None:
            self.send(actions)
            return self.recv()
        self._check_quiet()
        targets = self._targets(env_ids)
        self.send(actions, targets)
        return self.recv().in_order(targets)

    @property
    def pending(self) -> int:
        """How many envs have been sent something whose result has not been received."""
        is_over = self._engine.closed or self._division != self._engine.division
        return 0 if is_over else self._exchange.pending(self._part)

    def discard(self) -> None:
        """Waits for whatever is in flight and drops it, faults included. Envs that failed must be reset."""
        self._check_open()
        self._exchange.discard(self._part)
        self._failed_after = None

    # -- inside ------------------------------------------------------------------------------------------

    def _advise(self) -> None:
        """Says whether another number of workers would be better, which a whole pool alone can tell."""

    def _raise_any(self) -> None:
        """Raises faults, and remembers that what is in flight then is left over."""
        try:
            self._engine.faults.raise_any(self._part)
        except BaseException:
            self._failed_after = self._engine.batches.made
            raise

    @property
    def _is_left_over(self) -> bool:
        """Whether what is in flight was so when an error was raised, and nothing has been received since."""
        return self._failed_after == self._engine.batches.made and not self._engine.closed

    def _targets(self, env_ids: Iterable[int] | None) -> Sequence[int]:
        self._check_open()
        targets = self._named(env_ids)
        if env_ids is not None and self._engine.layout.vector_size is not None:
            check_whole(targets, self._engine.layout)
        return targets

    def _check_open(self) -> None:
        self._engine.check_open()
        if self._division != self._engine.division:
            raise StateError(
                "the pool has been split since: use what the latest split() returned, or make it whole with split(1)"
            )

    def _check_quiet(self) -> None:
        if self.pending:
            raise StateError(f"expected no env in flight, got {self.pending}; call recv or discard first")

    def __repr__(self) -> str:
        return f"<Part of a pool: {self.num_envs} envs>"
