"""What envs answer after a fault. It must not depend on how, when and where an env has failed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from cluster_envs import Faulty, arm

from remuda import FaultPolicy, Pool, RemudaError, StateError

MODES = ("next_step", "same_step", "disabled", "background")
RESTART = FaultPolicy("restart", backoff=0, max_restarts=100)
# Sequences of commands after the fault.
SEQUENCES = (
    ("step", "observe", "observe", "step", "reset", "step"),
    ("step", "step", "observe", "step"),
    ("reset", "observe", "step", "observe"),
    ("observe", "observe", "step", "step", "reset", "observe"),
)
# How an env fails: (the operation in which it fails, how). "before": in a call before the first command.
DEATHS = (("step", "death"), ("before", "death"), ("reset", "death"))
EXCEPTIONS = (("step", "exception"), ("reset", "exception"))


def possible(sequence: Sequence[str], fates: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Returns the fates that a sequence of commands can have: an env fails before the first one, or in it."""
    return [fate for fate in fates if fate[0] in ("before", sequence[0])]


def answers(fates: Sequence[tuple[str, str]], sequence: Sequence[str], **options: Any) -> list[list[Any]]:
    """Returns what each env of a pool answers to each command. `fates`: one for each env."""
    with Pool([Faulty] * len(fates), faults=RESTART, log_advice=False, **options) as pool:
        pool.reset(seed=[3] * len(fates))
        pool.step([1] * len(fates))
        for env, (operation, kind) in enumerate(fates):
            pool.apply(arm, kind, env_ids=[env])
            if operation == "before":
                with suppress(RemudaError):
                    pool.call("poke", env_ids=[env])
        return [[_answer(pool, env, command) for command in sequence] for env in range(len(fates))]


def _answer(pool: Pool, env: int, command: str) -> list[Any] | str:
    """Returns the rows that follow a command, or the text of its error. In the background, a reset follows an end."""
    try:
        match command:
            case "step":
                pool.send([2], env_ids=[env])
            case "observe":
                pool.request_obs([env])
            case "reset":
                pool.send_reset(env_ids=[env], seed=5)
    except StateError as error:
        return str(error).replace(f"env {env};", "env ...;")
    rows = []
    while pool.pending:
        batch = pool.recv()
        info = batch.infos[0]
        fault = (info.get("final_info") or info).get("fault")
        final = None if batch.final_obs is None else batch.final_obs[0][1:].tolist()
        flags = bool(batch.terminations[0]), bool(batch.truncations[0])
        rows.append((batch.obs[0][1:].tolist(), final, float(batch.rewards[0]), *flags, fault and fault.env_id == env))
    return rows
