"""Checks the caller's arguments, and converts them for the pool and the workers."""

from __future__ import annotations

from typing import Any, Literal

from mlagents.trainers.settings import RunOptions

from remuda import FaultPolicy

REFUSED = {
    "log_advice": "a game computes in a process of its own, which measuring would not see",
    "autoreset": "ML-Agents resets envs by requests of its own",
    "extras": "ML-Agents' decision steps bring their action masks with them",
    "observation_space": "what travels in rows are ML-Agents' requests and answers",
    "resets_ahead": "ML-Agents resets envs by requests of its own",
    "seeding": "the factory seeds its env",
    "spares": "each env is a worker of ML-Agents with a number of its own, for which no other can stand in",
    "starts_serially": "envs are built by the first reset, when all workers run",
    "vector_size": "ML-Agents' envs have as many agents as they like",
}
"""Options of the pool that are not possible here, and why."""


def check_arguments(env_factory: Any, run_options: Any, n_env: Any, num_workers: Any) -> None:
    """Checks the arguments of the manager.

    Raises:
        TypeError: The factory is not a function, or the options are not ML-Agents'.
        ValueError: The number of envs or workers is invalid. (The pool's own error would suggest "auto".)
    """
    if not callable(env_factory):
        raise TypeError(
            "expected env_factory to be a function of a worker's number and a list of side channels that returns an "
            f"env, got {env_factory!r}; pass one function, and the number of envs as n_env="
        )
    if not isinstance(run_options, RunOptions):
        raise TypeError(f"expected run_options to be RunOptions of ML-Agents, got {run_options!r}")
    if not isinstance(n_env, int) or n_env < 1:
        raise ValueError(f"expected n_env to be an int from 1 up, got {n_env!r}")
    if num_workers is None or (isinstance(num_workers, int) and 1 <= num_workers <= n_env):
        return
    why = f": {REFUSED['log_advice']}" if num_workers == "auto" else ""
    raise ValueError(
        f"expected num_workers to be None (one for each env) or an int from 1 to {n_env}, got {num_workers!r}{why}"
    )


def policy_of(faults: FaultPolicy | Literal["raise", "restart", "resume"]) -> tuple[FaultPolicy, bool]:
    """Returns the pool's fault policy, and whether failed envs are restarted within ML-Agents' quotas.

    The pool replaces every worker that dies: a new worker is empty. ML-Agents' quotas decide whether it receives an
    env.
    """
    policy = FaultPolicy.of(faults)
    return policy._for_caller(renew_every=None), policy.restarts
