"""Episodes of envs that failed are played again: nothing that the caller receives shows the fault."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from drawn import MINUTES, SEED
from pairs import pairwise
from programs import kill
from resumed_envs import WalkEnv, state_of, total_of

from remuda import FaultPolicy, Part, Pool, StepColumn

SLOTS, STEPS = 4, 24
EXTRAS = {"last": state_of, "total": StepColumn(total_of, (), "float32")}


def resuming(**options: Any) -> FaultPolicy:
    return FaultPolicy("resume", max_restarts=10_000, backoff=0, **options)


def rows_in(batch: Any) -> dict[int, Any]:
    """Returns the rows of a batch by slot, as values that can be compared."""
    rows = {}
    for i, slot in enumerate(batch.env_ids.tolist()):
        info = {key: plain(value) for key, value in batch.infos[i].items()}
        flags = bool(batch.terminations[i]), bool(batch.truncations[i])
        extras = {name: column[i].tolist() for name, column in batch.extras.items()}
        rows[slot] = batch.obs[i].tolist(), float(batch.rewards[i]), flags, info, extras
    return rows


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


class Driver:
    """Steps a pool with actions that depend on the slot and the number of its steps only."""

    def __init__(self, pool: Pool, parts: int, *, is_partial: bool) -> None:
        self.is_partial = is_partial
        self.rows: dict[int, list[Any]] = {slot: [row] for slot, row in rows_in(pool.reset(seed=7)).items()}
        self.drawn = [np.random.default_rng(slot) for slot in range(SLOTS)]
        self.parts: tuple[Part, ...] = pool.split(parts) if parts > 1 else (pool,)

    def receive(self, part: Part) -> None:
        while part.pending:
            batch = part.recv(**({"min_envs": 1} if self.is_partial else {"order": "slot"}))
            for slot, row in rows_in(batch).items():
                self.rows[slot].append(row)

    def reset(self, slots: list[int], **arguments: Any) -> None:
        for part in self.parts:
            if some := [slot for slot in part.env_ids.tolist() if slot in slots]:
                part.send_reset(env_ids=some, **arguments)
        for part in self.parts:
            self.receive(part)

    def step(self, before: Callable[[], object], meanwhile: Callable[[], object]) -> None:
        before()
        for part in self.parts:
            part.send(np.array([self.drawn[slot].normal(size=2) for slot in part.env_ids.tolist()], np.float32))
        meanwhile()
        for part in self.parts:
            self.receive(part)


def live(options: dict[str, Any], parts: int, *, is_partial: bool, kills: random.Random | None) -> Any:
    """Returns all rows of a pool, and the number of its restarts. `kills`: draws the workers that are killed."""
    mode = options["autoreset"]
    with Pool([WalkEnv] * (SLOTS + options.get("spares", 0)), extras=EXTRAS, log_advice=False, **options) as pool:
        driver = Driver(pool, parts, is_partial=is_partial)

        def strike() -> None:
            if kills is not None and kills.random() < 0.3:
                worker = kills.choice(pool.workers)
                if worker.pid is not None and worker.is_alive():
                    kill(pool, worker.index)

        for step in range(STEPS):
            driver.step(strike, strike)
            if mode == "disabled":
                over = [slot for slot, rows in driver.rows.items() if any(rows[-1][2])]
                driver.reset(over, options={"level": step})
        return driver.rows, pool.stats().restarts


@pairwise(
    mode=["next_step", "same_step", "disabled", "background"],
    start_method=["fork", "forkserver", "spawn"],
    spares=[0, 2],
    resets_ahead=[False, True],
    seeding=["gymnasium", "per_episode"],
    workers=[None, 2],
    parts=[1, 2],
    is_partial=[False, True],
    renew_every=[None, 3],
)
def test_kills_change_no_row(
    mode: str, start_method: str, spares: int, resets_ahead: bool, seeding: str, workers: int | None, parts: int,
    is_partial: bool, renew_every: int | None,
) -> None:  # fmt: skip
    resets_ahead = resets_ahead and mode == "next_step"
    options = {
        "autoreset": mode,
        "spares": spares,
        "resets_ahead": resets_ahead,
        "seeding": seeding,
        "num_workers": None if spares or renew_every else workers,
        "faults": resuming(renew_every=renew_every),
    }
    expected, _ = live(
        {**options, "start_method": "forkserver"}, parts, is_partial=is_partial and not spares, kills=None
    )
    drawn = random.Random(SEED)
    rows, restarts = live(
        {**options, "start_method": start_method}, parts, is_partial=is_partial and not spares, kills=drawn
    )
    assert restarts > 3
    for slot in range(SLOTS):
        for n, (row, right) in enumerate(zip(rows[slot], expected[slot], strict=True)):
            assert row == right, (slot, n)
