"""What becomes of the slots of an env that is gone: their commands are answered, or repeated by its successor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from remuda import _core
from remuda._backends.pickling import load
from remuda._engine.faults import Faults
from remuda.errors import Fault

if TYPE_CHECKING:
    from remuda._engine.start import Started


class Settlement:
    """Knows what each autoreset mode makes of an episode that was cut off."""

    def __init__(self, parts: Started, faults: Faults) -> None:
        self._hub, self._layout, self._arena = parts.hub, parts.layout, parts.arena
        self._mode = parts.layout.autoreset
        self._faults = faults

    def settle(self, slot: int, fault: Fault) -> None:
        """Answers, or repeats, the command that a stranded slot was sent."""
        if self._hub.last_op(slot) == _core.Op.OBSERVE and self._hub.is_over(slot):
            self._hub.retell(slot, self._retelling(slot))
            self._forbid_steps(slot)
        elif self._is_reset(slot):
            self._hub.resend(slot)
        elif self._mode == "same_step":
            self._hub.revive(slot, self._terminal(slot, fault), False)
        else:
            self._hub.end_episode(slot, self._retelling(slot, fault=fault))
            self._forbid_steps(slot)

    def settle_idle(self, slot: int, fault: Fault) -> None:
        """The end of its episode is told when it is next asked for a step."""
        if not self._hub.has_results(slot):
            return
        if self._hub.is_over(slot):
            self._forbid_steps(slot)
        elif self._mode == "same_step":
            self._hub.owe(slot, self._terminal(slot, fault), True)
        else:
            self._hub.owe(slot, self._retelling(slot, fault=fault), False)
            if self._mode == "disabled":
                self._faults.owed.add(slot)

    def known_observations(self, slots: Sequence[int]) -> list[Any] | None:
        """What an observe of each slot is answered with by the hub, for their envs know of none; else None."""
        known = [self._retelling(slot) if self._hub.is_fresh(slot) else None for slot in slots]
        return known if any(known) else None

    def release(self) -> None:
        """Lets go of the shared memory."""
        del self._hub, self._arena

    def _is_reset(self, slot: int) -> bool:
        """Whether its command was to reset, in one way or another: there is no episode that could have ended."""
        if self._hub.last_op(slot) in (_core.Op.RESET, _core.Op.REVIVE):
            return True
        return self._mode == "next_step" and self._hub.is_over(slot)

    def _forbid_steps(self, slot: int) -> None:
        """Until the env that was built anew is reset, which nobody but the caller does without autoreset."""
        if self._mode == "disabled":
            self._faults.not_reset.add(slot)

    def _retelling(self, slot: int, **info: Any) -> tuple[Any, ...]:
        """What comes with the last observation, in the form of `EnvHost.pack`."""
        return self._objects(slot), info, None, None

    def _terminal(self, slot: int, fault: Fault) -> tuple[Any, dict[str, Any]]:
        """The terminal observation, where columns do not have it, and info."""
        codec = self._layout.observation
        if not codec.num_objects:
            return None, {"fault": fault}
        row, _ = self._hub.last(slot)
        leaves = [column.read(row) for column in self._layout.obs_columns(self._arena)]
        return codec.build_one(leaves, self._objects(slot)), {"fault": fault}

    def _objects(self, slot: int) -> list[Any]:
        """The parts of the last observation that have no column."""
        parts = self._hub.last(slot)[1]
        objects: list[Any] = load(parts)[0] if parts is not None and self._layout.observation.num_objects else []
        return objects
