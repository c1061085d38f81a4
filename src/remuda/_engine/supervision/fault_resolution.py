"""Settles the slots of an env that is gone: ends their episodes, or answers or repeats their commands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from remuda import _core
from remuda._engine.running.changes import Changes
from remuda._engine.running.running import Running
from remuda._engine.supervision.faults import Faults
from remuda._wire.bundle import unbundle
from remuda._wire.pickling import load_from_env
from remuda.errors import Fault


class FaultResolution:
    """Knows what each autoreset mode makes of an episode that was cut off."""

    def __init__(self, running: Running, faults: Faults) -> None:
        self._running, self._layout = running, running.layout
        self._mode = running.layout.autoreset
        self._faults = faults

    def settle(self, slots: Sequence[int], faults: Sequence[Fault], changes: Changes) -> None:
        """Answers, or repeats, the command that the orphaned slots of an env were sent.

        There is one slot, but for a vector env. The slots of that meet the same fate, for its successor begins anew
        with all of them: where one episode was cut off, all are told so, even those that had just ended.
        """
        over = all(map(self._running.hub.is_over, slots))  # before anything is settled, which makes them so
        self._choose(self._running.hub.last_op(slots[0]), over)(slots, faults, changes)

    def settle_idle(self, slots: Sequence[int], faults: Sequence[Fault], changes: Changes) -> None:
        """The end of their episodes is told when the slots of an env are next asked for a step."""
        if not self._running.hub.has_results(slots[0]):
            return
        if all(map(self._running.hub.is_over, slots)):
            self._forbid_steps(slots, changes)
        else:
            self._defer_end(slots, faults, changes)

    def known_observations(self, slots: Sequence[int]) -> list[Any] | None:
        """Returns the parts of the hub's answers to an observe of envs that were built anew; None if workers answer."""
        if not self._layout.keeps_last:
            return None
        known = [
            self._parts(self._last_row_parts(slot) for slot in its) if self._running.hub.is_fresh(its[0]) else None
            for its in self._layout.by_env(slots)
        ]
        return known if any(known) else None

    def send_on(self, slot: int, changes: Changes) -> None:
        """Sends the command of an env whose episode is over to its successor, or answers an observe."""
        slots = self._layout.ids_with(slot)
        if self._running.hub.last_op(slot) == _core.Op.OBSERVE:
            return self._repeat_last(slots, (), changes)
        return changes.do(self._running.hub.resend, slot)

    def _choose(self, op: _core.Op, over: bool) -> Callable[[Sequence[int], Sequence[Fault], Changes], None]:
        """What to do about a command. `over`: the episodes were over before."""
        if op == _core.Op.OBSERVE and over:
            return self._repeat_last
        # A reset, in one way or another: there is no episode that could have ended.
        if op in (_core.Op.RESET, _core.Op.REVIVE) or (self._mode == "next_step" and over):
            return lambda slots, _, changes: changes.do(self._running.hub.resend, slots[0])
        return self._reset_into_row if self._mode == "same_step" else self._end_episode

    def _repeat_last(self, slots: Sequence[int], _: Sequence[Fault], changes: Changes) -> None:
        parts = self._parts(map(self._last_row_parts, slots))
        changes.do(self._running.hub.repeat_last, slots[0], parts)
        self._forbid_steps(slots, changes)

    def _reset_into_row(self, slots: Sequence[int], faults: Sequence[Fault], changes: Changes) -> None:
        changes.do(self._running.hub.reset_into_row, slots[0], self._parts(map(self._terminal, slots, faults)), False)

    def _end_episode(self, slots: Sequence[int], faults: Sequence[Fault], changes: Changes) -> None:
        changes.do(self._running.hub.end_episode, slots[0], self._parts(map(self._end, slots, faults)))
        self._forbid_steps(slots, changes)

    def _defer_end(self, slots: Sequence[int], faults: Sequence[Fault], changes: Changes) -> None:
        if self._mode == "same_step":
            terminal = self._parts(map(self._terminal, slots, faults))
            return changes.do(self._running.hub.defer_end, slots[0], terminal, True)
        return changes.do(self._running.hub.defer_end, slots[0], self._parts(map(self._end, slots, faults)), False)

    def _forbid_steps(self, slots: Sequence[int], changes: Changes) -> None:
        """Until the env that was built anew is reset, which nobody but the caller does without autoreset."""
        if self._mode == "disabled":
            for slot in slots:
                changes.do(self._faults.obstacles.require_reset, slot)

    def _parts(self, rows: Iterable[tuple[Any, ...]]) -> tuple[Any, ...]:
        """What goes with the rows of an env, in the form in which the hub keeps it and hands it out."""
        each = tuple(rows)
        return each[0] if self._layout.vector_size is None else each

    def _end(self, slot: int, fault: Fault) -> tuple[Any, ...]:
        return self._last_row_parts(slot, fault=fault)

    def _last_row_parts(self, slot: int, **info: Any) -> tuple[Any, ...]:
        """What comes with the last observation, in the form of `EnvHost.pack`."""
        return self._objects(slot), info, None, None

    def _terminal(self, slot: int, fault: Fault) -> tuple[Any, dict[str, Any]]:
        """The terminal observation, where columns do not have it, and info."""
        codec = self._layout.observation
        if not codec.num_objects:
            return None, {"fault": fault}
        row, _ = self._running.hub.last(slot)
        leaves = [column.read(row) for column in self._layout.obs_columns(self._running.arena)]
        return codec.build_one(leaves, self._objects(slot)), {"fault": fault}

    def _objects(self, slot: int) -> list[Any]:
        """The parts of the last observation that have no column."""
        slots = self._layout.ids_with(slot)  # which has no spares where it is a vector env's
        parts = self._running.hub.last(slots[0])[1]
        count = self._layout.observation.num_objects
        if parts is None or not count:
            return []
        try:
            if self._layout.vector_size is not None:
                _, parts = unbundle(parts, len(slots))[slot - slots[0]] or (0, None)
            objects: list[Any] = load_from_env(parts)[0]
        except Exception:  # whoever asked for it when it was new was told why
            return [None] * count
        return objects
