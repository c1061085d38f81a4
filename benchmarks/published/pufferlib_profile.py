"""Runs PufferLib's own benchmark of vector envs unedited, also with remuda's classes in the place of its peers.

The source is `tests/test_performance.py` of PufferAI/PufferLib, at the commit in `SOURCE` (version 1.0). Its function
`profile_all` prints the rates of `profile_puffer`, `profile_gymnasium_vec` and `profile_sb3_vec`, one after another.
This script calls these functions in interleaved rounds, with the arguments of `profile_all`. A turn is one call. During
remuda's turns `gymnasium.vector.AsyncVectorEnv` and Stable-Baselines3's `SubprocVecEnv` are remuda's classes of these
names. The file is older than PufferLib 3: `for_version_3` adds what it needs of version 1, and changes nothing else.

`pufferlib`, `remuda` (its Gymnasium class) and `remuda-sb3` have a worker for each core. `pufferlib-1` has one, because
PufferLib's caller polls as well. `gymnasium`, `sb3` and the contenders `...-1-per-env` have a worker for each env. Envs
and actions are equal. The whole run takes about 25 minutes, because many processes start and import PyTorch.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import fetched
from fetched import Rates, Source, cells, columns
from harness.envs import WORKLOADS
from harness.options import parse_options
from harness.session import Session
from harness.tables import Block, conditions, table

import remuda.gymnasium
from remuda._system.cores import usable_cores

SOURCE = Source(
    "PufferAI/PufferLib",
    "e42d5c0d5e24e99f3250c02ecae682a0c6467d15",
    "tests/test_performance.py",
    "f899c67431d6dcbe35fb3ee94486bf40d7d16c95ce33f781497a70bc683026e5",
)
GYMNASIUM, SB3 = "gymnasium.vector", "stable_baselines3.common.vec_env"
CASES = {"12 CartPoles": 12, "48 CartPoles": 48}
"""The numbers of envs: the file calls `profile_all` with 48 CartPoles in a batch, and 12 in its version for laptops."""


def main() -> None:
    options = parse_options(__doc__, workloads=CASES, seconds=25.0, quick=5.0, rounds=5, more=SOURCE.add_option)
    file = load(options.source)
    session = Session(options)
    found = list(session.measured(options.only, lambda case: measure(CASES[case], file, session)))
    session.publish("published/pufferlib_profile", markdown(found, session), (rates for _, rates in found))


def load(given: Path | None) -> ModuleType:
    try:
        pufferlib = importlib.import_module("pufferlib")
        importlib.import_module("stable_baselines3")
    except ModuleNotFoundError as error:
        sys.exit(f"{error}: install benchmarks/requirements.txt and benchmarks/requirements-no-deps.txt")
    return for_version_3(pufferlib, SOURCE.fetch(given))


def for_version_3(pufferlib: ModuleType, source: Path) -> ModuleType:
    """Imports the file with four modules that PufferLib 3 no longer has; it uses only `Suppress` of them.

    PufferLib 3 returns one value more from ``recv`` than the file expects, the teacher's actions. They are dropped.
    """
    for name in ("utils", "exceptions", "environments", "environments.ocean"):
        sys.modules[f"pufferlib.{name}"] = ModuleType(f"pufferlib.{name}")
    sys.modules["pufferlib.environments"].ocean = sys.modules["pufferlib.environments.ocean"]  # type: ignore
    pufferlib.utils = sys.modules["pufferlib.utils"]  # type: ignore[attr-defined]
    pufferlib.utils.Suppress = contextlib.nullcontext
    file = fetched.import_file(source)
    make = file.make

    def make_for_version_1(*args: Any, **options: Any) -> Any:
        envs = make(*args, **options)
        reset, recv = envs.reset, envs.recv

        def reset_then_drop() -> None:
            reset()  # this calls `recv` of version 3
            envs.recv = lambda: (*(found := recv())[:4], *found[5:])

        envs.reset = reset_then_drop
        return envs

    file.make = make_for_version_1  # type: ignore[attr-defined]
    return file


def measure(num_envs: int, file: ModuleType, session: Session) -> Rates:
    seconds = session.options.seconds / session.options.rounds
    turns = {name: functools.partial(turn, file, num_envs, seconds) for name, turn in TURNS.items()}
    with contextlib.redirect_stdout(sys.stderr):  # the functions print their rates
        return session.rounds(f"{num_envs} CartPoles", turns)


def make_env(**options: Any) -> Any:
    """Builds the env in a worker, as PufferLib's own `env_creator` does."""
    emulation = importlib.import_module("pufferlib.emulation")
    return emulation.GymnasiumPufferEnv(env_creator=WORKLOADS["cartpole"]().make_env, **options)


# -- the turns: each returns env steps a second ---------------------------------------------------------------


def puffer(workers: int, file: ModuleType, num_envs: int, seconds: float) -> float:
    options = {"num_workers": min(workers, num_envs), "overwork": True}  # a worker for each logical core
    rate = file.profile_puffer(make_env, timeout=seconds, num_envs=num_envs, backend=file.Multiprocessing, **options)
    return float(rate)


def profile(function: str, file: ModuleType, num_envs: int, seconds: float) -> float:
    return float(getattr(file, function)(make_env, num_envs=num_envs, timeout=seconds))


def replaced(
    function: str, module: str, name: str, load_class: Callable[[], Any], **options: Any
) -> Callable[..., float]:
    """Returns a turn that calls the function while a class of the module is remuda's."""

    def turn(file: ModuleType, num_envs: int, seconds: float) -> float:
        with mock.patch.object(
            importlib.import_module(module), name, functools.partial(load_class(), log_advice=False, **options)
        ):
            return profile(function, file, num_envs, seconds)

    return turn


def gymnasium_class() -> Any:
    return remuda.gymnasium.AsyncVectorEnv


def sb3_class() -> Any:
    return importlib.import_module("remuda.sb3").SubprocVecEnv


OF_GYMNASIUM = ("profile_gymnasium_vec", GYMNASIUM, "AsyncVectorEnv", gymnasium_class)
OF_SB3 = ("profile_sb3_vec", SB3, "SubprocVecEnv", sb3_class)
TURNS: dict[str, Callable[..., float]] = {
    "pufferlib": functools.partial(puffer, usable_cores()),
    "pufferlib-1": functools.partial(puffer, 1),
    "gymnasium": functools.partial(profile, "profile_gymnasium_vec"),
    "sb3": functools.partial(profile, "profile_sb3_vec"),
    "remuda-1-per-env": replaced(*OF_GYMNASIUM),
    "remuda": replaced(*OF_GYMNASIUM, num_workers=usable_cores()),
    "remuda-sb3-1-per-env": replaced(*OF_SB3),
    "remuda-sb3": replaced(*OF_SB3, num_workers=usable_cores()),
}


def markdown(found: Sequence[tuple[str, Rates]], session: Session) -> Iterator[Block]:
    for _, first in found[:1]:
        yield table(["env steps/s", *columns(first)], ([case, *cells(rates)] for case, rates in found))
        yield conditions(session.options.rounds, session.options.seconds)


if __name__ == "__main__":
    main()
