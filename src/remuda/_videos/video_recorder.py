"""Records chosen episodes of one env as videos, in the env's process."""

from __future__ import annotations

import logging
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any
from weakref import WeakSet

import numpy as np

from remuda._worker.measuring import is_being_measured
from remuda.errors import InvalidEnvError

_logger = logging.getLogger("remuda")
_running = WeakSet[Any]()  # the ffmpeg processes of all recorders of this process
_EVEN = "pad=ceil(iw/2)*2:ceil(ih/2)*2"  # some players show only videos of even width and height


class VideoRecorder:
    """Takes pictures of the chosen episodes of one env, when it is notified of resets and steps.

    ffmpeg writes the video while the env continues, in a process of its own. If a video cannot be written, a warning is
    logged, and the env continues.

    Attributes:
        expected: The file for the episode that begins with the next reset; None: `choose` decides.
        choose: Returns the file for an episode that begins, or None if the episode is not recorded. If `choose` is
            None, only expected episodes are recorded.
    """

    def __init__(
        self, take: Callable[[], Any] | None, fps: float | None, choose: Callable[[], Path | None] | None = None
    ) -> None:
        """`take`: returns a picture of the env; None: nothing is recorded. `fps`: the pictures per second; None: 30."""
        self.expected: Path | None = None
        self.choose = choose
        self._take, self._fps = take, fps or 30
        self._path: Path | None = None  # the file of the episode that is being recorded
        self._ffmpeg: Any = None

    def begin(self) -> None:
        """Notes that the env was reset. Nothing is recorded while the pool measures the env."""
        if is_being_measured():
            return
        self.end()
        chosen = None if self.choose is None else self.choose()
        self._path, self.expected = self.expected or chosen, None
        self._add_picture()

    def step(self, is_over: bool) -> None:
        """Notes that the env has made a step. `is_over` is whether the step ended the episode."""
        self._add_picture()
        if is_over:
            self.end()

    def end(self) -> None:
        """Completes the video of the episode that is being recorded, if there is one."""
        if self._ffmpeg is not None:
            _, errors = self._ffmpeg.communicate()
            if self._ffmpeg.returncode != 0:
                _logger.warning("the video %s could not be made: %s", self._path, errors.decode(errors="replace"))
        self._path = self._ffmpeg = None

    def drop(self) -> None:
        """Removes the video of the episode that is being recorded, if there is one."""
        path = self._path
        self.end()
        if path is not None:
            path.unlink(missing_ok=True)

    def _add_picture(self) -> None:
        if self._path is None or self._take is None:
            return
        picture = np.asarray(self._take())
        if picture.ndim != 3 or picture.shape[2] != 3 or picture.dtype != np.uint8 or not picture.size:
            raise InvalidEnvError(
                f"expected render() to return a picture of shape (height, width, 3) and dtype uint8, got "
                f"{picture.shape} and {picture.dtype}; make the env with render_mode='rgb_array'"
            )
        if self._ffmpeg is None:
            self._ffmpeg = _start_ffmpeg(self._path, picture.shape[0], picture.shape[1], self._fps)
        try:
            self._ffmpeg.stdin.write(picture.tobytes())
        except BrokenPipeError:  # ffmpeg has failed
            self.end()


def _start_ffmpeg(path: Path, height: int, width: int, fps: float) -> subprocess.Popen[bytes]:
    from moviepy.config import FFMPEG_BINARY  # the program with which Gymnasium also writes videos

    pictures = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", str(fps), "-i", "-"]
    command = [FFMPEG_BINARY, "-y", "-loglevel", "error", *pictures, "-vf", _EVEN, "-pix_fmt", "yuv420p", str(path)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    _running.add(process)
    return process


def _release_pipes() -> None:
    """Closes the pipes to ffmpeg in a forked child, because ffmpeg ends only when no process has its pipe open."""
    null = os.open(os.devnull, os.O_WRONLY)
    for process in _running:
        if not process.stdin.closed:
            os.dup2(null, process.stdin.fileno())
    os.close(null)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_release_pipes)
