"""Seeds and options of resets for which the caller gives none: of the episode, or those that stay in force."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from remuda._wire.pickling import load

EPISODE_SEED = "episode_seed"  # in the info of an episode's first row


def derive_seed(entropy: int, *spawn_key: int) -> int:
    """A seed of 31 bits, for native simulators take a signed int."""
    sequence = np.random.SeedSequence(entropy, spawn_key=spawn_key)
    return int(sequence.generate_state(1)[0]) & 0x7FFFFFFF


@dataclass(frozen=True)
class SeedBase:
    """What the seeds of an env's episodes are derived from.

    Attributes:
        entropy: The seed that the caller gave, from 0 up.
        number: By the pool's count of such seeds, from 1 up: the same seed given again is another.
    """

    entropy: int
    number: int

    def episode_seed(self, env_id: int, episode: int) -> int:
        """Of the env's n-th episode since it was given this, from 0."""
        return derive_seed(self.entropy, env_id, episode)


@dataclass
class ResetDefaults:
    """Of some envs, by their ids: a worker knows those of its own, and the pool all of them, for successors of workers.

    Attributes:
        bases: Of envs whose episodes have seeds of their own.
        options: Of envs that have any, pickled: each reset gets a copy that the env may change.
    """

    bases: dict[int, SeedBase] = field(default_factory=dict)
    options: dict[int, bytes] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.bases or self.options)

    def part(self, env_ids: Iterable[int]) -> ResetDefaults:
        """Those of these envs."""
        ids = set(env_ids)
        return ResetDefaults(
            bases={env_id: base for env_id, base in self.bases.items() if env_id in ids},
            options={env_id: pickled for env_id, pickled in self.options.items() if env_id in ids},
        )

    def remember_options(self, options: Mapping[int, bytes | None]) -> None:
        """From now on these; None: none any more."""
        for env_id, pickled in options.items():
            if pickled is None:
                self.options.pop(env_id, None)
            else:
                self.options[env_id] = pickled

    def complete(
        self, env_id: int, named: Mapping[str, Any] | None, count_episode: Callable[[int, int], int]
    ) -> tuple[dict[str, Any], dict[str, Any] | None]:
        """The arguments of a reset of the env, and what is to be told in its info.

        Args:
            named: The arguments that the caller has named.
            count_episode: Of the env and the number of its base: the episode that begins.
        """
        arguments = dict(named or {})
        if "options" not in arguments and (pickled := self.options.get(env_id)) is not None:
            arguments["options"] = load([pickled])
        if (base := self.bases.get(env_id)) is None:
            return arguments, None
        arguments["seed"] = base.episode_seed(env_id, count_episode(env_id, base.number))
        return arguments, {EPISODE_SEED: arguments["seed"]}
