"""Constructor arguments that need a look before any worker starts."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np


def check_max_concurrency(limit: Any) -> None:
    """Raise ``ValueError`` for what is neither ``None`` nor a positive integer."""
    if limit is None:
        return
    if not isinstance(limit, (int, np.integer)):
        raise ValueError(f"`max_concurrency` must be an integer or None, got {type(limit)}.")
    if limit < 1:
        raise ValueError(f"`max_concurrency` must be positive or None, got {limit}.")


def refuse_worker(worker: Callable[..., None] | None) -> None:
    """Refuse a worker function.

    Raises:
        ValueError: it would not have fitted the original either.
        NotImplementedError: it would have; says what to do instead.
    """
    if worker is None:
        return
    signature = inspect.signature(worker)
    try:
        signature.bind(*(None,) * 8)
    except TypeError as error:
        raise ValueError(
            f"A custom `worker` must accept 8 arguments. Got the signature {signature} which should match "
            "(index, env_fn, pipe, parent_pipe, shared_memory, error_queue, autoreset_mode, semaphore)."
        ) from error
    raise NotImplementedError(
        "expected worker=None: a worker function serves an env over a multiprocessing pipe, a shared "
        "multiprocessing buffer and an error queue, and remuda's workers have none of these. To change what "
        "reset or step do, wrap the env in its env_fn (gymnasium.Wrapper); to change when envs are reset, pass "
        "autoreset_mode=; to run code of your own beside the env, give a wrapper a method and use call(); to "
        "keep the worker function, use gymnasium.vector.AsyncVectorEnv."
    )
