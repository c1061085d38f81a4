"""Records the chosen episodes of one env, where it lives."""

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
_FPS = 30  # where neither the caller nor the env says


class Recorder:
    """Is told when episodes of one env begin, go on and end, and takes pictures of those that are chosen.

    An episode that a reset, or the death of its worker, cuts off is whole at that. One that is under way when its env
    is closed is not shown. Whoever hands in the last part of a video makes it, in a thread beside its env.
    """

    def __init__(
        self, video_folder: VideoFolder, env_id: int, take: Callable[[], Any], fps: float | None = None
    ) -> None:
        """`take`: makes a picture of the env. Nothing is touched before the first episode: an env may be built to be
        looked at only.
        """
        self._video_folder, self._env_id, self._take = video_folder, env_id, take
        self._fps = float(video_folder.fps or fps or _FPS)
        self._has_begun = False
        self._reel: tuple[int, Path] | None = None
        self._makers: list[threading.Thread] = []

    def begin(self, episode: int | None = None) -> None:
        """The env was reset. `episode`: that is recorded; None: the next one, if it is one of those chosen.

        Episodes that are played for a trial are nobody's.
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
            self._reel = episode, self._video_folder.reel(self._env_id, episode)
            self._add_picture()

    def step(self, is_over: bool) -> None:
        """The env has made a step, which may have been the last of its episode."""
        if self._reel is not None:
            self._add_picture()
            if is_over:
                self.end()

    def end(self) -> None:
        """The episode is over."""
        if self._reel is not None:
            ended, self._reel = self._reel, None
            self._hand_in(*ended)

    def drop(self) -> None:
        """The episode is not to be shown."""
        if self._reel is not None:
            self._reel[1].unlink(missing_ok=True)
            self._reel = None

    def close(self) -> None:
        """The env is closed. Returns when all that this recorder makes is made."""
        if not self._has_begun:
            return
        self._has_begun = False
        self.drop()
        self._video_folder.leave(self._env_id)
        self._make(self._video_folder.waiting())
        while self._makers:
            self._makers.pop().join()

    def _add_picture(self) -> None:
        assert self._reel is not None
        picture_file.append(self._reel[1], self._take())

    def _take_over(self) -> None:
        """What the env before has left, whose worker has died."""
        for episode, folder in self._video_folder.claimed(self._env_id):
            self._start(episode, folder)
        for episode, reel in self._video_folder.open_reels(self._env_id):
            self._hand_in(episode, reel)

    def _hand_in(self, episode: int, reel: Path) -> None:
        self._video_folder.hand_in(self._env_id, episode, reel)
        self._make([episode])

    def _make(self, episodes: list[int]) -> None:
        for episode, folder in self._video_folder.claim(self._env_id, episodes):
            self._start(episode, folder)

    def _start(self, episode: int, folder: Path) -> None:
        arguments = (self._video_folder, episode, folder, self._fps)
        maker = threading.Thread(target=_make_one, args=arguments, name="remuda video")
        self._makers = [one for one in self._makers if one.is_alive()]
        self._makers.append(maker)
        maker.start()


def recorder_of(env: Any, video_folder: VideoFolder, env_id: int) -> Recorder:
    """A recorder of one of Gymnasium's envs, which renders itself."""
    return Recorder(video_folder, env_id, env.render, (env.metadata or {}).get("render_fps"))


def _make_one(video_folder: VideoFolder, episode: int, folder: Path, fps: float) -> None:
    """Makes a video. What goes wrong with it is no reason to end training."""
    try:
        make_video([folder / str(env_id) for env_id in video_folder.env_ids], video_folder.video(episode), fps)
    except Exception as error:
        _logger.warning("the video %s could not be made: %s", video_folder.video(episode), error)
    with suppress(FileNotFoundError):  # all of it was removed meanwhile: the evaluation has failed
        video_folder.settle(episode, folder)
