"""`evaluate_async`: evaluates a copy of a policy in a thread, while the learner continues."""

from __future__ import annotations

import copy
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from remuda import Pool, PoolOptions, StateError
from remuda._training.acting import Policy, check_policy
from remuda._training.arguments import Seeds
from remuda._training.evaluate import prepare
from remuda._training.evaluation import Evaluation
from remuda._training.success import Success

if TYPE_CHECKING:
    from typing_extensions import Unpack  # `Unpack` is in `typing` since Python 3.11

_latest: WeakKeyDictionary[Pool, Future[Evaluation]] = WeakKeyDictionary()  # by pool: its latest evaluation


def evaluate_async(
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
    progress: bool | None = False,
    **options: Unpack[PoolOptions],
) -> Future[Evaluation]:
    """Evaluates a policy like `evaluate`, but in a thread, and returns at once::

        evaluation = remuda.evaluate_async(model, env_fns, episodes=100)
        learner.update()  # changes `model`, but not the copy that is evaluated
        print(evaluation.result().mean)

    The policy is copied at the call by `copy.deepcopy`: a torch module with its parameters on their device, an object
    with a method `act`, a bound method with its object, or a `functools.partial` with its arguments. A function is used
    as it is, with the models that it refers to, and so is a model in an attribute of a class, so copy these first.

    All of it runs in that thread, also the envs of `backend="serial"`. A serial pool that you pass has built its envs
    in another thread, which some simulators and renderers do not support.

    If the program ends before the evaluation, the evaluation is abandoned.

    Args:
        policy, envs, episodes, seed, seeds, reset_options, success, video_folder, video_episodes, progress: See
            `evaluate`. Do not use a pool yourself until its evaluation is done. A pool spares each evaluation the start
            of workers.
        **options: See `evaluate`.

    Returns:
        A `concurrent.futures.Future` of the `Evaluation`. Its `result()` raises the errors of the episodes and of the
        policy. It cannot be cancelled.

    Raises:
        StateError: An earlier evaluation still uses the pool.
        TypeError: The policy cannot be copied.
        Exception: An argument is wrong; see `evaluate`.
    """
    if isinstance(envs, Pool) and envs in _latest and not _latest[envs].done():
        raise StateError("expected a pool that no other evaluation uses, got one in use: wait for its result() first")
    check_policy(policy)
    try:
        copied = copy.deepcopy(policy)
    except Exception as error:
        raise TypeError(
            f"expected a policy that copy.deepcopy can copy, got {type(policy).__name__} ({type(error).__name__}: "
            f"{error}); give it a method __deepcopy__, or pass a function that uses a copy of your own"
        ) from error
    play = prepare(
        copied, envs, episodes, seed, seeds, reset_options, success, video_folder, video_episodes, progress, options
    )
    future: Future[Evaluation] = Future()
    future.set_running_or_notify_cancel()
    thread = threading.Thread(target=_run, args=(play, future), name="remuda-evaluation", daemon=True)
    thread.start()
    if isinstance(envs, Pool):
        _latest[envs] = future
    return future


def _run(play: Callable[[], Evaluation], future: Future[Evaluation]) -> None:
    try:
        result = play()
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(result)
