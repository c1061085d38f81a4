"""The output of worker processes to stdout and stderr: its destination, its tail, and its limits."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pairs import each
from pool_envs import counting, hooked

from remuda import FaultPolicy, Pool, RestartLimitError, WorkerDiedError
from remuda._relay.output import KEPT

START_METHODS = ("forkserver", "spawn", "fork")


def outputs(pool: Pool) -> list[str]:
    return [worker.output() for worker in pool.workers]


def write_in_all_ways(env: Any) -> None:
    import ctypes

    print(f"print {env.tag}")
    sys.stderr.write("stderr\n")
    os.write(1, b"native out\n")
    os.write(2, b"native err\n")
    os.system("echo child")
    subprocess.run(["sh", "-c", "echo grandchild >&2 & wait"], check=True)
    ctypes.CDLL(None).printf(b"of C\n")
    ctypes.CDLL(None).fflush(None)


ALL_WAYS = "print {}\nstderr\nnative out\nnative err\nchild\ngrandchild\nof C\n"


# -- capture ---------------------------------------------------------------------------------------------


def test_output_of_python_native_code_and_children_is_captured(
    start_method: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    with Pool(
        hooked(3, (1,), build=write_in_all_ways), start_method=start_method, worker_output="capture", num_workers=None
    ) as pool:
        assert outputs(pool) == ["", ALL_WAYS.format(1), ""]
        pool.apply(write_in_all_ways, env_ids=[2])
        assert outputs(pool) == ["", ALL_WAYS.format(1), ALL_WAYS.format(2)]
    assert outputs(pool) == ["", ALL_WAYS.format(1), ALL_WAYS.format(2)]  # also after the pool was closed
    assert capfd.readouterr() == ("", "")


def test_a_limit_counts_characters_from_the_end() -> None:
    with Pool(counting(1), worker_output="capture", num_workers=None) as pool:
        worker = pool.workers[0]
        pool.apply(lambda env: print("née", end="", flush=True))  # Python's own streams would write whole lines only
        assert [worker.output(n) for n in (0, 1, 2, 3, 4, 99)] == ["", "e", "e", "ée", "née", "née"]
        assert worker.output(limit=1) == "e"
        pool.apply(lambda env: os.write(1, b"\xff\xfe"))
        assert worker.output() == "née\ufffd\ufffd"
        with pytest.raises(ValueError, match="expected limit to be at least 0, got -1"):
            worker.output(-1)
        with pytest.raises(TypeError, match="expected limit to be an int, got 1.5"):
            worker.output(1.5)  # type: ignore[arg-type]
    assert worker.output(3) == "e\ufffd\ufffd"  # also after the pool was closed


def test_characters_that_cannot_be_encoded_are_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    with Pool(counting(1), worker_output="capture", start_method="spawn", num_workers=None) as pool:
        pool.apply(lambda env: print("é \udc80"))
        assert pool.workers[0].output() == "é \\udc80\n"


def test_captured_output_stays_bounded() -> None:
    """Checks the memory of the captured output, and that its tail is readable."""

    def flood(env: Any) -> None:
        subprocess.run("yes 0123456 | head -c 8000000", shell=True, check=True)
        print("the end")

    with Pool(counting(1), worker_output="capture", num_workers=None) as pool:
        for _ in range(2):
            pool.apply(flood)
            while _memory_of_output(pool) > 2 * KEPT:  # the watchdog limits this loop
                pass
            tail = pool.workers[0].output(10**9)
            assert len(tail) == KEPT
            assert tail.endswith("0123456\nthe end\n")
            assert set(tail.splitlines()[1:-1]) == {"0123456"}


def _memory_of_output(pool: Pool) -> int:
    return os.stat(f"/proc/{pool.workers[0].pid}/fd/1").st_blocks * 512


def test_output_that_a_child_process_truncates_is_still_read() -> None:
    with Pool(counting(1), worker_output="capture", num_workers=None) as pool:
        pool.apply(lambda env: print("before, and long"))
        pool.apply(lambda env: subprocess.run("echo opened again > /dev/stderr", shell=True, check=True))
        assert pool.workers[0].output() == "opened again\n"
        pool.apply(lambda env: print("after"))
        assert pool.workers[0].output() == pool.workers[0].output_tail() + "\n" == "opened again\nafter\n"


# -- death -----------------------------------------------------------------------------------------------


LINES = [f"line {i}" for i in range(30)]


@pytest.mark.parametrize("phase", ["build", "step"])
@pytest.mark.parametrize(
    ("written", "reported"),
    [("\n".join(LINES) + "\n", "\n".join(LINES[10:])), ("x" * 1_000_000, "x" * 8192), ("", "")],
    ids=["the last lines", "the end of an endless line", "nothing"],
)
def test_a_death_report_has_the_last_output(written: str, reported: str, phase: str) -> None:
    def die(*_: Any) -> None:
        sys.stdout.write(written)  # no flush
        os.kill(os.getpid(), signal.SIGKILL)

    hooks: Any = {phase: die}
    with (
        pytest.raises(WorkerDiedError) as raised,
        Pool(hooked(2, **hooks), worker_output="capture", num_workers=None) as pool,
    ):
        pool.reset()
        pool.step([0, 0])
    assert raised.value.output == reported
    text = str(raised.value).partition("\n  its last output:\n    ")[2]
    assert text == reported.replace("\n", "\n    ")
    assert reported or "output" not in str(raised.value)


def test_the_last_lines_of_a_fault_stand_once(caplog: pytest.LogCaptureFixture) -> None:
    """With restarts the log has them; the info's fault and the error about the limit do not repeat them."""

    def die(env: Any, action: Any) -> None:
        print("line of the simulator", flush=True)
        os._exit(3)

    policy = FaultPolicy("restart", max_restarts=1, backoff=0)
    with Pool(hooked(2, step=die), worker_output="capture", faults=policy) as pool:
        pool.reset()
        fault = pool.step([0, 0]).infos[1]["fault"]
        assert fault.error.output == "line of the simulator"
        pool.step([0, 0])  # it resets the rebuilt env
        with pytest.raises(RestartLimitError) as raised:
            while True:
                pool.step([0, 0])
    for text in (str(fault), str(raised.value)):
        assert "it exited with code 3" in text
        assert "line of the simulator" not in text
    assert [record.getMessage().count("line of the simulator") for record in caplog.records] == [1, 1]
    assert pool.workers[1].output() == 2 * "line of the simulator\n"


# -- directories -----------------------------------------------------------------------------------------


@each(start_method=START_METHODS, as_path=[str, Path])
def test_a_directory_has_a_file_for_each_worker(
    start_method: Any, as_path: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is made if it is missing. Files that were there are continued."""
    monkeypatch.chdir(tmp_path)
    directory = Path("deep/logs")
    if as_path is str:
        (tmp_path / directory).mkdir(parents=True)
    for _ in range(2):
        with Pool(counting(2), start_method=start_method, worker_output=as_path(directory), num_workers=None) as pool:
            pool.apply(write_in_all_ways)
            assert outputs(pool) == [ALL_WAYS.format(0), ALL_WAYS.format(1)]  # its own alone
    assert (directory / "worker-0.log").read_text() == 2 * ALL_WAYS.format(0)
    assert (directory / "worker-1.log").read_text() == 2 * ALL_WAYS.format(1)
    assert len(list(directory.iterdir())) == 2


@pytest.mark.parametrize(
    ("obstacle", "error", "reason"),
    [
        ("file", FileExistsError, "File exists"),
        ("directory", IsADirectoryError, "Is a directory"),
        ("link", OSError, "symbolic links"),  # planted by another user with write access to the directory
        ("link to nothing", OSError, "symbolic links"),
    ],
)
def test_an_unusable_directory_is_refused_before_anything_starts(
    obstacle: str, error: type[OSError], reason: str, tmp_path: Path
) -> None:
    started, victim, where = (tmp_path / name for name in ("started", "victim", "logs"))
    if obstacle == "file":
        where.write_text("")
    elif obstacle == "directory":
        (where / "worker-1.log").mkdir(parents=True)
    else:
        where.mkdir()
        (where / "worker-1.log").symlink_to(victim)
    if obstacle == "link":
        victim.write_text("mine")
    before = os.listdir("/proc/self/fd")
    expected = (
        f"expected worker_output to be .* a directory that can be made and written to, got '{where}' \\(.*{reason}"
    )
    with pytest.raises(error, match=expected):
        Pool(hooked(2, (0, 1), build=lambda env: started.touch()), worker_output=where, num_workers=None)
    assert not started.exists()
    assert os.listdir("/proc/self/fd") == before
    assert (victim.read_text() if victim.exists() else "") == ("mine" if obstacle == "link" else "")


# -- arguments and leftovers -----------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["thread", "serial"])
def test_workers_without_a_process_have_no_output_of_their_own(backend: Any, tmp_path: Path) -> None:
    for kind in ("capture", tmp_path):
        with pytest.raises(ValueError, match=f"expected worker_output='inherit' for backend='{backend}', got .*"):
            Pool(counting(1), backend=backend, worker_output=kind, num_workers=None)
    with Pool(counting(1), backend=backend, worker_output="inherit", num_workers=None) as pool:
        assert outputs(pool) == [""]
        with pytest.raises(ValueError, match="at least 0"):
            pool.workers[0].output(-1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("bad", "error"), [(None, TypeError), (3, TypeError), (b"logs", TypeError), ("", ValueError)])
def test_invalid_values_of_worker_output_are_refused(bad: Any, error: Any) -> None:
    with pytest.raises(error, match="expected worker_output to be 'inherit', 'capture' or a directory, got "):
        Pool(counting(1), worker_output=bad)


def test_num_workers_auto_measures_without_output(capfd: pytest.CaptureFixture[str]) -> None:
    build = lambda env: print("hello")  # noqa: E731
    with Pool(hooked(2, (0, 1), build=build), num_workers="auto", worker_output="capture") as pool:
        assert re.fullmatch("hello\n(hello\n)?", pool.workers[0].output())
    assert capfd.readouterr() == ("", "")
