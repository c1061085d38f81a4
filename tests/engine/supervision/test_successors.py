"""The pool's memory of a rebuilt env: the columns of its infos, and its last observation."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import accidents
import pytest
from accidents import die, once
from failing import MODES, assert_cut_off
from late_keys import LATE, LATER, step_with_late_keys, with_a_lock
from pool_envs import Gate, HookedEnv, begun, hooked
from programs import kill

from remuda import FaultPolicy, Pool

RESTART = FaultPolicy("restart", backoff=0)


def standing(gate: Gate, path: Path) -> Callable[[Any], None]:
    """Returns a build hook that waits at the gate in each build after the first."""
    built = str(path)
    return lambda env: gate.wait() if os.path.exists(built) else open(built, "w").close()


def test_a_key_that_appears_during_a_restart_has_one_column_in_all_workers(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    env_fns = [
        lambda: HookedEnv(0, step=step_with_late_keys),
        lambda: HookedEnv(1, step=step_with_late_keys, build=standing(gate, tmp_path / "built")),
    ]
    with begun(env_fns, faults=RESTART) as pool:
        for _ in range(2):
            pool.step([1, 1])
        kill(pool, 1)
        assert "fault" in pool.step([1, 1]).infos[1]
        gate.await_arrival()
        pool.send([1, 1])
        for action in (LATE, LATE, LATER, LATER):  # the successor receives these new keys when it starts
            batch = pool.recv(min_envs=1)
            assert batch.env_ids.tolist() == [0]
            pool.send([action], env_ids=[0])
        gate.open()
        pool.recv()
        for step, action in enumerate((1, LATE, LATER, 1, LATER), 1):
            infos = pool.step([action, action]).infos
            expected = {"tag": 1.0, "steps": step}
            expected |= {"late": 10.0 * action + 1} if action >= LATE else {}
            expected |= {"later": 100 * action + 1} if action >= LATER else {}
            assert infos[1] == expected
            assert infos[0] == {**expected, **{key: infos[0][key] for key in ("tag", "steps")}} | {
                key: value - 1 for key, value in expected.items() if key.startswith("late")
            }


# -- the last observation --------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("when", [3, 0])
def test_a_result_that_cannot_be_sent_is_not_the_last_observation(when: int, mode: Any, tmp_path: Path) -> None:
    """`when`: the step with an info that cannot be pickled, or 0 for the reset."""
    bad, deadly = once(tmp_path / "bad", with_a_lock), once(tmp_path / "dead", die, when=lambda env: env.steps == 5)

    def reset(env: HookedEnv) -> Any:
        return (env.observe(), bad(env) or {}) if when == 0 else None

    def step(env: HookedEnv, action: Any) -> Any:
        deadly(env)
        return (env.observe(), 1.0, False, False, bad(env) or {}) if env.steps == when else None

    with begun(hooked(2, reset=reset, autoreset=reset, step=step), faults=RESTART, autoreset=mode) as pool:
        seen: list[list[int]] = []
        cut = 0
        while cut < (1 if when == 0 else 2):
            batch = pool.step([len(seen)] * 2)
            if batch.truncations[1]:
                assert_cut_off(batch, 1, seen[-1])
                cut += 1
                if mode == "disabled":
                    batch = pool.reset(env_ids=[1])
                    seen.append(batch.obs[0].tolist())
                    continue
            seen.append(batch.obs[1].tolist())


def test_the_last_observation_is_right_after_several_results_that_cannot_be_sent(tmp_path: Path) -> None:
    """The worker stays and rebuilds the env each time."""
    bad = [once(tmp_path / f"bad {n}", with_a_lock, when=lambda env: env.steps == 2) for n in range(3)]
    fails = once(tmp_path / "failed", accidents.raise_value_error, when=lambda env: env.steps == 4)

    def step(env: HookedEnv, action: Any) -> Any:
        fails(env)
        info = next((found for hook in bad if (found := hook(env))), None)
        return None if info is None else (env.observe(), 1.0, False, False, info)

    with Pool(hooked(2, step=step), num_workers=1, faults=RESTART, autoreset="same_step") as pool:
        last = pool.reset().obs[1].tolist()
        ends = 0
        for action in range(20):
            batch = pool.step([action] * 2)
            if batch.truncations[1]:
                assert_cut_off(batch, 1, last)
                ends += 1
            last = batch.obs[1].tolist()
        assert ends == 4
