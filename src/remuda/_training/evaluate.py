"""`evaluate`: plays the first N episodes that start, not the first N that end, and reports their returns."""

from __future__ import annotations

import inspect
import logging
import os
import secrets
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from remuda import Batch, Fault, InvalidActionError, Pool, PoolOptions, RemudaError, RestartLimitError
from remuda._error_frames import holds_nothing
from remuda._progress.bar import Bar
from remuda._seeds import derive_seed
from remuda._training.acting import Actor, Policy, check_policy
from remuda._training.arguments import (
    Seeds,
    check_count,
    check_envs,
    check_progress,
    check_reset_options,
    check_seed,
    check_seeds,
    check_videos,
)
from remuda._training.evaluation import Evaluation, is_own
from remuda._training.success import Success, check_success, is_success
from remuda._training.videos import Videos
from remuda._wire.codec import SpaceCodec

if TYPE_CHECKING:
    from typing_extensions import Unpack  # `Unpack` is in `typing` since Python 3.11

_MAX_ATTEMPTS = 3  # the most times to play one episode, if faults of its env end it.
_OF_POLICY = (0, 0)  # the spawn key of the policy's random generator; the spawn keys of episodes have one number


def evaluate(
    policy: Policy,
    envs: Pool | Sequence[Callable[[], Any]],
    *,
    episodes: int,
    seed: int | None = None,
    seeds: Seeds | None = None,
    reset_options: Sequence[Mapping[str, Any] | None] | None = None,
    success: Success | None = None,
    video_folder: str | os.PathLike[str] | None = None,
    video_episodes: Iterable[int] = (0,),
    progress: bool | None = None,
    **options: Unpack[PoolOptions],
) -> Evaluation:
    """Plays the first `episodes` episodes to *start*, in parallel, and returns the return and length of each.

        >>> import gymnasium, numpy, remuda
        >>> def lean(obs):
        ...     return (obs[:, 2] > 0).astype(int)
        >>> result = remuda.evaluate(lean, [lambda: gymnasium.make("CartPole-v1")] * 4, episodes=10, seed=0)
        >>> result.returns.shape, result.mean == result.lengths.mean()
        ((10,), True)

    The first episodes to *finish* include too many short ones. If the length is correlated with the return, which is
    common, their mean is biased. Here env `k % n` plays episode k to its end, as its `k // n`-th. It is reset with the
    seed `int(numpy.random.SeedSequence(seed, spawn_key=(k,)).generate_state(1)[0]) & 0x7FFFFFFF`. If the envs are
    alike, and deterministic with a given seed, the returns are the same for any number of workers.
    An episode that ends by a fault (`faults="restart"`) does not count: it is played again from its seed. With
    `FaultPolicy(resets="report")` this also holds for an episode whose reset fails.

    Args:
        policy: A function of the observations of all n envs, batched like `Batch.obs`, that returns their actions for
            `Pool.step`. The batch always has the same shape: the rows of envs that have played all their episodes keep
            their last observation, and their actions are ignored. See `collect` for tensors, `act` and `PolicyContext`.
        envs: A pool (the `pool` of a vector env), which stays open and loses its current episodes; or
            factories, for which a pool is made and closed. The envs of a pool are not changed: wrappers that change
            rewards affect the returns.
        episodes: The number of episodes, at least 1.
        seed: The seed, from 0 up; None: a random seed, which `Evaluation.seed` shows.
        seeds: The seed of each episode, from 0 up, instead of those derived from `seed`. Then `seed` is only that of
            `PolicyContext.rng`.
        reset_options: For each episode, the `options` of its reset, or None for those of the pool.
        success: The key of the last info under which the env reports success (a bool, or 0 or 1), or a function of the
            last info that returns this. It fills `Evaluation.successes`.
        video_folder: A folder for videos, `evaluation-episode-<k>.mp4`, made if needed. The envs must have
            `render_mode="rgb_array"`, and moviepy must be installed.
        video_episodes: The episodes to record.
        progress: Whether to show a progress bar on stderr, which needs rich. None: only if the evaluation takes longer
            than two seconds, stderr is a terminal, and rich is installed.
        **options: The options of the pool that is made for `envs`; by default `autoreset="disabled"`.

    Raises:
        ValueError, TypeError: An argument is wrong; or the pool has spares, vector envs, background autoreset or
            per-episode seeds, which would assign episodes in another way. Nothing was started. Or an episode has ended
            and `success` cannot be read from its last info.
        RestartLimitError: An episode ended three times by a fault of its own env; the message names both. Faults that
            another env of the same worker has caused do not count.
        MissingFrameworkError: rich, for `progress`, or moviepy, for videos, is not installed.
        Exception: The pool raised it; see `Pool`. Errors of closing the pool are logged.
    """
    return prepare(
        policy, envs, episodes, seed, seeds, reset_options, success, video_folder, video_episodes, progress, options
    )()


def prepare(
    policy: Policy,
    envs: Pool | Sequence[Callable[[], Any]],
    episodes: int,
    seed: int | None,
    seeds: Seeds | None,
    reset_options: Sequence[Mapping[str, Any] | None] | None,
    success: Success | None,
    video_folder: str | os.PathLike[str] | None,
    video_episodes: Iterable[int],
    progress: bool | None,
    options: PoolOptions,
) -> Callable[[], Evaluation]:
    """Checks the arguments of `evaluate`, and returns a function that plays the episodes."""
    check_policy(policy)
    count, given = check_count("episodes", episodes), check_seed(seed)
    shown = check_videos(video_folder, video_episodes, count)
    source = check_envs(envs, options, [name for name in inspect.signature(evaluate).parameters if name != "options"])
    check_progress(progress)
    if success is not None:
        check_success(success)
    own_seeds, own_options = check_seeds(seeds, count), check_reset_options(reset_options, count)
    entropy = secrets.randbits(64) if given is None else given
    derived = own_seeds or [derive_seed(entropy, episode) for episode in range(count)]
    plan = _Plan(entropy, np.array(derived, np.int64), own_options or [None] * count, success)

    def play() -> Evaluation:
        with _pool_of(source, count, options) as pool:
            videos = Videos(pool, video_folder, shown)
            rng = np.random.default_rng(np.random.SeedSequence(entropy, spawn_key=_OF_POLICY))
            bar = Bar("episodes", count, progress, stays=True)
            return _Play(pool, Actor(policy, pool.num_envs, rng), plan, videos, bar).play()

    return play


def _pool_of(envs: Pool | list[Callable[[], Any]], episodes: int, options: PoolOptions) -> Any:
    """Returns a context manager that yields the pool. At its end it closes the pool if it has made the pool."""
    if isinstance(envs, Pool):
        return nullcontext(envs)
    options.setdefault("autoreset", "disabled")
    factories = envs[:episodes]  # further envs would have no episode to play
    if isinstance(workers := options.get("num_workers"), int) and workers <= len(envs):
        options["num_workers"] = min(workers, len(factories))
    return ClosingPool(Pool(factories, **options))


@dataclass(frozen=True)
class _Plan:
    """The seed and the options of the reset of each episode. `entropy`: `Evaluation.seed`."""

    entropy: int
    seeds: np.ndarray[Any, np.dtype[np.int64]]
    reset_options: list[Mapping[str, Any] | None]
    success: Success | None


class _Play:
    """Plays the episodes in rounds. In a round, each env steps or begins its next episode, if it has more episodes."""

    def __init__(self, pool: Pool, actor: Actor, plan: _Plan, videos: Videos, bar: Bar) -> None:
        self._pool, self._actor, self._plan, self._videos = pool, actor, plan, videos
        self._bar, self._num_done, episodes = bar, 0, len(plan.seeds)
        reward_shape = pool._engine.layout.reward_shape
        self._returns, self._lengths = np.zeros((episodes, *reward_shape)), np.zeros(episodes, np.int64)
        self._terminated, self._infos = np.zeros(episodes, bool), [dict[str, Any]() for _ in range(episodes)]
        self._successes = None if plan.success is None else np.zeros(episodes, bool)
        self._faults = list[Fault]()
        self._own_faults = [list[Fault]() for _ in range(episodes)]  # for each episode, the faults of its own env
        n = pool.num_envs
        self._queues = [deque(range(env, episodes, n)) for env in range(n)]  # for each env, its episodes
        self._stepping, self._beginning = list[int](), [env for env in range(n) if self._queues[env]]
        self._actions = SpaceCodec(pool.single_action_space)
        self._codec = SpaceCodec(pool.single_observation_space)
        self._leaves: Any = None  # the latest observation of each env, as `flatten_batch` returns it

    @holds_nothing
    def play(self) -> Evaluation:
        try:
            self._play_all()
        except BaseException:
            self._videos.abandon()
            raise
        finally:
            self._bar.show(self._num_done, at_once=True)
            self._bar.hide()  # it stays in the terminal
        self._videos.finish()
        return Evaluation(
            self._plan.entropy,
            self._returns,
            self._lengths,
            self._terminated,
            self._plan.seeds,
            np.arange(len(self._returns)) % self._pool.num_envs,
            tuple(self._infos),
            tuple(self._faults),
            self._videos.written,
            self._successes,
        )

    def _play_all(self) -> None:
        self._bar.show(self._num_done)
        self._expect_videos()
        batch = self._pool.reset(**self._arguments_of(range(self._pool.num_envs)))
        self._note_obs(batch)
        self._note_begun(batch)
        while self._stepping or self._beginning:
            batch = self._advance()
            self._note_obs(batch)
            self._count(batch)
            self._bar.show(self._num_done)

    def _arguments_of(self, envs: Iterable[int]) -> dict[str, Any]:
        """Returns the arguments of resets that begin the envs' next episodes: None for an env that has none."""
        episodes = [self._queues[env][0] if self._queues[env] else None for env in envs]
        return {
            "seed": [None if episode is None else int(self._plan.seeds[episode]) for episode in episodes],
            "options": [None if episode is None else self._plan.reset_options[episode] for episode in episodes],
        }

    def _expect_videos(self) -> None:
        self._videos.begin({env: self._queues[env][0] for env in self._beginning})

    def _note_begun(self, batch: Batch) -> None:
        """Takes the first rows of episodes. An episode whose reset failed is begun again."""
        infos = {env: batch.infos[row] for row, env in enumerate(batch.env_ids.tolist()) if batch.truncations[row]}
        faults = {env: infos[env]["fault"] for env in self._beginning if env in infos}
        begun = [env for env in self._beginning if env not in faults]
        for env, fault in faults.items():
            self._note_fault(self._queues[env][0], fault)
        self._starts = np.isin(self._pool.env_ids, begun)
        self._stepping, self._beginning = sorted(self._stepping + begun), list(faults)

    def _advance(self) -> Batch:
        pool, actions = self._pool, None
        if self._stepping:
            context = self._actor.context_for(pool.env_ids, lambda: self._starts)
            arrays, objects = self._leaves
            obs = self._codec.build_batch(arrays, objects or ())  # its dicts are new: the policy may change them
            actions, _ = self._actor.finish(self._actor.policy(obs, **context), **context)
        self._expect_videos()
        if len(self._stepping) == pool.num_envs:
            return pool.step(actions)
        if self._stepping:
            pool.send(self._rows(actions, self._stepping), self._stepping)
        if self._beginning:
            pool.send_reset(**self._arguments_of(self._beginning), env_ids=self._beginning)
        return pool.recv(order="slot")

    def _rows(self, actions: Any, envs: list[int]) -> Any:
        arrays, objects = self._actions.flatten_batch(actions, self._pool.num_envs, "actions", InvalidActionError)
        return self._actions.build_batch(
            [array[envs] for array in arrays], [] if objects is None else [objects[env] for env in envs]
        )

    def _count(self, batch: Batch) -> None:
        """For each env that was stepped, adds its reward to the return of its episode, and 1 to the length."""
        row_of = {env: row for row, env in enumerate(batch.env_ids.tolist())}
        stepped = self._stepping
        rows, episodes = [row_of[env] for env in stepped], [self._queues[env][0] for env in stepped]
        self._returns[episodes] += batch.rewards[rows]
        self._lengths[episodes] += 1
        over = (batch.terminations | batch.truncations)[rows]
        self._stepping = [env for env, is_over in zip(stepped, over, strict=True) if not is_over]
        ended = [env for env, is_over in zip(stepped, over, strict=True) if is_over]
        for env in ended:
            self._end(env, bool(batch.terminations[row_of[env]]), batch.infos[row_of[env]])
        self._note_begun(batch)
        self._beginning += [env for env in ended if self._queues[env]]

    def _end(self, env: int, terminated: bool, info: dict[str, Any]) -> None:
        """Ends the current episode of an env. If a fault has ended it, the env plays the episode again."""
        episode = self._queues[env][0]
        if self._pool.autoreset == "same_step":  # there an env's own "final_info" is within this one
            info = info["final_info"]
        if isinstance(fault := info.get("fault"), Fault):  # else the key is the env's own
            self._note_fault(episode, fault)
            self._returns[episode], self._lengths[episode] = 0, 0
            return
        self._queues[env].popleft()
        self._terminated[episode], self._infos[episode] = terminated, info
        if self._successes is not None and self._plan.success is not None:
            self._successes[episode] = is_success(self._plan.success, info, f"episode {episode}")
        self._videos.note_end(episode)
        self._num_done += 1

    def _note_fault(self, episode: int, fault: Fault) -> None:
        """Raises RestartLimitError if the episode's own env has caused too many faults."""
        self._faults.append(fault)
        if is_own(fault):
            self._own_faults[episode].append(fault)
        if len(self._own_faults[episode]) == _MAX_ATTEMPTS:
            raise RestartLimitError(
                f"the playing of one episode ({_MAX_ATTEMPTS - 1} at most; here episode {episode}, which env "
                f"{fault.env_id} plays from seed {self._plan.seeds[episode]})",
                self._own_faults[episode],
            )

    def _note_obs(self, batch: Batch) -> None:
        """Keeps the latest observation of each env, because a batch may lack rows of some envs."""
        rows, row_objects = self._codec.flatten_batch(batch.obs, len(batch), "obs")
        if len(batch) == self._pool.num_envs:
            self._leaves = rows, row_objects
            return
        arrays, objects = self._leaves
        arrays = [array.copy() for array in arrays]
        for array, fresh in zip(arrays, rows, strict=True):
            array[batch.env_ids] = fresh
        for env, one in zip(batch.env_ids.tolist(), row_objects or (), strict=False):
            objects[env] = one
        self._leaves = arrays, objects


class ClosingPool:
    """A context manager that yields a pool, and closes it at the end.

    Errors of closing are logged. If they were raised, they would replace results that are complete, or a first error.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def __enter__(self) -> Pool:
        return self._pool

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._pool.__exit__(kind, error, trace)
        except RemudaError as failed:
            logging.getLogger("remuda").error("%s", failed, exc_info=failed)
