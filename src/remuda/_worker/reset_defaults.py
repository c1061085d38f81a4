"""Defaults of resets without seed or options: a seed that is derived from an earlier one, and lasting options."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from remuda import _core
from remuda._seeds import derive_seed
from remuda._wire.pickling import load

EPISODE_SEED = "episode_seed"  # the key of the seed in the info of an episode's first row


@dataclass(frozen=True)
class SeedBase:
    """A seed that the caller gave to an env. Later seeds of that env are derived from it.

    Attributes:
        entropy: The seed itself; >= 0 with `of_every_episode`.
        number: The pool's count of such seeds, from 1 up. The same seed given again has another number.
        env_id: The number of the env in the pool of the caller.
        of_every_episode: Whether each episode gets a derived seed. If not, one reset gets the seed itself, and the
            first reset of a rebuilt env gets a derived one.
        sub_env: The difference to the one int that was given for all envs of a vector env; 0 if there was no such int.
    """

    entropy: int
    number: int
    env_id: int
    of_every_episode: bool = True
    sub_env: int = 0

    def seed(self, n: int) -> int:
        """Returns the n-th seed of this base; n counts from 0."""
        if n == 0 and not self.of_every_episode:
            return self.entropy
        return derive_seed(abs(self.entropy - self.sub_env), self.env_id - self.sub_env, n) + self.sub_env


@dataclass
class ResetDefaults:
    """The reset defaults of a worker's envs. The pool has those of all envs, for the successors of workers.

    Attributes:
        bases: The last seed from the caller, by env.
        options: The lasting options, pickled, by env: each reset gets a copy that the env may change.
        changes: The number of the latest change of the lasting options, by env.
        due: In a worker: the envs that get a derived seed at their next reset if the caller gives none.
    """

    bases: dict[int, SeedBase] = field(default_factory=dict)
    options: dict[int, bytes] = field(default_factory=dict)
    changes: dict[int, int] = field(default_factory=dict)
    due: set[int] = field(default_factory=set)

    def __bool__(self) -> bool:
        """Whether some resets get a derived seed or lasting options."""
        return bool(self.due or self.options)

    def for_successor(self, env_ids: Iterable[int], first: int = 0) -> ResetDefaults:
        """Returns the defaults of some envs, for the worker that rebuilds them. Subtracts `first` from their ids."""
        ids = set(env_ids)
        bases = {env_id - first: base for env_id, base in list(self.bases.items()) if env_id in ids}
        options = {env_id - first: pickled for env_id, pickled in list(self.options.items()) if env_id in ids}
        changes = {env_id - first: change for env_id, change in list(self.changes.items()) if env_id in ids}
        return ResetDefaults(bases, options, changes, set(bases))

    def remember_options(self, options: Mapping[int, bytes | None], change: int) -> None:
        """Replaces the lasting options of envs; None removes them. `change`: the number of this change."""
        for env_id, pickled in options.items():
            self.changes[env_id] = change
            if pickled is None:
                self.options.pop(env_id, None)
            else:
                self.options[env_id] = pickled

    def match(self, env_id: int, options: bytes | None) -> bool:
        """Whether the env's next reset, if the caller gives nothing, has no seed, and these lasting options."""
        return env_id not in self.due and self.options.get(env_id) == options

    def complete(
        self, env_id: int, named: Mapping[str, Any] | None, loop: _core.WorkerLoop
    ) -> tuple[dict[str, Any], dict[str, Any] | None]:
        """Returns the arguments of a reset of the env, and the entries to add to its info.

        Args:
            named: The arguments from the caller, with the base of the seed.
            loop: The worker's loop, which counts the seeds that were given, in shared memory.
        """
        arguments = dict(named or {})
        if "options" not in arguments and (pickled := self.options.get(env_id)) is not None:
            arguments["options"] = load([pickled])
        seed = self.take_seed(env_id, arguments.pop("seed", None), loop)
        if seed is None:
            return arguments, None
        arguments["seed"] = seed
        return arguments, {EPISODE_SEED: seed} if self.bases[env_id].of_every_episode else None

    def take_seed(self, env_id: int, named: SeedBase | None, loop: _core.WorkerLoop) -> int | None:
        """Returns the seed for a reset of the env; None: it gets no seed. `named`: the seed from the caller."""
        if named is not None:
            self.bases[env_id] = named
        elif env_id not in self.due:
            return None
        base = self.bases[env_id]
        if base.of_every_episode:
            self.due.add(env_id)
            n = loop.next_seed(env_id, base.number, True)
        else:
            self.due.discard(env_id)
            n = 0 if named is not None else loop.next_seed(env_id, base.number, False)
        loop.note_seed(env_id, base.number, n)
        return base.seed(n)


def common_seed(seeds: Sequence[int | None]) -> int | list[int | None] | None:
    """Returns a vector env's `seed`: None if all are None, the first one if the others count up from it, or a list."""
    first = seeds[0]
    if first is None:
        return None if all(seed is None for seed in seeds) else list(seeds)
    return first if list(seeds) == list(range(first, first + len(seeds))) else list(seeds)
