"""Records chosen episodes of envs that are built already, for evaluations."""

from __future__ import annotations

from typing import Any

from remuda._videos.recorder import Recorder, recorder_of
from remuda._videos.video_folder import VideoFolder


def expect(env: Any, video_folder: VideoFolder, env_id: int, episode: int) -> None:
    """Makes an env record the episode that begins with its next reset. Runs in the env's worker.

    Drops the pictures of an unfinished episode, and those of this episode from an env that has failed.
    """
    attached = _attached_to(env) or _Attached(env, recorder_of(env, video_folder, env_id))
    attached.recorder.drop()
    video_folder.reel(env_id, episode).unlink(missing_ok=True)
    attached.expected = episode


def detach(env: Any) -> None:
    """Removes the recorder from an env, and waits until its videos are written. Runs in the env's worker."""
    if (attached := _attached_to(env)) is not None:
        del env.reset, env.step
        attached.recorder.close()


class _Attached:
    """Replaces `reset` and `step` of one env by methods that also record. The worker finds them by name."""

    def __init__(self, env: Any, recorder: Recorder) -> None:
        self.recorder = recorder
        self.expected: int | None = None  # the episode to record from the next reset on; None: no episode
        self._reset, self._step = env.reset, env.step
        env.reset, env.step = self.reset, self.step

    def reset(self, **options: Any) -> Any:
        begun = self._reset(**options)
        if self.expected is not None:
            episode, self.expected = self.expected, None
            self.recorder.begin(episode)
        return begun

    def step(self, action: Any) -> Any:
        stepped = self._step(action)
        self.recorder.step(stepped[2] or stepped[3])
        return stepped


def _attached_to(env: Any) -> _Attached | None:
    attached = getattr(env.step, "__self__", None)
    return attached if isinstance(attached, _Attached) else None
