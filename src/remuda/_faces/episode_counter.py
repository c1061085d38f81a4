"""Reports of faults for faces that run resets and steps as other operations, which the pool does not count."""

from __future__ import annotations

from collections.abc import Callable

from remuda import EnvProgress, Pool


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


def rename_operations(pool: Pool, rename: Callable[[str, EnvProgress], tuple[str, EnvProgress]]) -> None:
    """Sets the function that takes the operation and the progress of an env, and returns those for reports."""
    pool._engine.tracker.rename = rename
