"""Counts resets and steps for reports of faults. Some faces run them as calls, which the pool does not count."""

from __future__ import annotations

from remuda import EnvProgress


class EpisodeCounter:
    """Counts the resets and steps of one env when they begin."""

    def __init__(self) -> None:
        self._resets = self._steps = 0

    def count(self, operation: str) -> None:
        """Counts a "reset" or a "step"; other operations do not count."""
        if operation == "reset":
            self._resets, self._steps = self._resets + 1, 0
        elif operation == "step":
            self._steps += 1

    def progress(self, env_id: int) -> EnvProgress:
        """Returns the counts as an `EnvProgress`, which reports of faults contain."""
        episode = self._resets - 1 if self._resets else None
        return EnvProgress(env_id, episode, self._steps, seed=None, resets_since_seed=0)
