"""Faults and renewals of envs in a pool with spares."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from accidents import die, once, raise_value_error
from failing import ACTS
from pairs import each
from pool_envs import Gate, HookedEnv, begun, counting, hooked
from spare_envs import step, tags

from remuda import BrokenPoolError, EnvError, FaultPolicy, WorkerDiedError, load_record

MODES = ("next_step", "same_step", "disabled", "background")


def test_a_spare_that_cannot_reset_raises_when_it_is_used() -> None:
    with begun(hooked(3, (2,), 1, reset=raise_value_error), spares=1) as pool:
        assert pool.step([1, 1]).terminations.all()
        with pytest.raises(EnvError, match="broken") as raised:
            pool.step([1, 1])
        assert raised.value.env_ids == (2,)
        assert raised.value.failures[0].operation == "reset"
        assert tags(pool.recv()) == [0]
        assert tags(pool.reset()) == [2, 0]


def test_the_death_of_a_spare_is_raised() -> None:
    with begun(counting(3, length=1), spares=1) as pool:
        os.kill(pool.workers[2].pid or 0, signal.SIGKILL)
        with pytest.raises(WorkerDiedError) as raised:
            while True:
                pool.step([1, 1])
        assert raised.value.env_ids == (2,)
        with pytest.raises(BrokenPoolError):
            for _ in range(4):
                pool.discard()
                with suppress(WorkerDiedError):  # an env that was sent a command meanwhile raises once more
                    pool.step([1, 1])


@each(kind=["death", "exception"], mode=MODES)
def test_a_spare_takes_the_slot_of_a_failed_env_at_once(kind: str, mode: Any, tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    fails = once(tmp_path / "failed", ACTS[kind])
    build = once(tmp_path / "built", lambda _: gate.wait(), skip=1)
    with begun(hooked(3, (0,), 5, step=fails, build=build), spares=1, autoreset=mode, faults="restart") as pool:
        pool.send([1, 1])
        batch = pool.recv(order="slot")
        assert batch.truncations.tolist() == [True, False]
        if mode != "same_step":
            assert batch.infos[0]["fault"].env_id == 0
            batch = step(pool, mode, batch)
        assert tags(batch) == [2, 1]
        gate.let_pass()  # the rebuilt env becomes a spare only after the gate opens
        seen: set[int] = set()
        for _ in range(24):
            batch = step(pool, mode, batch)
            seen.update(tags(batch))
        assert seen == {0, 1, 2}


def test_a_death_after_the_end_of_an_episode_does_not_affect_the_slot(tmp_path: Path) -> None:
    """The slot waits for a spare until the slots that were sent their step earlier have received theirs."""
    gate = Gate(tmp_path)

    waits = once(tmp_path / "stood", lambda *_: gate.wait())
    envs = [*hooked(1, (0,), step=waits), *hooked(2, (1,), 1, autoreset=die)[1:], *counting(3)[2:]]
    with begun(envs, spares=1, autoreset="same_step", faults="restart") as pool:
        pool.send([1, 1])
        while not pool.stats().restarts:
            assert len(pool.recv(timeout=0.01)) == 0
        gate.let_pass()
        batch = pool.recv(2, order="slot")
        assert (tags(batch), batch.terminations.tolist()) == ([0, 2], [False, True])
        batch = pool.step([1, 1])
        assert (tags(batch), batch.truncations.tolist()) == ([0, 2], [False, False])


@each(
    arguments=[{}, {"seed": 5}, {"options": {}}, {"options": {}, "reset_slots": True}],
    seeding=["gymnasium", "per_episode"],
)
def test_a_reset_finds_a_renewed_env_as_without_timing(arguments: Any, seeding: Any, tmp_path: Path) -> None:
    """Resets all envs before the renewed env is built, or after it has reset in advance. In the caller's thread it is
    rebuilt by its reset in advance.
    """
    rows = [_after_renewal(tmp_path / order, order, arguments, seeding) for order in ("before", "after", "serial")]
    assert rows[0] == rows[1] == rows[2]


def _after_renewal(path: Path, order: str, arguments: Any, seeding: Any) -> list[Any]:
    path.mkdir()
    gate, reset = Gate(path), path / "reset.1"
    hooks = {"build": once(path / "build", lambda *_: gate.wait(), skip=1)} if order == "before" else {}
    hooks["reset"] = once(path / "reset", lambda *_: None, skip=1)  # makes a file in the first reset of the renewed env
    fns = [partial(HookedEnv, tag, length, **(hooks if tag == 0 else {})) for tag, length in enumerate((1, 50, 2))]
    options: Any = {"backend": "serial" if order == "serial" else "process", "seeding": seeding}
    with begun(fns, seed=1, spares=1, faults=FaultPolicy(renew_every=1), **options) as pool:
        pool.step([1, 1])
        pool.step([1, 1])  # slot 0 continues with the spare, and env 0 is the spare
        while order == "after" and not reset.exists():
            pool.call("pid", env_ids=[1])
        pool.send_reset(**arguments)
        opening = threading.Thread(target=gate.let_pass)
        if order == "before":
            opening.start()
        batches = [pool.recv(), *(pool.step([1, 1]) for _ in range(5))]
        if order == "before":
            opening.join()
        return [(batch.obs.tolist(), [info.get("episode_seed") for info in batch.infos]) for batch in batches]


def test_a_crash_record_names_the_env_in_the_slot(tmp_path: Path) -> None:
    envs = hooked(3, (2,), 1, step=raise_value_error)
    with begun(envs, seed=3, spares=1, crash_dir=tmp_path) as pool:
        pool.step([1, 1])
        pool.step([1, 1])
        with pytest.raises(EnvError) as raised:
            pool.step([9, 1])
        (failure,) = raised.value.failures
        assert failure.where is not None and failure.record is not None
        assert (failure.where.env_id, failure.where.seed, failure.where.action) == (2, 5, 9)
        record = load_record(failure.record)
        assert (record.env_id, record.step) == (2, 1)
