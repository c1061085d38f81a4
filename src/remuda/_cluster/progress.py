"""How far envs on other machines have come, for reports of what was lost with a shard."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from remuda.errors import EnvProgress

Ids = npt.NDArray[np.int64]


class Progress:
    """How far each env has come: as far as its results have, for a step that was lost may not have begun."""

    def __init__(self, num_envs: int) -> None:
        self._episodes, self._steps, self._later = (np.zeros(num_envs, np.int64) for _ in range(3))
        self._is_known = np.ones(num_envs, bool)

    def note(self, env_ids: Ids, begun: npt.NDArray[np.bool_], *, steps: bool) -> None:
        """Results have come. `begun`: of which envs they begin an episode; `steps`: the others' are of steps."""
        self._episodes[env_ids] += begun
        self._later[env_ids] += begun
        self._steps[env_ids] = np.where(begun, 0, self._steps[env_ids] + steps)

    def put(self, env_ids: Ids, steps: Sequence[int]) -> None:
        """They were put somewhere into an episode, after so many steps of it."""
        self._steps[env_ids] = steps

    def note_seed(self, env_id: int) -> None:
        """The next episode has a seed of its own."""
        self._later[env_id] = -1

    def lose_track(self) -> None:
        """Of all: in rollouts shards step by themselves, and tell of it later."""
        self._is_known[:] = False

    def where(self, env_id: int, seed: int | None, *, each_has_one: bool) -> EnvProgress:
        """`seed`: the one given last. `each_has_one`: every episode has a seed."""
        if not self._is_known[env_id] or not self._episodes[env_id]:
            return unknown(env_id)
        later = 0 if each_has_one or seed is None else int(self._later[env_id])
        return EnvProgress(env_id, int(self._episodes[env_id]) - 1, int(self._steps[env_id]), seed, max(0, later))


def unknown(env_id: int) -> EnvProgress:
    """Of an env of which nothing is known."""
    return EnvProgress(env_id, episode=None, step=0, seed=None, resets_since_seed=0)
