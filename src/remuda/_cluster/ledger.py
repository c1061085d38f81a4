"""What the driver knows of each env: whether it is in flight, what its episode has come to, its seeds."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from remuda._cluster.progress import Progress
from remuda._cluster.rows import Array, Rows
from remuda._engine.running.infos import RawRow
from remuda._engine.running.seeding import Continued
from remuda._seeds import derive_seed
from remuda._wire.autoreset import AutoresetMode
from remuda._wording import name_some
from remuda.errors import BrokenPoolError, EnvProgress, Fault, RemudaError, StateError

Ids = npt.NDArray[np.int64]


class Ledger:
    """What the driver knows of each env.

    Attributes:
        in_flight, must_reset, over: (num_envs,) bool: whether it has been sent something whose result was not taken;
            whether it cannot be stepped before the caller has reset it; whether its episode is over, and the next step
            begins another one.
        owed: Envs that were built anew while they were idle in an episode, and why: their next result tells it. Not by
            a fault: None.
        fresh: (num_envs,) bool: whether it was built anew, and has shown nothing since.
        progress: How far each has come.
        last: The last observation of each; None where nobody will ask for it.
    """

    def __init__(self, num_envs: int, mode: AutoresetMode, *, per_episode: bool, keeps_last: bool) -> None:
        self.in_flight, self.must_reset, self.over = (np.zeros(num_envs, bool) for _ in range(3))
        self.must_reset[:] = True
        self.owed: dict[int, Fault | None] = {}
        self.lost: dict[int, RemudaError] = {}
        self.last: list[Array] | None = [] if keeps_last else None
        self.last_extras: dict[int, RawRow] = {}
        self.fresh = np.zeros(num_envs, bool)
        self.progress = Progress(num_envs)
        self._mode, self._per_episode = mode, per_episode
        self._bases: dict[int, int] = {}
        self._given = np.zeros(num_envs, np.int64)  # seeds derived from them
        self._drawn: int | None = None

    # -- before anything is sent -------------------------------------------------------------------------

    def check_alive(self, env_ids: Ids | Sequence[int]) -> None:
        for env in env_ids if self.lost else ():
            if int(env) in self.lost:
                raise BrokenPoolError(
                    f"env {env} was lost to an earlier fault; close the pool and make a new one"
                ) from self.lost[int(env)]

    def check_idle(self, env_ids: Ids) -> None:
        busy = env_ids[self.in_flight[env_ids]]
        if len(busy):
            raise StateError(
                f"expected envs whose last result was received, but env {busy[0]} is in flight; call recv first"
            )

    def check_reset(self, env_ids: Ids) -> None:
        missing = env_ids[self.must_reset[env_ids]]
        if len(missing):
            raise StateError(
                f"expected envs that have been reset, got {name_some('env', missing.tolist())}; call reset first"
            )

    def check_in_episode(self, env_ids: Ids) -> None:
        """Whether there is an env to be asked where it is in its episode."""
        gone = env_ids[self.fresh[env_ids]]
        if len(gone):
            raise StateError(
                f"expected envs that are in an episode, got {name_some('env', gone.tolist())}, built anew since the "
                "last result; step or reset first"
            )

    # -- what comes ----------------------------------------------------------------------------------------

    def note(self, rows: Rows, kind: str) -> None:
        """Results that have come. `kind`: of "step", "reset", "restore" or "observe"."""
        ids, ends = rows.env_ids, rows.ends
        self.must_reset[ids] = self.fresh[ids] = False
        begun = self._begun(ids, ends, kind)
        self.progress.note(ids, begun, steps=kind == "step")
        if self._per_episode:
            self._given[ids] += begun
        over = ends & (not self._mode.in_same_step)
        self.over[ids] = over | self.over[ids] if kind == "observe" else over
        if self._mode.by_caller and rows.extras is not None:
            self.must_reset[ids[_faulty(rows.extras)]] = True
        if self.last is not None:
            self._keep(rows)

    def _begun(self, ids: Ids, ends: npt.NDArray[np.bool_], kind: str) -> npt.NDArray[np.bool_]:
        """Which of these envs have begun an episode."""
        if kind == "reset":
            return np.ones(len(ids), bool)
        if self._mode.in_same_step:
            return ends
        return self.over[ids] & (self._mode.in_next_step and kind == "step")

    def _keep(self, rows: Rows) -> None:
        assert self.last is not None
        if not self.last:
            self.last = [np.zeros((len(self.over), *leaf.shape[1:]), leaf.dtype) for leaf in rows.leaves]
        for kept, leaf in zip(self.last, rows.leaves, strict=True):
            kept[rows.env_ids] = leaf
        if rows.extras or self.last_extras:
            for row, env in enumerate(rows.env_ids.tolist()):
                self.last_extras[env] = (rows.extras or {}).get(row, (0, None, None))

    # -- seeds -----------------------------------------------------------------------------------------------

    def seeds(self, given: Sequence[int | None], env_ids: Ids) -> list[int | None]:
        """What goes to the shards, of what the caller has given for each: all draw from one where he gives none."""
        if not self._per_episode:
            return list(given)
        return [self._seed(seed, env) for seed, env in zip(given, env_ids.tolist(), strict=True)]

    def _seed(self, seed: int | None, env: int) -> int | None:
        if seed is None and env not in self._bases:
            self._drawn = secrets.randbits(128) if self._drawn is None else self._drawn
            return self._drawn
        return seed

    def note_seeds(self, seeds: Sequence[int | None], env_ids: Ids) -> None:
        """They were sent."""
        for env, seed in zip(env_ids.tolist(), seeds, strict=True):
            if seed is not None:
                self._bases[env], self._given[env] = seed, 0
                self.progress.note_seed(env)

    def note_given(self, env_ids: Ids, given: Ids) -> None:
        """So many seeds have been derived, as the shards themselves count them."""
        if self._per_episode:
            self._given[env_ids] = given

    def where(self, env: int) -> EnvProgress:
        """How far an env has come. Of one that was built anew the seed is not known, unless each episode has one."""
        base, given = self._bases.get(env), int(self._given[env])
        if self._per_episode:
            seed = None if base is None or given == 0 else derive_seed(abs(base), env, given - 1)
        else:
            seed = base if given == 0 else None
        return self.progress.where(env, seed, each_has_one=self._per_episode)

    def legacy_seeds(self, env_ids: range) -> dict[int, int]:
        """For the successors of these envs, by their numbers from the first: seeds that go on where they were."""
        return {
            env - env_ids[0]: Continued(self._bases[env], int(self._given[env]))
            for env in env_ids
            if env in self._bases
        }

    def cut_off(self, env_ids: range) -> None:
        """They were built anew on other shards, all idle: who is in an episode is told that it is over."""
        self.owed.update({env: None for env in env_ids if self.is_in_episode(env)})
        self.note_anew(env_ids)

    def is_in_episode(self, env: int) -> bool:
        """Whether it has an episode that can be cut off, while it is idle."""
        return not (self.must_reset[env] or self.over[env] or env in self.owed)

    def note_anew(self, env_ids: range) -> None:
        """They were built anew: of one with random numbers of its own, the next derived seed is another one."""
        self.fresh[list(env_ids)] = True
        if not self._per_episode:
            self._given[list(env_ids)] += 1


def _faulty(extras: dict[int, RawRow]) -> list[int]:
    """The rows that tell of an end which is no env's own."""
    return [
        row
        for row, (_, parts, _) in extras.items()
        if isinstance(parts, tuple) and ("fault" in parts[1] or "resized" in parts[1])
    ]
