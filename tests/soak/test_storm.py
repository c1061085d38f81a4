"""Pools under hundreds of random faults: each fault is accounted for, and undisturbed envs step as usual.

The normal test run has two short storms. `make soak` runs all storms for the requested time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from chaos import MAKERS, FuseBox, Fused
from drawn import MINUTES, SEED
from programs import children, collect, holdings
from storm import Storm, Witness

from remuda import FaultPolicy, Pool

ENVS = 16
COMMANDS = 700  # commands to all envs of a storm without a time limit
MEMORY = 32 << 20  # the allowed growth of this process, in bytes
DEADLINE = 1.5 + 0.3 * os.getloadavg()[0]  # seconds, far more than any step takes on a machine that is so busy
POLICY = FaultPolicy(
    "restart", step_timeout=DEADLINE, reset_timeout=DEADLINE, max_restarts=10**6, period=5.0, backoff=0.0
)
STORMS = [  # number, env, autoreset, workers, min_envs (None waits for all envs), and the reaction to failed resets
    (0, "CartPole", "next_step", 16, None, "retry"),
    (1, "CartPole", "same_step", 4, 3, "retry"),
    (2, "CartPole", "disabled", 6, 5, "retry"),
    (3, "noise", "next_step", 5, 4, "retry"),
    (4, "noise", "same_step", 16, None, "retry"),
    (5, "noise", "disabled", 8, 1, "retry"),
    (6, "CartPole", "background", 16, 4, "retry"),
    (7, "noise", "background", 5, None, "retry"),
    (8, "noise", "disabled", 8, 3, "report"),
]
BRIEFLY = [STORMS[4], STORMS[6], STORMS[8]]  # the autoreset modes that begin most episodes, and reported resets


# An interrupt may arrive before a new socket or file has a name. The garbage collector then closes it.
@pytest.mark.filterwarnings("ignore:unclosed :ResourceWarning")
@pytest.mark.watchdog(600 + 60 * MINUTES)
@pytest.mark.parametrize(
    ("number", "kind", "autoreset", "workers", "min_envs", "resets"), STORMS if MINUTES else BRIEFLY
)
def test_a_pool_survives_hundreds_of_random_faults(
    number: int, kind: str, autoreset: Any, workers: int, min_envs: int | None, resets: Any, tmp_path: Path
) -> None:
    box, witness = FuseBox(tmp_path / "fuses", ENVS), Witness()
    factories = [_fused(MAKERS[kind], box, env_id) for env_id in range(ENVS)]
    policy = replace(POLICY, resets=resets)
    pool = Pool(factories, num_workers=workers, autoreset=autoreset, faults=policy, start_timeout=20, log_advice=False)
    with (
        witness.listening(),
        pool,
        Pool([MAKERS[kind]], backend="serial", autoreset="disabled") as reference,
    ):
        storm = Storm(pool, reference, box, witness, 100 * SEED + number)
        storm.begin()
        holds: list[dict[str, int]] = []  # at the middle and at the end
        for commands in _halves(MINUTES * 60 / len(STORMS), COMMANDS):
            with storm.interruptible():
                while commands(storm.commands):
                    storm.go_on(min_envs)
            storm.settle()
            holds.append(_holdings(pool))
        first, last = holds
        growth = last.pop("memory") - first.pop("memory")
        assert (last, growth < MEMORY) == (first, True), growth
        assert sum(storm.griefs.values()) > 10 and storm.reported > 5 and storm.played > ENVS, storm.griefs
        print(
            f"{storm.commands} commands, {storm.played} episodes, {storm.interrupts} interrupts, {dict(storm.griefs)}"
        )


def _fused(make: Callable[[], gymnasium.Env[Any, Any]], box: FuseBox, env_id: int) -> Callable[[], Fused]:
    return lambda: Fused(make(), box, env_id)


def _halves(seconds: float, commands: int) -> Iterator[Callable[[int], bool]]:
    """Yields two conditions for continuing after so many commands. Each lasts half of `seconds` or of `commands`."""
    for half in (1, 2):
        end = time.monotonic() + seconds / 2
        yield lambda done, half=half, end=end: time.monotonic() < end if seconds else done < half * commands // 2  # type: ignore[misc]


def _holdings(pool: Pool) -> dict[str, int]:
    """Returns the descriptors, workers and memory of this process and the fork server. No worker is being replaced
    then.
    """
    collect()
    pid = pool.workers[0].pid
    server = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        **holdings(),
        "descriptors of the server": len(os.listdir(f"/proc/{server}/fd")),
        "workers": len(children(server)),
        "memory": pages * os.sysconf("SC_PAGE_SIZE"),
    }
