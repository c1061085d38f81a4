"""Settles the slots of a failed env: ends their episodes, answers their commands, or repeats the commands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from remuda import _core
from remuda._engine.batches.infos import KeptObjects, KeptObservation, rows_of_env
from remuda._engine.options.fault_policy import FaultPolicy
from remuda._engine.running import Running
from remuda._engine.supervision.faults import Faults
from remuda.errors import Fault

Outcome = _core.Outcome


class FaultResolution:
    """Decides how the commands and episodes of failed envs end. That depends on the autoreset mode."""

    def __init__(self, running: Running, faults: Faults, policy: FaultPolicy) -> None:
        self._policy = policy
        self._running, self._layout = running, running.layout
        self._mode = running.layout.mode
        self._faults = faults

    def settle(self, slots: Sequence[int], faults: Sequence[Fault]) -> None:
        """Answers or repeats the last command of a failed env, for which its slots still wait.

        A vector env has several slots, and all have the same outcome, because its successor begins again with all of
        them: if one episode was cut off, so are the others, even those that had just ended.
        """
        over = all(map(self._running.slots.is_over, slots))  # checked first, because settling a slot ends its episode
        outcome = self._outcome(self._running.slots.last_op(slots[0]), faults[0], over=over)
        self._resolve(outcome, slots, faults)

    def settle_idle(self, slots: Sequence[int], faults: Sequence[Fault]) -> None:
        """Makes the answer to an env's next step end its episode, because the env failed between two commands."""
        if not self._running.slots.has_results(slots[0]):
            return None
        if all(map(self._running.slots.is_over, slots)):
            return self._forbid_steps(slots)
        later = Outcome.END_AND_RESET_LATER if self._mode.in_same_step else Outcome.END_LATER
        return self._resolve(later, slots, faults)

    def known_observations(self, slots: Sequence[int]) -> list[Any] | None:
        """Returns rebuilt envs' last observations to answer `request_obs`; None if workers can answer for all envs."""
        if not self._layout.keeps_last:
            return None
        is_fresh = self._running.slots.is_fresh
        known = [self._last(each) if is_fresh(each[0]) else None for each in self._layout.by_env(slots)]
        return known if any(known) else None

    def resend(self, slot: int) -> None:
        """Sends a slot's command to the worker's successor; answers an observe command with the last observation."""
        is_observe = self._running.slots.last_op(slot) == _core.Op.OBSERVE
        outcome = Outcome.REPEAT_LAST if is_observe else Outcome.RESEND
        self._resolve(outcome, self._layout.ids_with(slot), ())

    def _outcome(self, op: _core.Op, fault: Fault, *, over: bool) -> Outcome:
        """Returns the outcome of a failed env's command. `over`: whether its episodes were over before the command."""
        # A reset that had not begun, because its worker died before, is sent again.
        if op == _core.Op.RESET and self._policy._reports(fault.operation) and not fault.shared:
            return Outcome.END_EPISODE
        if op == _core.Op.OBSERVE and over:
            return Outcome.REPEAT_LAST
        # These commands reset the env, so they cannot end an episode.
        if op in (_core.Op.RESET, _core.Op.RESET_INTO_ROW) or (self._mode.in_next_step and over):
            return Outcome.RESEND
        return Outcome.END_AND_RESET if self._mode.in_same_step else Outcome.END_EPISODE

    def _resolve(self, outcome: Outcome, slots: Sequence[int], faults: Sequence[Fault]) -> None:
        parts: tuple[Any, ...] | None
        pairs = zip(slots, faults, strict=False)  # without faults, there are no parts
        match outcome:
            case Outcome.REPEAT_LAST:
                parts = self._last(slots)
            case Outcome.END_EPISODE | Outcome.END_LATER:
                parts = self._parts(self.last_row_parts(slot, {"fault": fault}) for slot, fault in pairs)
            case Outcome.END_AND_RESET | Outcome.END_AND_RESET_LATER:
                parts = self._parts(self.terminal(slot, {"fault": fault}) for slot, fault in pairs)
            case _:
                parts = None
        self._running.hub.resolve(slots[0], outcome, parts)
        if outcome in (Outcome.REPEAT_LAST, Outcome.END_EPISODE):
            self._forbid_steps(slots)

    def _forbid_steps(self, slots: Sequence[int]) -> None:
        """If there is no autoreset, forbids steps of a rebuilt env until the caller resets it. The pool can repeat its
        last observation."""
        if self._mode.by_caller:
            for slot in slots:
                self._faults.guards.require_reset(slot, can_be_observed=True)

    def _last(self, slots: Sequence[int]) -> tuple[Any, ...]:
        return self._parts(self.last_row_parts(slot, {}) for slot in slots)

    def _parts(self, rows: Iterable[tuple[Any, ...]]) -> tuple[Any, ...]:
        """Returns the data of an env's rows as the hub keeps it: the one row, or a tuple of a vector env's rows."""
        each = tuple(rows)
        return each[0] if self._layout.vector_size is None else each

    def last_row_parts(self, slot: int, info: dict[str, Any]) -> tuple[Any, ...]:
        """Returns the data of a row that repeats the last observation, in the form of `EnvHost.pack`."""
        return self._objects(slot), info, None, None

    def terminal(self, slot: int, info: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Returns (terminal observation, info) of a slot. The observation: None if columns hold all of it."""
        codec = self._layout.observation
        if not codec.num_objects:
            return None, info
        row, _ = self._running.slots.last(slot)
        leaves = [column.read(row).copy() for column in self._layout.result_columns(self._running.arena).obs]
        return KeptObservation(codec.nest, leaves, self._objects(slot)), info

    def _objects(self, slot: int) -> list[Any] | KeptObjects:
        """Returns the values in a slot's last observation that have no column."""
        slots = self._layout.ids_with(slot)  # slot ids are env ids, because vector envs have no spares
        parts = self._running.slots.last(slots[0])[1]
        count = self._layout.observation.num_objects
        if not count:
            return []
        if parts is not None and self._layout.vector_size is not None:
            _, parts = rows_of_env(parts, len(slots))[slot - slots[0]]
        if parts is None:  # the env has failed in its first reset
            return [None] * count
        if isinstance(parts, tuple):  # the pool, or that of a shard, has made the row itself
            return parts[0]  # type: ignore[no-any-return]
        return KeptObjects([bytes(part) for part in parts], count)
