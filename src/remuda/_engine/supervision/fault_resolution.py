"""Settles the slots of an env that is gone: ends their episodes, or answers or repeats their commands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from remuda import _core
from remuda._engine.startup.running import Running
from remuda._engine.supervision.changes import Changes
from remuda._engine.supervision.faults import Faults
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
        settle_one = self._choose(self._running.hub.last_op(slots[0]), over)
        for slot, fault in zip(slots, faults, strict=True):
            settle_one(slot, fault, changes)

    def settle_idle(self, slots: Sequence[int], faults: Sequence[Fault], changes: Changes) -> None:
        """The end of their episodes is told when the slots of an env are next asked for a step."""
        if not self._running.hub.has_results(slots[0]):
            return
        over = all(map(self._running.hub.is_over, slots))
        for slot, fault in zip(slots, faults, strict=True):
            if over:
                self._forbid_steps(slot, changes)
            else:
                self._defer_end(slot, fault, changes)

    def known_observations(self, slots: Sequence[int]) -> list[Any] | None:
        """What an observe of each slot is answered with by the hub, for their envs know of none; else None."""
        known = [self._last_row_parts(slot) if self._running.hub.is_fresh(slot) else None for slot in slots]
        return known if any(known) else None

    def _choose(self, op: _core.Op, over: bool) -> Callable[[int, Fault, Changes], None]:
        """What to do about a command. `over`: the episodes were over before."""
        if op == _core.Op.OBSERVE and over:
            return self._repeat_last
        # A reset, in one way or another: there is no episode that could have ended.
        if op in (_core.Op.RESET, _core.Op.REVIVE) or (self._mode == "next_step" and over):
            return lambda slot, _, changes: changes.do(self._running.hub.resend, slot)
        return self._reset_into_row if self._mode == "same_step" else self._end_episode

    def _repeat_last(self, slot: int, _: Fault, changes: Changes) -> None:
        changes.do(self._running.hub.repeat_last, slot, self._last_row_parts(slot))
        self._forbid_steps(slot, changes)

    def _reset_into_row(self, slot: int, fault: Fault, changes: Changes) -> None:
        changes.do(self._running.hub.reset_into_row, slot, self._terminal(slot, fault), False)

    def _end_episode(self, slot: int, fault: Fault, changes: Changes) -> None:
        changes.do(self._running.hub.end_episode, slot, self._last_row_parts(slot, fault=fault))
        self._forbid_steps(slot, changes)

    def _defer_end(self, slot: int, fault: Fault, changes: Changes) -> None:
        if self._mode == "same_step":
            return changes.do(self._running.hub.defer_end, slot, self._terminal(slot, fault), True)
        changes.do(self._running.hub.defer_end, slot, self._last_row_parts(slot, fault=fault), False)
        if self._mode == "disabled":
            changes.do(self._faults.deferred.add, slot)
        return None

    def _forbid_steps(self, slot: int, changes: Changes) -> None:
        """Until the env that was built anew is reset, which nobody but the caller does without autoreset."""
        if self._mode == "disabled":
            changes.do(self._faults.not_reset.add, slot)

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
        parts = self._running.hub.last(slot)[1]
        count = self._layout.observation.num_objects
        if parts is None or not count:
            return []
        try:
            objects: list[Any] = load_from_env(parts)[0]
        except Exception:  # whoever asked for it when it was new was told why
            return [None] * count
        return objects
