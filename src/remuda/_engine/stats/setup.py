"""Describes how a pool was made, and writes the code that verdicts suggest: the pool with other options."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

_SPLIT = """\
halves = pool.split(2)
for half in halves:
    half.send_reset()
while True:
    for half in halves:
        batch = half.recv()
        half.send(policy(batch.obs))"""


_SLIM = """\
class Slim(gymnasium.Wrapper):
    def step(self, action):
        obs, reward, terminated, truncated, info = self.env.step(action)
        info.pop({key}, None)
        return obs, reward, terminated, truncated, info


{made}"""


@dataclass(frozen=True)
class Setup:
    """The options of a pool, and other facts about it, that its figures and verdicts depend on.

    Attributes:
        envs_of_worker: The number of envs of each worker, the spares last.
        backend, autoreset, spares, resets_ahead, vector_size: Those of the pool.
        is_chosen: Whether "auto" has chosen the number of workers, or envs that render leave no choice.
        parts: The number of parts of the pool.
        options: Names and values, as code, of the options that the caller has given.
        keeps_apart: Whether the options require separate workers for envs: then fewer workers are never suggested.
        needs_processes: Whether the options require worker processes: then a verdict never suggests that the caller
            steps the envs.
        make, spare, split, partial, slim: Templates of the code that a verdict suggests: make the pool with other
            options, have spare envs, step one half while a policy acts for the other, continue with the envs that are
            done, leave a key out of infos. Empty if there is no such code.
    """

    envs_of_worker: tuple[int, ...]
    backend: Literal["process", "thread", "serial", "auto"] = "process"
    autoreset: str = "next_step"
    spares: int = 0
    resets_ahead: bool = False
    vector_size: int | None = None
    is_chosen: bool = False
    parts: int = 1
    options: tuple[tuple[str, str], ...] = ()
    keeps_apart: bool = False
    needs_processes: bool = False
    make: str = "pool = remuda.Pool({env_fns}, {options})"
    spare: str = "pool = remuda.Pool(env_fns + env_fns[:1] * {spares}, spares={spares}, {options})"
    split: str = _SPLIT
    partial: str = "pool.send(policy(batch.obs), batch.env_ids)\nbatch = pool.recv(min_envs={enough})"
    slim: str = _SLIM

    @property
    def num_envs(self) -> int:
        """The number of envs without spares."""
        return sum(self.envs_of_worker) - self.spares

    @property
    def num_workers(self) -> int:
        """The number of workers, those of spares included."""
        return len(self.envs_of_worker)


def hosted_ids(envs_of_worker: Sequence[int], first: int = 0) -> list[tuple[int, ...]]:
    """Returns the ids of each worker's envs. Ids begin at `first`, and envs with neighbouring ids share a worker."""
    starts = accumulate(envs_of_worker, initial=first)
    return [tuple(range(start, start + count)) for start, count in zip(starts, envs_of_worker, strict=False)]


# -- code --------------------------------------------------------------------------------------------------


def made(setup: Setup, env_fns: str = "env_fns", **changes: str | None) -> str:
    """Returns code that makes the pool with changed options. `changes`: code by option; None leaves an option out."""
    return _filled(setup, setup.make.replace("{env_fns}", env_fns), changes)


def with_spares(setup: Setup, spares: int) -> str | None:
    """Returns code that makes the pool with spares and a worker for each env; None if it can have no spares."""
    if not setup.spare or "max_concurrency" in dict(setup.options):
        return None
    return _filled(setup, setup.spare.replace("{spares}", str(spares)), {"num_workers": None})


def partial(setup: Setup, enough: int) -> str | None:
    """Returns code that receives a batch once `enough` envs are done; None if there is no such code."""
    return setup.partial.replace("{enough}", str(enough)) or None


def without_info(setup: Setup, key: str) -> str | None:
    """Returns code that makes the pool without this key in infos; None if envs are not single Gymnasium envs."""
    if not setup.slim or setup.vector_size is not None:
        return None
    factories = "[lambda make=make: Slim(make()) for make in env_fns]"
    return setup.slim.replace("{key}", json.dumps(key)).replace("{made}", made(setup, factories))


def _filled(setup: Setup, template: str, changes: Mapping[str, str | None]) -> str:
    options = {**dict(setup.options), **changes}
    text = ", ".join(f"{name}={code}" for name, code in options.items() if code is not None)
    return template.replace(", {options}", f", {text}" if text else "").replace("{options}", text)
