"""Divides a pool's envs into parts, and makes the pool whole again."""

from __future__ import annotations

import weakref

from remuda._engine.commands.partition import Division, divide
from remuda._engine.options.checks import is_int
from remuda._engine.pool.in_turn import in_turn
from remuda._engine.pool.part import Part
from remuda._engine.rollouts.columns import Declared
from remuda._engine.rollouts.rollout import Rollout
from remuda.errors import StateError


class Divisible(Part):
    """All envs of a pool, which receive commands and return results together, or in parts."""

    _divided_for: weakref.ref[Division] | None = None

    def split(self, parts: int) -> tuple[Part, ...]:
        """Divides the envs, to step some while a policy acts for the others ("double buffering").

        Each part gets an equal share of every worker's envs, so that all workers are busy with each part. Afterwards
        you send and receive through the parts, and calls of a part reach its own envs. `call` and similar methods of
        the pool still reach all envs, and only the pool has `close`. `split(1)` makes the pool whole again.

        Returns: A tuple of `parts` parts; with `split(1)` a tuple of the pool itself.

        Raises:
            ValueError: `parts` is not from 1 to `num_envs`, or to the number of vector envs, which are never divided.
            StateError: An env is in flight.
        """
        return self._divide(parts, None)

    @in_turn
    def _divide(self, parts: int, division: Division | None) -> tuple[Part, ...]:
        """Divides the envs. `division`: a token; once its holder has freed it, the pool may be made whole again."""
        engine = self._engine
        engine.check_open()
        envs, what = engine.layout.by_env(self._ids), "envs" if engine.layout.vector_size is None else "vector envs"
        most = len(envs)
        if not is_int(parts) or not 1 <= parts <= most:
            raise ValueError(f"expected parts to be an int from 1 to {most} (the number of {what}), got {parts!r}")
        if engine.running.slots.any_pending:
            raise StateError(
                "expected no env in flight when a pool is split; call recv of the parts, or discard of the pool, first"
            )
        divided = divide([engine.running.slots.worker_of(slots[0]) for slots in envs], parts)
        shares = [[slot for env in share for slot in envs[env]] for share in divided]
        # An interrupt may come right before or right after the division. For the pool to be able to check then whether
        # its parts are needed, a token is set before the division, and the lack of one after it.
        if division is not None:
            self._divided_for = weakref.ref(division)
        first = engine.divide(shares)
        if division is None:
            self._divided_for = None
        if parts > 1:
            return self._parts
        self._part = first
        return (self,)

    def _begin_rollout(self, steps: int, columns: Declared, parts: int) -> Rollout:
        if parts == 1:
            return super()._begin_rollout(steps, columns, parts)
        division = Division()
        shares = self._divide(parts, division)
        try:
            return Rollout(shares, steps, columns, division)
        except BaseException:
            self._join(shares[0]._part)
            raise

    @property
    def _parts(self) -> tuple[Part, ...]:
        """The parts into which the pool was divided last."""
        return tuple(Part(self._engine, number, self) for number in self._engine.running.slots.part_numbers)

    @property
    def _is_divided(self) -> bool:
        hub = self._engine.hub
        return hub is not None and not hub.slots.has_part(self._part)

    def _join(self, first: int) -> None:
        """Makes the pool whole, if nothing is in flight and the part with the number `first` still exists."""
        engine = self._engine
        if engine.hub is not None and engine.hub.slots.has_part(first) and not engine.hub.slots.any_pending:
            self.split(1)

    def _join_dropped(self) -> bool:
        if not self._is_divided or self._needs_parts:
            return False
        for part in self._parts:
            if part.pending:
                part.recv()  # receives the steps in flight, as `Rollout.close` does
        self.split(1)
        return True

    @property
    def _needs_parts(self) -> bool:
        """Whether an object may still use the parts. If an interrupt has left only one part, no object uses it."""
        is_there = self._divided_for is None or self._divided_for() is not None
        return is_there and len(self._engine.running.slots.part_numbers) > 1

    def _check_open(self) -> None:
        self._join_dropped()
        super()._check_open()

    @property
    def pending(self) -> int:
        """The number of envs in flight, in all parts of a divided pool. An env is in flight until a call returns its
        result or raises its error."""
        return sum(part.pending for part in self._parts) if self._is_divided else super().pending

    def discard(self) -> None:
        """Waits for all envs in flight, and drops their results and faults. Envs that failed must be reset. A divided
        pool is made whole.

        Raises:
            ClosedError: The pool is closed.
        """
        self._engine.check_open()
        if self._is_divided:
            for part in self._parts:
                part.discard()
            self.split(1)
        super().discard()
