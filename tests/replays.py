"""Crash records of envs that fail, and their replays by the `remuda` command."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from command import Outcome, command
from gymnasium import spaces
from pool_envs import HookedEnv, hooked

from remuda import CrashRecord, EnvError, Pool, WorkerDiedError, load_record


def recording(env_fns: Any, directory: Path, **options: Any) -> Pool:
    return Pool(env_fns, **{"crash_dir": directory / "records", "log_advice": False, "num_workers": None, **options})


def replay(record: Path | CrashRecord | None, *options: str) -> Outcome:
    path = record.path if isinstance(record, CrashRecord) else record
    return command("replay", str(path), *options)


def assert_reproduced(run: Outcome, outcome: str = "") -> None:
    assert run.exit_code == 0, run.output
    assert f"reproduced: {outcome}" in run.stdout and "not reproduced" not in run.stdout


def fail(pool: Pool, make_action: Callable[[int], Any] = lambda i: i) -> Any:
    """Steps until the pool raises. Returns the exception."""
    with pytest.raises((EnvError, WorkerDiedError)) as raised:
        for i in range(100_000):
            if pool.step([make_action(i)] * pool.num_envs).truncations.any() and pool.autoreset == "disabled":
                raise AssertionError("it ended before it failed")
    return raised.value


def recorded(
    env_fns: Any, directory: Path, make_action: Callable[[int], Any] = lambda i: i, *, seed: Any = 1, **options: Any
) -> CrashRecord:
    """Returns the record of the first failure in a pool with these options."""
    with recording(env_fns, directory, **options) as pool:
        pool.reset(seed=seed)
        return load_record(fail(pool, make_action).record)


def drawing(limit: float) -> Callable[..., Any]:
    """Returns a step hook that raises if the env draws less than `limit`, and ends the episode at random."""

    def step(env: Any, _: Any) -> Any:
        drawn = float(env.np_random.random())
        if drawn < limit:
            raise ValueError(f"drew {drawn}")
        return (env.observe(), 0.0, drawn > 0.8, False, {}) if drawn > 0.8 else None

    return step


def at_step(number: int, act: Callable[[], Any]) -> Callable[..., Any]:
    return lambda env, action: act() if env.steps == number else None


def broken() -> Any:
    raise ValueError("broken")


def failing_in_step_1() -> HookedEnv:
    return HookedEnv(step=at_step(1, broken))


class Picky(gymnasium.Env[Any, Any]):
    """Raises in the third step, with a text of all actions and draws."""

    observation_space = spaces.Discrete(2)
    action_space = spaces.Dict(
        flag=spaces.Discrete(2),
        force=spaces.Box(-np.inf, np.inf, (2,)),
        name=spaces.Text(9),
        bits=spaces.MultiBinary(2),
    )

    def __init__(self, tag: int = 0) -> None:
        self.seen: list[Any] = [tag]

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.seen += [options, self.np_random.random()]
        return 0, {}

    def step(self, action: Any) -> Any:
        self.seen.append([(key, type(value).__name__, str(value)) for key, value in action.items()])
        if len(self.seen) == 6:
            raise ValueError(str(self.seen))
        return 0, 0.0, False, False, {}


def make_record(directory: Path, step: Callable[..., Any] | None = None) -> Path:
    """Returns the record of a serial env with this step hook, which by default raises in step 2."""
    path = recorded(hooked(1, [0], step=step or at_step(2, broken)), directory, backend="serial").path
    assert path is not None
    return path


def restate(path: Path, changes: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Changes the texts and numbers of a record file. `changes` returns the changed ones."""
    with zipfile.ZipFile(path) as archive:
        stated = json.loads(archive.read("record.json"))
    rewrite(path, **{"record.json": json.dumps({**stated, **changes(stated)}).encode()})


def rewrite(path: Path, **members: bytes) -> None:
    """Replaces members of a record file."""
    with zipfile.ZipFile(path) as archive:
        old_members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in {**old_members, **members}.items():
            archive.writestr(name, data)
