"""Counts the resets and steps of envs that a face drives by calls, for reports of faults."""

from __future__ import annotations

from remuda import EnvProgress


class EpisodeCounter:
    """Counts resets and steps as they begin."""

    def __init__(self) -> None:
        self._resets = self._steps = 0

    def reset(self) -> None:
        self._resets, self._steps = self._resets + 1, 0

    def step(self) -> None:
        self._steps += 1

    def where(self, env_id: int) -> EnvProgress:
        """As reports of faults have it."""
        episode = self._resets - 1 if self._resets else None
        return EnvProgress(env_id, episode, self._steps, seed=None, resets_since_seed=0)
