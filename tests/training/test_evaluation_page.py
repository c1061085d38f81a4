"""The HTML page of an evaluation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from html_pages import Read

from remuda import CorruptReplyError, EnvProgress, Evaluation, Fault
from remuda._reports import page
from remuda._training import evaluation


def made(n: int = 4, **more: Any) -> Evaluation:
    """Returns an evaluation with seed 5. Its returns are 0, 1, 2 and so on."""
    returns = np.arange(n, dtype=float)
    lengths, nothing = returns.astype(np.int64) + 10, np.zeros(n, np.int64)
    return Evaluation(5, returns, lengths, returns % 2 == 0, np.arange(n), nothing, ({},) * n, **more)


def test_a_page_has_the_returns_and_lengths(tmp_path: Path) -> None:
    path = tmp_path / "new" / "page.html"
    result = made()
    result.to_html(path, title="mine & <theirs>")
    read = Read(path)
    read.check_self_contained()
    assert read.texts["h1"] == ["mine & <theirs>"]
    low, high = result.interval()
    summary_text = f"Mean return 1.5 in 4 episodes (95 %: {low:.6g} to {high:.6g}). Mean length 11.5. Seed 5."
    assert read.texts["p"][0] == summary_text
    assert len(read.of("svg")) == 2 and {"mean 1.5", "mean 11.5"} <= set(read.texts["text"])
    assert "return1.51.1180301.53" in read.texts["tr"]
    assert read.texts["tr"][-2:] == ["2212terminated20", "3313truncated30"]
    assert "python" in read.texts["pre"][-1]


def test_only_the_first_of_many_episodes_are_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(evaluation, "_MOST_ROWS", 3)
    made(5).to_html(tmp_path / "page.html")
    read = Read(tmp_path / "page.html")
    assert read.texts["tr"][-1].startswith("22")
    assert read.texts["summary"] == ["The first 3 to start; 2 more are not shown"]


def test_a_page_is_written_even_if_returns_are_nan(tmp_path: Path) -> None:
    result = made()
    result.returns[:] = np.nan
    result.to_html(tmp_path / "page.html")
    read = Read(tmp_path / "page.html")
    assert "Mean return nan" in read.texts["p"][0] and len(read.of("svg")) == 1


def test_videos_are_embedded_unless_they_are_large_or_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small, large, gone = (tmp_path / f"{name}.mp4" for name in ("small", "large", "gone"))
    small.write_bytes(b"abc")
    large.write_bytes(b"abcd")
    monkeypatch.setattr(page, "_LARGEST_VIDEO", 3)
    made(videos=(small, large, gone)).to_html(tmp_path / "page.html")
    read = Read(tmp_path / "page.html")
    assert [video["src"] for video in read.of("video")] == ["data:video/mp4;base64,YWJj"]
    assert {f"{large} (too large for this page)", f"{gone} (no longer there)"} <= set(read.texts["p"])


def test_the_page_lists_the_faults(tmp_path: Path) -> None:
    error = CorruptReplyError(worker=1, pid=7, exitcode=None, env_ids=[3], operation="<step>")
    fault = Fault(3, 1, "corrupt", "step", EnvProgress(3, 0, 1, None, 0), error)
    made(faults=(fault,)).to_html(tmp_path / "page.html")
    assert str(error) in Read(tmp_path / "page.html").texts["li"]
