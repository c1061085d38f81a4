"""A signal handler raises at any point of a call: no step is lost or repeated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cluster_envs import Faulty, Scripted, actions, rows_by_env
from drawn import MINUTES
from interrupting import Interrupt, interrupting

import remuda
from remuda import Pool

pytestmark = pytest.mark.usefixtures("kept_actors")

PACKAGE = Path(remuda.__file__).parent
NUM_ENVS = 4
STRIDE = 1 if MINUTES else 11  # the distance of the steps of the interpreter at which calls are interrupted


def interrupted(n: int, within: Path, function: Any, *arguments: Any) -> tuple[bool, Any]:
    """Calls a function and interrupts it at the interpreter's n-th step in the files of the folder `within`.

    Returns whether it was interrupted, and the result.
    """
    with interrupting(n, (str(within),)) as hit:
        try:
            return bool(hit), function(*arguments)
        except Interrupt:
            return True, None


@pytest.mark.parametrize("faults", ["raise", "restart"])
def test_interrupted_steps_are_made_once(faults: Any) -> None:
    common: Any = {"seeding": "per_episode", "faults": faults}
    with (
        Pool([Scripted] * NUM_ENVS, backend="serial", **common) as twin,
        Pool([Scripted] * NUM_ENVS, backend=remuda.Ray(shards=2, backend="serial"), **common) as pool,
    ):
        assert rows_by_env(pool.reset(seed=3)) == rows_by_env(twin.reset(seed=3))
        come, step = True, 0
        while come:
            come, _ = interrupted(step, PACKAGE / "_cluster", pool.send, actions(step, range(NUM_ENVS)))
            if not pool.pending:
                pool.send(actions(step, range(NUM_ENVS)))
            came, batch = interrupted(step, PACKAGE / "_cluster", pool.recv)
            come |= came
            batch = pool.recv() if batch is None else batch
            assert rows_by_env(batch) == rows_by_env(twin.step(actions(step, range(NUM_ENVS))))
            step += 1
        assert step > 5


def test_interrupted_calls_are_made_once() -> None:
    with Pool([Faulty] * NUM_ENVS, backend=remuda.Ray(shards=2, backend="serial")) as pool:
        come, n, calls = True, 0, 0
        while come:
            come, call = interrupted(n, PACKAGE, pool.call_async, "poke")
            if call is None:
                pool.call("poke")  # it is unknown whether the first call was sent
                counts = set(pool.get_attr("pokes"))
                assert len(counts) <= 2 and min(counts) >= calls + 1
                pool.set_attr("pokes", calls)
            else:
                came, counted = interrupted(n, PACKAGE, call.result)
                come |= came
                assert (call.result() if counted is None else counted) == [calls + 1] * NUM_ENVS
                calls += 1
            n += STRIDE
