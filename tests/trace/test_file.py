"""Trace files are written completely or not at all."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from remuda._trace.file import open_trace, written_whole


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_a_written_trace_can_be_read(name: str, tmp_path: Path) -> None:
    with written_whole(tmp_path / name) as file:
        file.write("[]")
    with open_trace(tmp_path / name) as file:
        assert file.read() == "[]"


def test_on_a_full_disk_the_old_file_remains_and_the_error_names_it(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text("old")
    with pytest.raises(OSError, match=r"No space left on device: '.*trace\.json'"), written_whole(path) as file:
        file.write("new")
        raise OSError(errno.ENOSPC, "No space left on device")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]
