"""Makes the texts of the pages of `remuda top` from snapshots, without a terminal."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from statistics import fmean

from remuda._engine.stats.durations import Durations, span
from remuda._engine.stats.pool_stats import PoolStats
from remuda._engine.stats.snapshot import EnvStats, WorkerStats

_KEYS = "q quit  e envs  w workers  s S r sort  up down enter env  tab next pool  j JSON"
_HEADINGS = {
    "envs": ("env", "worker", "state", "steps/s", "step", "p99", "reset", "episodes", "return", "faults"),
    "workers": ("worker", "pid", "envs", "state", "steps/s", "busy", "CPU", "queued", "memory", "restarts"),
}
_LATE = 20  # an env is late if its call takes longer than this multiple of its p99.
_LEAST_LATE = 1.0  # a call of fewer seconds is never late


@dataclass(frozen=True)
class View:
    """The user's choices: the page, the order of its rows, and the marked row."""

    page: str = "envs"  # the page: "envs", "workers", or "env" for a single env.
    sort: str = "p99"  # the heading of the column by which rows are sorted, with the largest value first
    backwards: bool = False
    cursor: int = 0  # the index of the marked row.
    env: int = 0  # the env that the page "env" shows

    def press(self, key: str, rows: Sequence[Row]) -> View:
        """Returns the view after the user has pressed a key. `rows` are the rows that are shown now."""
        changed = self
        match key:
            case "e":
                changed = View()
            case "w":
                changed = View("workers", "busy")
            case "s" | "S" if self.page != "env":
                columns = _HEADINGS[self.page]
                step = 1 if key == "s" else -1
                changed = replace(self, sort=columns[(columns.index(self.sort) + step) % len(columns)])
            case "r":
                changed = replace(self, backwards=not self.backwards)
            case "up" | "down":
                moved = self.cursor + (1 if key == "down" else -1)
                changed = replace(self, cursor=min(max(0, moved), max(0, len(rows) - 1)))
            case "enter" if self.page != "env" and rows:
                changed = replace(self, page="env", env=rows[min(self.cursor, len(rows) - 1)].env)
            case "escape" if self.page == "env":
                changed = View()
        return changed


@dataclass(frozen=True)
class Row:
    """One line of a table, about an env or about a worker."""

    env: int  # the row's env; in the row of a worker, its first env.
    texts: tuple[str, ...]  # the text for each column.
    is_late: bool = False  # whether the current call takes much longer than usual.
    values: tuple[float, ...] = ()  # the value for each column by which rows are sorted


@dataclass(frozen=True)
class Page:
    """The contents of a screen: a table of envs or workers, or one env."""

    summary: tuple[str, str]  # the two lines at the top of the screen.
    keys: str  # the last line on the screen, which lists the keys
    headings: Sequence[str] = ()
    rows: Sequence[Row] = ()
    env: int | None = None  # the env that is shown instead of the table.
    facts: Sequence[tuple[str, str]] = ()  # names and values about that env.
    output: str | None = None  # the end of the env's worker's output; None if it is not kept


def open_page(so_far: PoolStats, late: PoolStats, view: View) -> Page:
    """Returns the page of an open pool. `so_far` has the figures since its start, `late` those of the last seconds."""
    if view.page != "env":
        return Page(summary(late), _KEYS, headings(view), rows(late, view))
    worker = so_far.workers[next(env.worker for env in so_far.envs if env.env_id == view.env)]
    facts = details(late, so_far, view.env)
    return Page(summary(late), _KEYS, env=view.env, facts=facts, output=output_of(worker.pid))


def headings(view: View) -> list[str]:
    """Returns the headings of a table. The heading of the sorted column is marked."""
    mark = "^" if view.backwards else "v"
    return [f"{heading}{mark * (heading == view.sort)}" for heading in _HEADINGS[view.page]]


def rows(stats: PoolStats, view: View) -> list[Row]:
    """Returns the sorted rows of a table. `stats` is the difference of two snapshots."""
    if view.page == "workers":
        found = [_row_of_worker(worker, stats) for worker in stats.workers]
    else:
        found = [_row_of_env(env, stats) for env in stats.envs]
    column = _HEADINGS[view.page].index(view.sort)
    return sorted(found, key=lambda row: row.values[column], reverse=not view.backwards)


def _row_of_env(env: EnvStats, stats: PoolStats) -> Row:
    worker, rate = stats.workers[env.worker], env.steps / _seconds(stats)
    is_late = worker.doing_env == env.env_id and _is_late(worker, stats)
    return _row(
        env.env_id,
        is_late,
        (str(env.env_id), -env.env_id),
        (str(worker.index), -worker.index),
        _state(worker, env.env_id),
        (f"{rate:,.0f}", rate),
        (_span(env.step.mean), env.step.mean),
        (_span(env.step.p99), env.step.p99),
        (_span(env.reset.mean), env.reset.mean),
        (str(env.episodes), env.episodes),
        (f"{fmean(env.returns):.4g}" if env.returns else "-", fmean(env.returns or (0.0,))),
        (str(env.faults), env.faults),
    )


def _row_of_worker(worker: WorkerStats, stats: PoolStats) -> Row:
    ids, rate = worker.env_ids, worker.steps / _seconds(stats)
    return _row(
        ids[0],
        _is_late(worker, stats),
        (str(worker.index), -worker.index),
        (str(worker.pid or "-"), -(worker.pid or 0)),
        (str(ids[0]) if len(ids) == 1 else f"{ids[0]}-{ids[-1]}", len(ids)),
        _state(worker),
        (f"{rate:,.0f}", rate),
        *(
            (f"{min(1.0, part / max(worker.seconds, 1e-9)):.0%}", part)
            for part in (worker.busy, worker.cpu, worker.queued)
        ),
        ("-" if worker.memory is None else f"{worker.memory / 2**20:.0f} MB", worker.memory or 0),
        (str(worker.restarts), worker.restarts),
    )


def _row(env: int, is_late: bool, *cells: tuple[str, float]) -> Row:
    """Makes a row from `cells`: for each column its text, and the value by which rows are sorted."""
    texts, values = zip(*cells, strict=True)
    return Row(env, texts, is_late, values)


def _state(worker: WorkerStats, env: int | None = None) -> tuple[str, float]:
    """Returns the state of a worker or of one of its envs: a text, and the seconds since the state began."""
    if worker.doing is None or (env is not None and worker.doing_env not in (None, env)):
        return "waits", -1.0
    number = f" {worker.doing_env}" if env is None and worker.doing_env is not None else ""
    return f"{worker.doing}{number} {span(worker.doing_since)}", worker.doing_since


def _is_late(worker: WorkerStats, stats: PoolStats) -> bool:
    if worker.doing is None:
        return False
    usual = stats.reset if worker.doing == "reset" else stats.step
    return worker.doing_since > max(_LEAST_LATE, _LATE * usual.p99)


def summary(stats: PoolStats) -> tuple[str, str]:
    """Returns the two lines above a table: rates and time shares; verdict. `stats`: a difference of snapshots."""
    caller, whole = stats.caller, _seconds(stats)
    parts = {"waits": caller.waiting, "gathers": caller.gathering}
    parts |= {"unpickles": caller.unpickling} if caller.unpickling else {}
    shares = [f"{name} {part / whole:.0%}" for name, part in (parts | {"own code": caller.own}).items()]
    busy = sum(worker.doing is not None for worker in stats.workers)
    rates = f"{stats.steps_per_second:,.0f} steps/s, {caller.batches / whole:,.0f} batches/s"
    return f"{rates}; {busy}/{len(stats.workers)} at work; {', '.join(shares)}", str(stats.verdict)


def details(late: PoolStats, so_far: PoolStats, env_id: int) -> list[tuple[str, str]]:
    """Returns names and values about one env, from the last seconds (`late`) and since the pool was made (`so_far`)."""
    env = next(env for env in so_far.envs if env.env_id == env_id)
    recent = next(env for env in late.envs if env.env_id == env_id)
    worker = so_far.workers[env.worker]
    return [
        ("worker", f"{worker.index} (pid {worker.pid})" if worker.pid else str(worker.index)),
        ("now", _state(worker, env_id)[0]),
        ("steps", f"{env.steps:,} ({recent.steps / _seconds(late):,.0f} a second)"),
        ("a step", _durations(recent.step)),
        ("a reset", _durations(recent.reset)),
        ("episodes", f"{env.episodes:,}"),
        ("last returns", ", ".join(f"{value:.4g}" for value in env.returns[-8:]) or "-"),
        ("last lengths", ", ".join(map(str, env.lengths[-8:])) or "-"),
        ("faults", str(env.faults)),
        ("restarts of its worker", str(worker.restarts)),
    ]


def output_of(pid: int | None, limit: int = 1 << 13) -> str | None:
    """Returns the end of a worker's output. Returns None if the output does not go to a file or to memory."""
    if pid is None:
        return None
    with suppress(OSError):
        fd = os.open(f"/proc/{pid}/fd/1", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if stat.S_ISREG(os.fstat(fd).st_mode):
                size = os.fstat(fd).st_size
                return os.pread(fd, limit, max(0, size - limit)).decode(errors="replace")
        finally:
            os.close(fd)
    return None


def _seconds(stats: PoolStats) -> float:
    return max(stats.seconds, 1e-9)


def _durations(durations: Durations) -> str:
    values = {name: getattr(durations, name) for name in ("mean", "p50", "p99", "max")}
    return ", ".join(f"{name} {span(value)}" for name, value in values.items()) if any(values.values()) else "-"


def _span(seconds: float) -> str:
    return span(seconds) if seconds else "-"
