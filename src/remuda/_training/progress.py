"""Progress bars, for what takes longer than somebody likes to wait without a word."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

Progress: TypeAlias = Callable[[], None]  # one more is done


@contextmanager
def shown_progress(episodes: int) -> Iterator[Progress]:
    """A bar on stderr, while the block runs.

    Raises:
        ImportError: rich is not installed.
    """
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as Bars
    except ModuleNotFoundError as missing:
        raise ImportError(
            "progress=True needs rich, which is not installed: pip install rich", name="rich"
        ) from missing
    columns = (TextColumn("episodes"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Bars(*columns, console=Console(stderr=True)) as bars:
        task = bars.add_task("", total=episodes)
        yield lambda: bars.advance(task)


@contextmanager
def hidden_progress(_: int) -> Iterator[Progress]:
    yield lambda: None
