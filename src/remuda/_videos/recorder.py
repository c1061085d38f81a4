"""Records the chosen episodes of one env, in its process."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from remuda._videos import picture_file
from remuda._videos.grid import make_video
from remuda._videos.video_folder import VideoFolder
from remuda._worker.measuring import is_being_measured

_logger = logging.getLogger("remuda")
_FPS = 30  # the frame rate if neither the caller nor the env sets one


class Recorder:
    """Takes pictures of the chosen episodes of one env, when it is notified of resets and steps.

    An episode that a reset or the death of the worker cuts off is recorded up to that point. An unfinished episode is
    dropped when its env is closed. The recorder that hands in the last part of a video writes the video, in a thread.
    """

    def __init__(
        self, video_folder: VideoFolder, env_id: int, take: Callable[[], Any], fps: float | None = None
    ) -> None:
        """`take` returns a picture of the env. No file is changed before the first episode, because an env may be
        built only for measurements.
        """
        self._video_folder, self._env_id, self._take = video_folder, env_id, take
        self._fps = float(video_folder.fps or fps or _FPS)
        self._has_begun = False
        self._recorded: tuple[int, Path] | None = None  # the episode being recorded, and the file of its pictures
        self._makers: list[threading.Thread] = []

    def begin(self, episode: int | None = None) -> None:
        """Notes that the env was reset. Nothing is recorded while the pool measures the env.

        `episode`: the number of an episode to record; None: the next number, recorded if the trigger chooses it.
        """
        if is_being_measured():
            return
        if not self._has_begun:
            self._has_begun = True
            self._video_folder.come_back(self._env_id)
            self._take_over()
        self.end()
        is_chosen = episode is not None
        if episode is None:
            episode = self._video_folder.next_episode(self._env_id)
        if is_chosen or self._video_folder.trigger(episode):
            self._recorded = episode, self._video_folder.reel(self._env_id, episode)
            self._add_picture(self._recorded[1])

    def step(self, is_over: bool) -> None:
        """Notes that the env has made a step. `is_over` is whether the step ended the episode."""
        if self._recorded is not None:
            self._add_picture(self._recorded[1])
            if is_over:
                self.end()

    def end(self) -> None:
        """If an episode is being recorded, ends the recording, and adds the pictures to the parts of the video."""
        if self._recorded is not None:
            ended, self._recorded = self._recorded, None
            self._hand_in(*ended)

    def drop(self) -> None:
        """If an episode is being recorded, ends the recording and removes the pictures."""
        if self._recorded is not None:
            self._recorded[1].unlink(missing_ok=True)
            self._recorded = None

    def close(self) -> None:
        """Notes that the env is closed. Returns when all videos of this recorder are written."""
        if not self._has_begun:
            return
        self._has_begun = False
        self.drop()
        self._video_folder.leave(self._env_id)
        for episode in self._video_folder.waiting():
            self._make_if_complete(episode)
        while self._makers:
            self._makers.pop().join()

    def _add_picture(self, reel: Path) -> None:
        picture_file.append(reel, self._take())

    def _take_over(self) -> None:
        """Continues the videos that this env's previous recorder left unfinished when its worker died."""
        for episode, folder in self._video_folder.claimed(self._env_id):
            self._make(episode, folder)
        for episode, reel in self._video_folder.open_reels(self._env_id):
            self._hand_in(episode, reel)

    def _hand_in(self, episode: int, reel: Path) -> None:
        self._video_folder.hand_in(self._env_id, episode, reel)
        self._make_if_complete(episode)

    def _make_if_complete(self, episode: int) -> None:
        if (folder := self._video_folder.claim(self._env_id, episode)) is not None:
            self._make(episode, folder)

    def _make(self, episode: int, folder: Path) -> None:
        arguments = (self._video_folder, episode, folder, self._fps)
        maker = threading.Thread(target=_make_video, args=arguments, name="remuda video")
        self._makers = [one for one in self._makers if one.is_alive()]
        self._makers.append(maker)
        maker.start()


def recorder_of(env: Any, video_folder: VideoFolder, env_id: int) -> Recorder:
    """Returns a recorder of an env of Gymnasium, with the pictures of its `render`."""
    return Recorder(video_folder, env_id, env.render, (env.metadata or {}).get("render_fps"))


def _make_video(video_folder: VideoFolder, episode: int, folder: Path, fps: float) -> None:
    """Writes a video. A failure is logged, and training continues."""
    try:
        make_video([folder / str(env_id) for env_id in video_folder.env_ids], video_folder.video(episode), fps)
    except Exception as error:
        _logger.warning("the video %s could not be made: %s", video_folder.video(episode), error)
    with suppress(FileNotFoundError):  # a failed evaluation may have removed the folder
        video_folder.settle(episode, folder)
