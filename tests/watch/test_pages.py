"""The pages of `remuda top`, with made-up stats."""

from __future__ import annotations

from remuda import CallerStats, Durations, EnvStats, PoolStats, Setup, WorkerStats
from remuda._watch.keys import names_of
from remuda._watch.pages import View, details, headings, rows, summary


def stats() -> PoolStats:
    """Returns stats in which env 2 is slow and worker 1 has been in its step for 30 s."""
    seconds = [0.001, 0.002, 0.5, 0.003]
    envs = tuple(
        EnvStats(i, i // 2, Durations.of([each] * 10), Durations(), i, (float(i),), (i,))
        for i, each in enumerate(seconds)
    )
    workers = (
        WorkerStats(0, (0, 1), 100, 2.0, 20, 0.03),
        WorkerStats(1, (2, 3), None, 2.0, 20, 1.0, memory=3 << 20, doing="step", doing_env=2, doing_since=30.0),
    )
    return PoolStats(2.0, envs, workers, CallerStats(2.0, 10, 1.5, 0.1), 2, Setup((2, 2)))


def test_envs_are_sorted_by_any_column_in_both_directions() -> None:
    assert [row.env for row in rows(stats(), View())] == [2, 3, 1, 0]
    assert [row.env for row in rows(stats(), View(backwards=True))] == [0, 1, 3, 2]
    assert [row.env for row in rows(stats(), View(sort="env"))] == [0, 1, 2, 3]
    assert [row.env for row in rows(stats(), View(sort="return"))] == [3, 2, 1, 0]
    assert "p99v" in headings(View()) and "p99^" in headings(View(backwards=True))


def test_an_env_that_hangs_is_marked_with_its_duration() -> None:
    found = {row.env: row for row in rows(stats(), View())}
    assert [env for env, row in found.items() if row.is_late] == [2]
    assert found[2].texts[2] == "step 30 s" and found[3].texts[2] == "waits"  # the other env of its worker
    assert found[2].texts[3] == "5"  # steps per second


def test_workers_have_their_own_page() -> None:
    first, second = rows(stats(), View("workers", "busy"))
    assert (first.texts[:4], first.is_late) == (("1", "-", "2-3", "step 2 30 s"), True)
    assert (first.texts[5], first.texts[8], second.texts[1]) == ("50%", "3 MB", "100")


def test_keys_change_the_view() -> None:
    found, view = rows(stats(), View()), View()
    assert view.press("down", found).press("enter", found) == View(page="env", cursor=1, env=3)
    assert view.press("enter", found).press("escape", found) == View()
    assert view.press("up", found).cursor == 0
    assert View(cursor=3).press("down", found).cursor == 3
    assert view.press("s", found).sort == "reset" and view.press("S", found).sort == "step"
    assert view.press("w", found).press("s", found).sort == "CPU"
    assert view.press("r", found).backwards
    assert view.press("x", found) == view.press("enter", []) == view


def test_the_page_of_an_env_and_the_summary_have_their_figures() -> None:
    shown = dict(details(stats(), stats(), 2))
    assert shown["worker"] == "1" and shown["now"] == "step 30 s" and shown["last returns"] == "2"
    assert shown["steps"] == "10 (5 a second)" and shown["a reset"] == "-"
    shares, verdict = summary(stats())
    assert shares == "20 steps/s, 5 batches/s; 1/2 at work; waits 75%, gathers 5%, own code 20%"
    assert verdict == str(stats().verdict)


def test_keys_are_recognised_in_terminal_input() -> None:
    assert names_of(b"q\x1b[A\x1b[Bs\r\x1b\t") == ["q", "up", "down", "s", "enter", "escape", "tab"]
