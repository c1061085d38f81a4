"""The hidden folder in which videos are made is removed with its owner, even if the owner is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from videos.test_record_video import Gray, Mortal, names, of_length, play

from remuda import EnvError, FaultPolicy, Pool, WorkerDiedError, evaluate, record_video

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="worker processes need Linux")

PROGRAM = f"""
import sys, time
sys.path[:0] = {[str(Path(__file__).parent), str(Path(__file__).parents[1])]!r}
from test_record_video import of_length, play
from remuda import Pool, record_video
pool = Pool(record_video(of_length(2, 9), sys.argv[1], envs=2, episode_trigger=1), num_workers=2)
play(pool, 4)
print("recorded", flush=True)
sys.stdin.read()
"""


def scratch_in(folder: Path) -> list[Path]:
    return sorted(folder.glob(".remuda-*"))


def begin_to_record(folder: Path) -> subprocess.Popen[str]:
    """Starts a program that records episodes and then waits."""
    command = [sys.executable, "-c", PROGRAM, str(folder)]
    program = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert program.stdout is not None and program.stdout.readline() == "recorded\n"
    return program


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_folder_of_a_killed_program_is_removed_by_the_next_one(tmp_path: Path, number: int) -> None:
    with begin_to_record(tmp_path) as killed, begin_to_record(tmp_path) as running:
        both = scratch_in(tmp_path)
        killed.send_signal(number)
        killed.wait()
        record_video(of_length(1), tmp_path)
        mine = [scratch for scratch in scratch_in(tmp_path) if scratch not in both]
        assert len(mine) == 1 and len(scratch_in(tmp_path)) == 2  # the folder of the running program remains
        running.communicate()
        assert running.returncode == 0
    assert scratch_in(tmp_path) == mine


def test_a_folder_with_an_unknown_owner_remains(tmp_path: Path) -> None:
    for name in (".remuda-abcdefgh", ".remuda-1-1-00000000-abcdefgh", ".remuda-x-1"):
        (tmp_path / name).mkdir()
    record_video(of_length(1), tmp_path)
    assert len(scratch_in(tmp_path)) == 4


def test_the_end_of_a_forked_child_does_not_remove_the_folder(tmp_path: Path) -> None:
    code = """
import os, sys
from remuda import record_video
record_video([object], sys.argv[1])
if os.fork() == 0:
    sys.exit()
os.wait()
print(len(os.listdir(sys.argv[1])))
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout == "1\n" and scratch_in(tmp_path) == []


def test_a_killed_worker_leaves_nothing_beside_the_videos(tmp_path: Path) -> None:
    env_fns = record_video([lambda: Mortal(tmp_path / "died")], tmp_path / "videos", episode_trigger=1)
    with Pool(env_fns, autoreset="same_step", faults=FaultPolicy("restart", backoff=0)) as pool:
        play(pool, 20)
    (scratch,) = scratch_in(tmp_path / "videos")
    left = sorted(path.name for path in scratch.iterdir())
    assert len(names(tmp_path / "videos")) > 3
    assert left == ["closed-0", "count-0", "settled"]  # always these three files, however many episodes were recorded


def test_an_episode_without_a_video_leaves_no_files(tmp_path: Path) -> None:
    (tmp_path / "remuda-episode-0.mp4").mkdir()
    with Pool(record_video(of_length(1), tmp_path, episode_trigger=1), backend="serial") as pool:
        play(pool, 4)
    (scratch,) = scratch_in(tmp_path)
    assert sorted(path.name for path in scratch.iterdir()) == ["closed-0", "count-0", "settled"]


def act(obs: Any) -> Any:
    return np.zeros(len(obs), int)


def broken(_: Any) -> Any:
    raise KeyError("policy")


@pytest.mark.parametrize("backend", ["process", "thread", "serial"])
def test_a_failed_evaluation_leaves_no_folder(tmp_path: Path, backend: Any) -> None:
    with pytest.raises(KeyError):
        evaluate(broken, of_length(3, 3), episodes=4, video_folder=tmp_path, video_episodes=range(4), backend=backend)
    assert scratch_in(tmp_path) == []
    with Pool(of_length(3, 3), backend=backend, num_workers=2) as pool:
        with pytest.raises(KeyError):
            evaluate(broken, pool, episodes=4, video_folder=tmp_path, video_episodes=range(4))
        assert scratch_in(tmp_path) == []
        result = evaluate(act, pool, episodes=4, video_folder=tmp_path, video_episodes=range(4))
        assert len(result.videos) == 4 and scratch_in(tmp_path) == []


class Dying(Gray):
    def step(self, action: Any) -> Any:
        if self.steps == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)


class Raising(Gray):
    def step(self, action: Any) -> Any:
        if self.steps == 2:
            raise ZeroDivisionError
        return super().step(action)


@pytest.mark.parametrize("kind", [Dying, Raising])
def test_an_evaluation_with_a_fault_leaves_no_folder(tmp_path: Path, kind: Any) -> None:
    with Pool([kind, Gray], num_workers=2) as pool:
        with pytest.raises((EnvError, WorkerDiedError)):
            evaluate(act, pool, episodes=4, video_folder=tmp_path, video_episodes=range(4))
        assert scratch_in(tmp_path) == []
        pool.close(terminate=True)
