"""What `remuda top` shows of a pool that is being started, as texts."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from remuda._engine.stats.durations import span
from remuda._watch.owner import name_of
from remuda._watch.pages import Row
from remuda._watch.starting_pool import StartingPool, state_of
from remuda._wire.build_board import EnvBuild

HEADINGS = ("env", "worker", "pid", "state", "takes")
_LATE = 3  # times as long as the slowest that is built: then an env is marked
_LEAST_LATE = 1.0  # seconds


def title(pool: StartingPool) -> str:
    """How many envs, where."""
    card = pool.card
    num_envs, num_workers = sum(card.envs_of_worker), len(card.envs_of_worker)
    return f"{num_envs} envs in {num_workers} {card.backend} workers, being started"


def summary(pool: StartingPool, builds: Sequence[EnvBuild]) -> list[str]:
    """What is told above the table, one line each."""
    built = sum(build.is_built for build in builds)
    under_way = [build for build in builds if build.seconds is not None and not build.is_built]
    since = span((time.monotonic_ns() - pool.card.begin) / 1e9)
    first = f"{built} of {len(builds)} envs are built, {len(under_way)} are being built, for {since} so far"
    if under_way:
        slowest = under_way[0]
        where = f"remuda stacks {pool.card.owner} shows where it is"
        return [first, f"env {slowest.env_id} has been in its factory for {span(slowest.seconds or 0.0)}: {where}"]
    return [first, "" if built else "its workers are being started: they import what they need first"]


def rows(builds: Sequence[EnvBuild]) -> list[Row]:
    """Of the table: those that are being built first, the longest ahead."""
    slowest = max((build.seconds or 0.0 for build in builds if build.is_built), default=float("inf"))
    late = max(_LEAST_LATE, _LATE * slowest)
    return [Row(build.env_id, _texts(build), not build.is_built and (build.seconds or 0.0) > late) for build in builds]


def _texts(build: EnvBuild) -> tuple[str, ...]:
    takes = "-" if build.seconds is None else span(build.seconds)
    return str(build.env_id), str(build.worker), str(build.pid or "-"), state_of(build), takes


def dump(pool: StartingPool) -> dict[str, Any]:
    """All of it, as JSON has it."""
    return {"name": name_of(pool.card), "pid": pool.card.owner, "starting": [vars(build) for build in pool.builds()]}
