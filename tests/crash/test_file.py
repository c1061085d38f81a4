"""Crash record files are untrusted: nothing in them runs or fills the memory, and errors name the problem."""

from __future__ import annotations

import io
import itertools
import os
import pickle
import stat
import zipfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawn import MINUTES
from pool_envs import HookedEnv, hooked
from replays import at_step, broken, fail, make_record, recorded, recording, replay, restate, rewrite

from remuda import RecordError, load_record
from remuda._crash import file as record_file

# -- trust -----------------------------------------------------------------------------------------------


class Malice:
    """Makes a directory when it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (self.path,)


@pytest.mark.parametrize("name", ["pickles/factory", "pickles/actions"])
def test_nothing_in_a_file_runs_without_trust(name: str, tmp_path: Path) -> None:
    path, marker = make_record(tmp_path), tmp_path / "marker"
    rewrite(path, **{name: pickle.dumps(Malice(str(marker)))})
    run = replay(path)
    assert run.exit_code == 2
    for text in ("exception in step, episode 0, step 2", "seed=1", "Discrete(1000)", "in broken", "Nothing was run"):
        assert text in run.stdout
    assert replay(path, "--factory", "pool_envs:CountingEnv").exit_code in (2, 3)
    assert not marker.exists()
    replay(path, "--trust")
    assert marker.exists()


def saved(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def test_arrays_of_objects_or_of_a_wrong_size_are_refused(tmp_path: Path) -> None:
    path = make_record(tmp_path)
    for data in (
        saved(np.array([Malice(str(tmp_path / "marker"))], object)),
        saved(np.zeros(100, np.uint8)).replace(b"(100,)", b"(999,)"),
    ):
        rewrite(path, **{"kinds.npy": data})
        assert "expected a crash record" in replay(path, "--trust").stderr
    assert not (tmp_path / "marker").exists()


ESCAPES = "\x1b[2J\x1b]0;owned\x07\x9b31m\r\u202eevil[red]"


def test_escape_sequences_in_a_file_never_reach_the_terminal(tmp_path: Path) -> None:
    """This holds for all that is shown, and for the error if the file is refused."""

    def escaped(stated: Any) -> Any:
        """Replaces the texts in a value."""
        if isinstance(stated, dict):
            return {name: escaped(value) for name, value in stated.items() if name not in ("format", "random")}
        return ESCAPES if isinstance(stated, str) else stated

    path = make_record(tmp_path)
    restate(path, escaped)
    rewrite(path, **{f"pickles/{ESCAPES}": b""})
    assert load_record(path).factory == ESCAPES
    runs = [replay(path), replay(path, "--factory", "pool_envs:CountingEnv"), replay(path, "--factory", ESCAPES)]
    restate(path, lambda _: {"sys_path": [{ESCAPES: 1}]})
    runs.append(replay(path))
    with pytest.raises(RecordError) as raised:
        load_record(path)
    restate(path, lambda _: {"version": ESCAPES})
    runs.append(replay(path))
    for shown_text in (str(raised.value), *(run.output for run in runs)):
        assert [c for c in shown_text if not c.isprintable() and c not in "\n\t"] == []
        assert shown_text.isspace() is False
    assert "\\x1b[2J" in runs[0].stdout and "evil[red]" in runs[0].stdout


# -- files -----------------------------------------------------------------------------------------------


def test_a_truncated_file_is_refused_and_one_with_a_flipped_bit_is_refused_or_read(tmp_path: Path) -> None:
    path = make_record(tmp_path)
    data = path.read_bytes()
    for size in [*range(0, len(data), 97), len(data) - 1]:
        path.write_bytes(data[:size])
        with pytest.raises(RecordError, match="expected a crash record, got"):
            load_record(path)
    refused = 0
    for at, bit in itertools.product(range(0, len(data), 1 if MINUTES else 7), (0x01, 0x80)):
        path.write_bytes(data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :])
        try:
            load_record(path)
        except RecordError:
            refused += 1
    assert refused > 20


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04", bytes(range(256)) * 8])
def test_a_file_that_is_no_record_is_refused(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(data)
    run = replay(tmp_path / "file")
    assert (run.exit_code, run.stderr.startswith("error: expected a crash record, got")) == (2, True)


def packed(sizes: dict[str, int], kind: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", kind) as archive:
        for name, size in sizes.items():
            archive.writestr(name, bytes(size))
    return file.getvalue()


BOMBS: dict[str, Any] = {
    "one part": ({"record.json": 10, "pickles/factory": 1 << 21},),
    "many parts": ({f"pickles/{i}": 1 << 19 for i in range(3)},),
    "text": ({"record.json": (1 << 16) + 1},),
    "too many parts": (dict.fromkeys(map(str, range(2000)), 1),),
    "another compression": ({"record.json": 10}, zipfile.ZIP_LZMA),
}


@pytest.fixture
def low_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lowers the limits, because files beyond the real ones would take long to write."""
    monkeypatch.setattr(record_file, "_LARGEST", 1 << 20)
    monkeypatch.setattr(record_file, "_LARGEST_TEXT", 1 << 16)
    monkeypatch.setattr(record_file, "_LONGEST", 1 << 12)


@pytest.mark.usefixtures("low_limits")
@pytest.mark.parametrize("bomb", BOMBS)
def test_a_small_file_that_unpacks_to_a_large_one_is_refused(bomb: str, tmp_path: Path, monkeypatch: Any) -> None:
    """The file is refused before it is unpacked."""
    (tmp_path / "file").write_bytes(packed(*BOMBS[bomb]))
    monkeypatch.setattr(zipfile.ZipFile, "read", lambda *_: pytest.fail("it was unpacked"))
    with pytest.raises(RecordError, match="expected a crash record, got"):
        load_record(tmp_path / "file")


def test_only_the_owner_can_read_a_record(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    request.addfinalizer(partial(os.umask, os.umask(0)))
    assert stat.S_IMODE(make_record(tmp_path).stat().st_mode) == 0o600


@pytest.mark.usefixtures("low_limits")
def test_very_long_texts_are_cut(tmp_path: Path) -> None:
    def raise_long_text() -> Any:
        raise ValueError("x" * (1 << 17) + " the end")

    fault = recorded(hooked(1, (0,), step=at_step(1, raise_long_text)), tmp_path, backend="serial").fault
    for text in (fault.message, fault.traceback):
        assert text.startswith("[cut] ...xx") and text.rstrip().endswith("xx the end")


@pytest.mark.usefixtures("low_limits")
def test_a_record_too_large_to_be_loaded_is_not_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ballast = bytes(1 << 20)
    with recording([lambda: (ballast, HookedEnv(step=at_step(1, broken)))[1]], tmp_path, start_method="fork") as pool:
        pool.reset()
        error = fail(pool)
    assert error.record is None
    assert "the crash record of env 0 could not be written: expected a file that unpacks to at most" in caplog.text
    assert list((tmp_path / "records").iterdir()) == []


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load_record(tmp_path / "file")
    assert replay(tmp_path / "file").exit_code == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "it is of version 2, and this remuda supports version 1"),
        ({"format": "cake"}, "says nothing of a remuda crash record"),
        ({"env_id": "one"}, "expected int, got 'one' at env_id"),
        ({"env_id": True}, "expected int, got True at env_id"),
        ({"fault": None}, "expected dict, got None at fault"),
        ({"fault": {}}, "expected str, got None at fault.kind"),
        ({"env_ids": ["a"]}, "expected int, got 'a' at env_ids"),
        ({"start": {"seed": "x"}}, "expected int or null, got 'x' at start.seed"),
        ({"start": {"pickled_options": "%"}}, "expected a crash record"),
        ({"sys_path": 3}, "expected list, got 3 at sys_path"),
    ],
)
def test_invalid_contents_are_refused(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = make_record(tmp_path)
    restate(path, lambda _: change)
    with pytest.raises(RecordError, match="expected") as raised:
        load_record(path)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("part", "change", "message"),
    [
        ("versions", {"python": "3.9.1"}, "was written by Python 3.9.1"),
        ("start", {"random": {}}, "expected"),
        ("start", {"random": {"bit_generator": "os.system"}}, "expected"),
        ("start", {"random": {"bit_generator": "PCG64", "state": "x"}}, "expected"),
    ],
)
def test_pickles_of_another_python_and_invalid_random_states_are_not_loaded(
    part: str, change: Any, message: str, tmp_path: Path
) -> None:
    path = make_record(tmp_path)
    restate(path, lambda stated: {part: {**stated[part], **change}})
    run = replay(path, "--trust")
    assert (run.exit_code, message in run.stderr) == (2, True), run.output
