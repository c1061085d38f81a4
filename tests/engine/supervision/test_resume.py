"""Episodes of envs that failed are played again: nothing that the caller receives shows the fault."""

from __future__ import annotations

import itertools
import logging
import random
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from accidents import hold_the_gil, kill_myself, raise_value_error
from drawn import MINUTES, SEED
from gymnasium.wrappers import RecordEpisodeStatistics
from pairs import each, pairwise
from pool_envs import begun
from programs import kill
from resumed_envs import Failing, OddWalkEnv, WalkEnv

from remuda import EnvError, FaultPolicy, Pool, StepColumn, WorkerDiedError

SLOTS, STEPS = 4, round(24 * (1 + MINUTES))
EXTRAS = {"last": lambda env: env.unwrapped.last, "total": StepColumn(lambda env: env.unwrapped.total, (), "float32")}


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


def live(options: dict[str, Any], kills: random.Random | None) -> Any:
    """Returns all rows of a pool, and the number of its restarts. `kills`: draws the workers that are killed."""
    with Pool([WalkEnv] * (SLOTS + options["spares"]), extras=EXTRAS, log_advice=False, **options) as pool:
        rows: dict[int, list[Any]] = {slot: [row] for slot, row in rows_in(pool.reset(seed=7)).items()}
        drawn = [np.random.default_rng(slot) for slot in range(SLOTS)]

        def strike() -> None:
            if kills is not None and kills.random() < 0.3:
                worker = kills.choice(pool.workers)
                if worker.pid is not None and worker.is_alive():
                    kill(pool, worker.index)

        def receive() -> None:
            while pool.pending:
                for slot, row in rows_in(pool.recv(order="slot")).items():
                    rows[slot].append(row)

        for step in range(STEPS):
            strike()
            pool.send(np.array([one.normal(size=2) for one in drawn], np.float32))
            strike()
            receive()
            if pool.autoreset == "disabled":
                over = [slot for slot in range(SLOTS) if any(rows[slot][-1][2])]
                pool.send_reset(env_ids=over, options={"level": step})
                receive()
            elif step % 5 == 4 and not options["spares"]:  # discards resets in advance
                pool.set_reset_options({"level": step})
        return rows, pool.stats().restarts


@pytest.mark.watchdog(300 + 60 * MINUTES)
@(pairwise if MINUTES else each)(
    mode__resets_ahead__spares=[
        ("next_step", True, 0),
        ("next_step", False, 2),
        ("same_step", False, 2),
        ("disabled", False, 0),
        ("background", False, 2),
    ],
    start_method=["fork", "forkserver", *["spawn"] * bool(MINUTES)],  # a spawned successor costs half a CPU second
    seeding=["gymnasium", "per_episode"],
    workers=[None, 2],
    renew_every=[None, 3],
)
def test_kills_change_no_row(
    mode: str, resets_ahead: bool, spares: int, start_method: str, seeding: str, workers: int | None,
    renew_every: int | None,
) -> None:  # fmt: skip
    options = {
        "autoreset": mode,
        "spares": spares,
        "resets_ahead": resets_ahead,
        "seeding": seeding,
        "num_workers": None if spares or renew_every else workers,
        "faults": resuming(renew_every=renew_every),
    }
    expected, _ = live({**options, "start_method": "forkserver"}, kills=None)
    rows, restarts = live({**options, "start_method": start_method}, kills=random.Random(SEED))
    assert restarts > 3
    for slot in range(SLOTS):
        for n, (row, right) in enumerate(zip(rows[slot], expected[slot], strict=True)):
            assert row == right, (slot, n)


# -- faults other than kills -----------------------------------------------------------------------------


def rows_of(pool: Pool, steps: int = 6) -> list[Any]:
    rows, drawn = [rows_in(pool.reset(seed=5))], np.random.default_rng(0)
    for _ in range(steps):
        rows.append(rows_in(pool.step(drawn.normal(size=(pool.num_envs, 2)).astype(np.float32))))
    return rows


def undisturbed(num_envs: int = 2) -> list[Any]:
    with Pool([partial(WalkEnv, 10**6)] * num_envs, backend="serial") as pool:
        return rows_of(pool)


@each(
    backend__act__num_workers=[
        ("serial", raise_value_error, 1),
        *itertools.product(["thread"], [raise_value_error], [1, 2]),
        *itertools.product(["process"], [raise_value_error, kill_myself, hold_the_gil], [1, 2]),
    ]
)
def test_one_failure_changes_no_row(backend: Any, act: Any, num_workers: int, tmp_path: Path) -> None:
    env_fns = [partial(Failing, act, 3, tmp_path / "done"), partial(WalkEnv, 10**6)]
    limits: Any = {"step_timeout": 1.0} if act is hold_the_gil else {}
    with Pool(env_fns, backend=backend, faults=resuming(**limits), num_workers=num_workers) as pool:
        assert rows_of(pool) == undisturbed()
        assert pool.stats().faults == 1


@pytest.mark.parametrize("backend", ["serial", "thread", "process"])
def test_a_second_failure_at_the_same_step_ends_the_episode(backend: Any) -> None:
    class Bad(WalkEnv):
        def step(self, action: Any) -> Any:
            if action[0] > 5:
                raise ValueError("too much")
            return super().step(action)

    with begun([partial(Bad, 10**6), partial(WalkEnv, 10**6)], 1, backend=backend, faults=resuming()) as pool:
        step(pool)
        batch = pool.step(np.array([[9, 0], [0, 0]], np.float32))
        assert batch.truncations.tolist() == [True, False]
        fault = batch.infos[0]["fault"]
        assert fault.not_resumed == "it failed again at the same step"
        assert "too much" in str(fault) and "it failed again at the same step" in str(fault)
        batch = step(pool)
        assert (batch.obs[0, 0], batch.obs[1, 0], batch.truncations.any()) == (0, 3, False)


# -- episodes that cannot be played again ----------------------------------------------------------------


def step(pool: Pool, times: int = 1) -> Any:
    for _ in range(times):
        batch = pool.step(np.ones((pool.num_envs, 2), np.float32))
    return batch


def reason_for_the_end(pool: Pool, steps: int, act: Callable[[Pool], object] = lambda _: None) -> str:
    """Kills worker 0 after these steps and `act`. Returns the reason why env 0 does not resume; the others do."""
    pool.reset(seed=1)
    before = step(pool, steps).obs.tolist()
    act(pool)
    kill(pool, 0)
    batch = step(pool)
    assert batch.truncations.tolist() == [True, False][: pool.num_envs]
    assert batch.obs[0].tolist() == before[0]
    assert batch.obs[1:, 0].tolist() == [steps + 1] * (pool.num_envs - 1)
    if pool.autoreset == "next_step":
        following = step(pool)
        assert (following.obs[0, 0], following.truncations.any(), "fault" in following.infos[0]) == (0, False, False)
    return str(batch.infos[0]["fault"].not_resumed)


@pytest.mark.parametrize("kind", ["clock", "global random", "global numpy", "file", "late"])
def test_an_env_that_is_not_the_same_is_found_out(kind: str, tmp_path: Path) -> None:
    env_fns = [partial(OddWalkEnv, kind, tmp_path / "builds"), partial(WalkEnv, 10**6)]
    with Pool(env_fns, faults=resuming(), num_workers=1) as pool:
        assert f"from step {2 if kind == 'late' else 1} on" in reason_for_the_end(pool, steps=3)


CALLED = "it was called, and the call would not be repeated"


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda pool: pool.call("observe"), CALLED),
        (lambda pool: pool.apply(lambda env: setattr(env.unwrapped, "level", 3)), CALLED),
        (lambda pool: pool.set_attr("level", 2), CALLED),
        (lambda pool: pool.set_attr("level", 2, lasting=True), "it was called within the episode"),
    ],
)
def test_an_env_that_was_called_is_restarted(call: Callable[[Pool], object], why: str) -> None:
    with Pool([partial(WalkEnv, 10**6)] * 2, faults=resuming(), num_workers=2) as pool:
        assert reason_for_the_end(pool, 1, call) == why


@pytest.mark.parametrize(
    ("limits", "steps", "why"),
    [
        ({"max_resumed_steps": 2}, 3, "3 steps, more than max_resumed_steps=2"),
        ({"bytes_per_env": 64}, 40, "bytes_per_env=64"),
    ],
)
def test_an_episode_that_is_too_long_is_restarted(limits: dict[str, int], steps: int, why: str) -> None:
    with Pool([partial(WalkEnv, 10**6)], faults=resuming(**limits)) as pool:
        assert why in reason_for_the_end(pool, steps)


class OldGenerator(WalkEnv):
    """A walk that draws from a generator which cannot be noted."""

    def reset(self, **arguments: Any) -> Any:
        self.np_random = np.random.default_rng(1)
        outcome = super().reset(**arguments)
        self.np_random = np.random.RandomState(1)  # type: ignore[assignment]
        return outcome


@pytest.mark.parametrize(
    ("env_fn", "options", "why"),
    [
        (WalkEnv, {"pad": "x" * 20_000}, "the options of its reset are missing: they are too long"),
        (OldGenerator, None, "its reset had no seed, and its np_random is no Generator, but RandomState"),
    ],
)
def test_an_episode_whose_reset_cannot_be_repeated_ends(env_fn: Any, options: Any, why: str) -> None:
    """Its env has not failed, so one fault tells of it, and that of its neighbour."""
    with Pool([partial(WalkEnv, 10**6), partial(env_fn, 10**6)], num_workers=1, faults=resuming()) as pool:
        pool.reset(seed=1)
        pool.reset(options=options, env_ids=[1])
        step(pool)
        kill(pool, 0)
        batch = step(pool)
        assert batch.truncations.tolist() == [False, True]
        assert (batch.infos[1]["fault"].not_resumed, batch.infos[1]["fault"].kind) == (why, "death")
        assert pool.stats().restarts == 1


class FailingAgain(WalkEnv):
    """A walk that fails in its second step, or in its reset, after it was built for the second time.

    With the action `RAISE` it raises before that.
    """

    def __init__(self, fail: Callable[[], object], builds: Path, where: str = "step") -> None:
        super().__init__(10**6)
        with builds.open("a") as file:
            file.write(".")
        self.fail, self.where, self.is_again = fail, where, builds.stat().st_size > 1

    def reset(self, **arguments: Any) -> Any:
        if self.is_again and self.where == "reset":
            self.fail()
        return super().reset(**arguments)

    def step(self, action: Any) -> Any:
        if self.is_again and self.where == "step" and self.steps == 1:
            self.fail()
        if not self.is_again and action[0] == RAISE:
            raise ValueError("first")
        return super().step(action)


RAISE = 5.0
hang = partial(time.sleep, 60)


@pytest.mark.parametrize(
    ("fail", "where"), [(raise_value_error, "step"), (hang, "step"), (hang, "reset"), (kill_myself, "step")]
)
def test_an_episode_that_fails_whenever_it_is_played_again_ends(fail: Any, where: str, tmp_path: Path) -> None:
    env_fns = [partial(FailingAgain, fail, tmp_path / "builds", where), partial(WalkEnv, 10**6)]
    resets: Any = "report" if where == "reset" else "retry"
    policy = resuming(step_timeout=1.0, reset_timeout=1.0, resets=resets)
    mode: Any = "disabled" if where == "reset" else "next_step"
    with Pool(env_fns[: 1 if where == "reset" else 2], faults=policy, num_workers=1, autoreset=mode) as pool:
        assert reason_for_the_end(pool, steps=3) == f"it failed in a {where} when it was played again"


@pytest.mark.parametrize("backend", ["serial", "thread"])
def test_an_env_that_raises_when_it_is_played_again_says_so(backend: Any, tmp_path: Path) -> None:
    env_fn = partial(FailingAgain, raise_value_error, tmp_path / "builds")
    with begun([env_fn], 1, backend=backend, faults=resuming()) as pool:
        step(pool, 3)
        batch = pool.step(np.full((1, 2), RAISE, np.float32))
        assert batch.truncations.all()
        why = batch.infos[0]["fault"].not_resumed
        assert why.startswith("it raised ValueError(") and why.endswith("when it was played again")


def test_a_call_does_not_reach_an_env_that_was_found_out() -> None:
    with begun([partial(OddWalkEnv, "clock")], 1, faults=resuming(), num_workers=1) as pool:
        step(pool, 3)
        kill(pool, 0)
        with pytest.raises(EnvError, match="not resumed .*from step 1 on"):
            for _ in range(10_000):
                with suppress(WorkerDiedError):  # the call came before the death was noticed
                    assert pool.get_attr("steps") == [3]
        assert step(pool).truncations.all()
        step(pool)
        assert pool.get_attr("steps") == [0]


def test_a_full_log_does_not_hold_the_step_that_was_interrupted(tmp_path: Path) -> None:
    reasons = []
    for at in range(10, 20):
        env_fn = partial(Failing, kill_myself, at, tmp_path / f"done-{at}")
        with begun([env_fn], 1, faults=resuming(bytes_per_env=180), num_workers=1) as pool:
            batch = step(pool, at + 1)
            reasons.append(batch.infos[0]["fault"].not_resumed if "fault" in batch.infos[0] else None)
    assert reasons[0] is None and reasons[-1] is not None
    assert all(why is None or "bytes_per_env=180" in why for why in reasons)


# -- what a resumed episode does not show ----------------------------------------------------------------


def test_calls_before_the_episode_that_last_and_calls_that_only_read_do_not_matter() -> None:
    with Pool([partial(WalkEnv, 10**6)] * 2, faults=resuming(), num_workers=2) as pool:
        pool.set_attr("longest", 50, lasting=True)
        pool.reset(seed=1)
        step(pool)
        length = pool.get_attr("length")
        kill(pool, 0)
        assert step(pool).obs[:, 0].tolist() == [2, 2]
        assert pool.get_attr("length") == length
        assert pool.get_attr("longest") == [50, 50]


class Chatty(WalkEnv):
    """A walk that logs and prints. Its infos contain themselves."""

    def step(self, action: Any) -> Any:
        logging.getLogger("chatty").warning("step %d", self.steps)
        print(self.steps, flush=True)
        obs, reward, terminated, truncated, info = super().step(action)
        info["itself"] = info
        return obs, reward, terminated, truncated, info


def test_nothing_that_the_env_logs_or_prints_appears_twice(caplog: Any, capfd: Any) -> None:
    with begun([partial(Chatty, 10**6)], 1, faults=resuming()) as pool:
        step(pool, 3)
        kill(pool, 0)
        batch = step(pool)
        assert (batch.obs[0, 0], batch.truncations.any(), pool.stats().restarts) == (4, False, 1)
    logged = [record.getMessage() for record in caplog.records if record.name == "chatty"]
    assert logged == [f"step {n}" for n in range(4)]
    assert capfd.readouterr().out.split() == ["0", "1", "2", "3"]
    assert "it is restarted at once, and resumes" in caplog.text


def test_rows_of_a_rollout_are_written_once() -> None:
    def rollouts(kills: bool) -> Any:
        columns = []
        with begun([WalkEnv] * 4, seed=3, faults=resuming(), num_workers=2) as pool:
            drawn = np.random.default_rng(1)
            for n in range(4):
                rollout = pool.rollout(8)
                for i, step in enumerate(rollout):
                    if kills and i == 2 + n:
                        kill(pool, n % 2)
                    step.act(drawn.normal(size=(4, 2)).astype(np.float32))
                names = ("obs", "rewards", "terminations", "truncations", "valid")
                columns.append([getattr(rollout, name).tolist() for name in names])
        return columns

    assert rollouts(True) == rollouts(False)


@pytest.mark.parametrize("mode", ["next_step", "disabled"])
def test_a_death_after_an_episode_whose_last_info_has_a_clock_changes_no_row(mode: Any) -> None:
    def rows(*, kills: bool) -> list[Any]:
        seen = []
        with Pool([lambda: RecordEpisodeStatistics(WalkEnv(3))], autoreset=mode, faults=resuming()) as pool:
            obs = pool.reset(seed=3).obs.tolist()
            for _ in range(20):
                batch = step(pool)
                seen.append((obs, batch.rewards.tolist(), batch.dones.tolist()))
                if batch.dones[0] and kills:
                    kill(pool, 0)
                obs = (pool.reset() if batch.dones[0] and mode == "disabled" else batch).obs.tolist()
        return seen

    assert rows(kills=True) == rows(kills=False)


def test_a_reset_that_begins_anew_is_logged(tmp_path: Path, caplog: Any) -> None:
    with begun([partial(OddWalkEnv, "clock")], 1, autoreset="disabled", faults=resuming()) as pool:
        step(pool)
        kill(pool, 0)
        assert pool.reset(seed=1).obs[0, 0] == 0
    assert "its episode is not resumed: it was not the same from step 1 on" in caplog.text


@pytest.mark.parametrize("mode", ["same_step", "next_step"])
def test_options_that_a_spare_gets_when_it_dies_hold_for_its_next_episode(mode: Any) -> None:
    def rows(when: str) -> Any:
        seen = []
        with begun([WalkEnv] * 2, seed=3, spares=1, autoreset=mode, faults=resuming()) as pool:
            if when == "before":
                kill(pool, 1)
            pool.set_reset_options({"level": 5})
            if when == "after":
                kill(pool, 1)
            for _ in range(30):
                seen.append(rows_in(step(pool)))
        return seen

    undisturbed = rows("never")
    assert "5" in str(undisturbed)
    assert rows("before") == rows("after") == undisturbed
