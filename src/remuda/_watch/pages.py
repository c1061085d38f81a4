"""What `remuda top` shows: its pages as tables of texts, made of two snapshots. It knows no terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from remuda._engine.stats.durations import Durations, span
from remuda._engine.stats.pool_stats import PoolStats
from remuda._engine.stats.snapshot import EnvStats, WorkerStats


@dataclass(frozen=True)
class View:
    """What the user has chosen to see.

    Attributes:
        page: "envs", "workers", or "env" for one alone.
        sort: The heading of the column that rows are sorted by, the largest first.
        backwards: The smallest first.
        cursor: The row that is marked, counted from 0.
        env: Of the page of one.
    """

    page: str = "envs"
    sort: str = "p99"
    backwards: bool = False
    cursor: int = 0
    env: int = 0

    def press(self, key: str, rows: Sequence[Row]) -> View:
        """What a key makes of it. `rows`: that are shown."""
        changed = self
        match key:
            case "e":
                changed = View()
            case "w":
                changed = View("workers", "busy")
            case "s" | "S" if self.page != "env":
                columns = [column.heading for column in _COLUMNS[self.page]]
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
    """One line of a table.

    Attributes:
        env: That it is of; of a worker its first.
        texts: One for each column.
        is_late: Whether it is to be marked: it is in one call for long, or gone.
    """

    env: int
    texts: tuple[str, ...]
    is_late: bool = False


@dataclass(frozen=True)
class Line:
    """What a row is made of.

    Attributes:
        env, worker: That it is of, with the worker that hosts it; no env for rows of workers.
        rate: Steps a second of late.
        late: Whether it has been in one call for much longer than is usual.
    """

    env: EnvStats | None
    worker: WorkerStats
    rate: float
    late: bool

    @property
    def state(self) -> str:
        """In a word or two."""
        worker = self.worker
        is_its = self.env is None or worker.doing_env in (None, self.env.env_id)
        if worker.doing is None or not is_its:
            return "waits"
        whose = f" {worker.doing_env}" if self.env is None and worker.doing_env is not None else ""
        return f"{worker.doing}{whose} {span(worker.doing_since)}"


@dataclass(frozen=True)
class Column:
    """Of a table: its heading, what it shows, and what rows are sorted by."""

    heading: str
    show: Callable[[Line], str]
    key: Callable[[Line], float | str]


def _env(line: Line) -> EnvStats:
    assert line.env is not None  # in the table of envs
    return line.env


_ENV_COLUMNS = (
    Column("env", lambda line: str(_env(line).env_id), lambda line: -_env(line).env_id),
    Column("worker", lambda line: str(line.worker.index), lambda line: -line.worker.index),
    Column("state", lambda line: line.state, lambda line: line.worker.doing_since if line.state != "waits" else -1.0),
    Column("steps/s", lambda line: f"{line.rate:,.0f}", lambda line: line.rate),
    Column("step", lambda line: _span(_env(line).step.mean), lambda line: _env(line).step.mean),
    Column("p99", lambda line: _span(_env(line).step.p99), lambda line: _env(line).step.p99),
    Column("reset", lambda line: _span(_env(line).reset.mean), lambda line: _env(line).reset.mean),
    Column("episodes", lambda line: str(_env(line).episodes), lambda line: _env(line).episodes),
    Column("return", lambda line: _mean(_env(line).returns), lambda line: fmean(_env(line).returns or (0.0,))),
    Column("faults", lambda line: str(_env(line).faults), lambda line: _env(line).faults),
)
_WORKER_COLUMNS = (
    Column("worker", lambda line: str(line.worker.index), lambda line: -line.worker.index),
    Column("pid", lambda line: str(line.worker.pid or "-"), lambda line: -(line.worker.pid or 0)),
    Column("envs", lambda line: _range(line.worker.env_ids), lambda line: len(line.worker.env_ids)),
    Column("state", lambda line: line.state, lambda line: line.worker.doing_since if line.state != "waits" else -1.0),
    Column("steps/s", lambda line: f"{line.rate:,.0f}", lambda line: line.rate),
    Column("busy", lambda line: _share(line.worker.busy, line), lambda line: line.worker.busy),
    Column("CPU", lambda line: _share(line.worker.cpu, line), lambda line: line.worker.cpu),
    Column("queued", lambda line: _share(line.worker.queued, line), lambda line: line.worker.queued),
    Column("memory", lambda line: _megabytes(line.worker.memory), lambda line: line.worker.memory or 0),
    Column("restarts", lambda line: str(line.worker.restarts), lambda line: line.worker.restarts),
)
_COLUMNS = {"envs": _ENV_COLUMNS, "workers": _WORKER_COLUMNS, "env": _ENV_COLUMNS}
_LATE = 20  # times its p99: then an env is marked
_LEAST_LATE = 1.0  # seconds


def headings(view: View) -> list[str]:
    """Of the columns of the table; the one that it is sorted by is marked."""
    mark = "^" if view.backwards else "v"
    return [f"{column.heading}{mark * (column.heading == view.sort)}" for column in _COLUMNS[view.page]]


def rows(stats: PoolStats, view: View) -> list[Row]:
    """Of the table, in order. `stats`: of late, a difference."""
    columns = _COLUMNS[view.page]
    key = next(column.key for column in columns if column.heading == view.sort)
    lines = sorted(_lines(stats, view), key=key, reverse=not view.backwards)
    return [_row(line, columns) for line in lines]


def _lines(stats: PoolStats, view: View) -> list[Line]:
    seconds = max(stats.seconds, 1e-9)
    if view.page == "workers":
        return [Line(None, worker, worker.steps / seconds, _is_late(worker, stats)) for worker in stats.workers]
    envs = [env for env in stats.envs if view.page == "envs" or env.env_id == view.env]
    workers = [stats.workers[env.worker] for env in envs]
    return [
        Line(env, worker, env.steps / seconds, worker.doing_env == env.env_id and _is_late(worker, stats))
        for env, worker in zip(envs, workers, strict=True)
    ]


def _is_late(worker: WorkerStats, stats: PoolStats) -> bool:
    if worker.doing is None:
        return False
    usual = stats.reset if worker.doing == "reset" else stats.step
    return worker.doing_since > max(_LEAST_LATE, _LATE * usual.p99)


def _row(line: Line, columns: Sequence[Column]) -> Row:
    env = line.worker.env_ids[0] if line.env is None else line.env.env_id
    return Row(env, tuple(column.show(line) for column in columns), line.late)


def summary(stats: PoolStats) -> list[str]:
    """What is told above the table, one line each. `stats`: of late."""
    caller, whole = stats.caller, max(stats.seconds, 1e-9)
    shares = [f"{name} {part / whole:.0%}" for name, part in _shares(stats).items()]
    busy = sum(worker.doing is not None for worker in stats.workers)
    return [
        f"{stats.steps_per_second:,.0f} steps/s, {caller.batches / whole:,.0f} batches/s; "
        f"{busy}/{len(stats.workers)} at work; {', '.join(shares)}",
        str(stats.verdict),
    ]


def stopped(pid: int) -> list[str]:
    """The same of a program that is at a halt, whose figures tell nothing of what it does."""
    return ["the program is stopped: by SIGSTOP, Ctrl-Z or a debugger", f"kill -CONT {pid} lets it go on"]


def _shares(stats: PoolStats) -> dict[str, float]:
    caller = stats.caller
    unpickles = {"unpickles": caller.unpickling} if caller.unpickling else {}
    return {"waits": caller.waiting, "gathers": caller.gathering, **unpickles, "own code": caller.own}


def details(stats: PoolStats, so_far: PoolStats, env_id: int) -> list[tuple[str, str]]:
    """The page of one env: names and values. `so_far`: since the beginning."""
    env = next(env for env in so_far.envs if env.env_id == env_id)
    late = next(env for env in stats.envs if env.env_id == env_id)
    worker = so_far.workers[env.worker]
    doing = Line(env, worker, 0.0, late=False).state
    return [
        ("worker", f"{worker.index} (pid {worker.pid})" if worker.pid else str(worker.index)),
        ("now", doing),
        ("steps", f"{env.steps:,} ({late.steps / max(stats.seconds, 1e-9):,.0f} a second)"),
        ("a step", _durations(late.step)),
        ("a reset", _durations(late.reset)),
        ("episodes", f"{env.episodes:,}"),
        ("last returns", ", ".join(f"{value:.4g}" for value in env.returns[-8:]) or "-"),
        ("last lengths", ", ".join(map(str, env.lengths[-8:])) or "-"),
        ("faults", str(env.faults)),
        ("restarts of its worker", str(worker.restarts)),
    ]


def _durations(durations: Durations) -> str:
    values = {name: getattr(durations, name) for name in ("mean", "p50", "p99", "max")}
    return ", ".join(f"{name} {span(value)}" for name, value in values.items()) if any(values.values()) else "-"


def _span(seconds: float) -> str:
    return span(seconds) if seconds else "-"


def _mean(values: Sequence[float]) -> str:
    return f"{fmean(values):.4g}" if values else "-"


def _share(seconds: float, line: Line) -> str:
    return f"{min(1.0, seconds / max(line.worker.seconds, 1e-9)):.0%}"


def _megabytes(memory: int | None) -> str:
    return "-" if memory is None else f"{memory / 2**20:.0f} MB"


def _range(ids: Sequence[int]) -> str:
    return str(ids[0]) if len(ids) == 1 else f"{ids[0]}-{ids[-1]}"
