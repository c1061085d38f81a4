"""``SubprocVecEnvPart``: some envs of a split vector env, as a vector env of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn, cast
from weakref import WeakSet

from stable_baselines3.common.vec_env.base_vec_env import VecEnv

import remuda
from remuda import Part
from remuda._faces.close_errors import log_close_errors
from remuda.sb3.arguments import come_apart
from remuda.sb3.errors import translated
from remuda.sb3.extras import Extras
from remuda.sb3.subproc_vec_env import SubprocVecEnv


class SubprocVecEnvPart(SubprocVecEnv):
    """Some of a vector env's envs, reset, stepped and called apart from the others: what ``split`` makes.

        halves = envs.split(2)
        for half in halves:
            half.step_async(policy(half.reset()))
        while learning:
            for half in halves:  # while the policy deals with one half, the other half's envs step
                obs, rewards, dones, infos = half.step_wait()
                half.step_async(policy(obs))

    Everything is counted from 0: env ``i`` here is env ``env_ids[i]`` of the whole. But :meth:`seed` gives that one
    ``seed + env_ids[i]``, so that parts with the same seed together begin as the whole does.

    Attributes:
        env_ids: (num_envs,) int64, ascending: which envs of the whole these are.
        whole: the vector env that was split. It owns the workers; closing it closes this.
    """

    def __init__(self, whole: SubprocVecEnv, envs: Part) -> None:
        self.whole, self.env_ids = whole, envs.env_ids
        self.waiting = self.closed = self._under_way = False
        self.keep_options = whole.keep_options
        self._pool, self._envs, self._split_off = whole._pool, envs, WeakSet()
        self._extras = Extras(whole._extras.functions)
        # Past the constructor of the whole, which starts workers.
        VecEnv.__init__(self, envs.num_envs, whole.observation_space, whole.action_space)
        self._batches_actions = come_apart(self.action_space)
        self.metadata, ids = dict(whole.metadata), envs.env_ids.tolist()
        self.reset_infos = tuple(whole.reset_infos[i] for i in ids)  # type: ignore[assignment]  # as the whole's
        self._seeds = [whole._seeds[i] for i in ids]
        self._options = [whole._options[i] for i in ids]

    @property
    def processes(self) -> list[Any]:
        """The workers that host these envs, and perhaps others."""
        return [worker for worker in self._pool.workers if not set(worker.env_ids).isdisjoint(self.env_ids.tolist())]

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        """Seed the next :meth:`reset`: env ``i`` with ``seed + env_ids[i]``; ``None``: with one drawn at random."""
        first = super().seed(seed)[0]
        assert first is not None  # one was drawn where none was given
        self._seeds = [first + env_id for env_id in self.env_ids.tolist()]
        return self._seeds

    def split(self, parts: int = 2) -> NoReturn:
        """Not for a part: split the whole into more.

        Raises:
            ValueError: always.
        """
        raise ValueError(f"expected the whole to be split, got a part of it: use whole.split(...), not {parts} of this")

    @translated
    def close(self) -> None:
        """Give these envs up, after the step that is under way. The whole stays open. Closing again does nothing."""
        if self.closed:
            return
        self.closed, self.waiting = True, False
        self._extras.let_go()
        with log_close_errors():
            if self._envs.pending:
                self._envs.discard()
        self._envs = cast("Part", _GivenUp())


class _GivenUp:
    """Stands where the envs of a closed part were."""

    def __getattr__(self, name: str) -> NoReturn:
        raise remuda.ClosedError("this part of the vector env is closed")
