"""Records episodes of envs that are there already, which are named one by one: those of an evaluation."""

from __future__ import annotations

from typing import Any

from remuda._videos.recorder import Recorder, recorder_of
from remuda._videos.video_folder import VideoFolder


def expect(env: Any, video_folder: VideoFolder, env_id: int, episode: int) -> None:
    """In the env's worker: its next reset begins this episode, which is recorded.

    What there is of one that is not over, or of this one by an env that has failed, is dropped.
    """
    its = _Attached.of(env) or _Attached(env, recorder_of(env, video_folder, env_id))
    its.expect(video_folder.reel(env_id, episode), episode)


def detach(env: Any) -> None:
    """In the env's worker: it is as it was before. When this returns, the videos of all that was over are made."""
    if (its := _Attached.of(env)) is not None:
        its.detach()


class _Attached:
    """Stands before the `reset` and `step` of one env, which its worker looks up by their names."""

    def __init__(self, env: Any, recorder: Recorder) -> None:
        self._env, self._recorder = env, recorder
        self._reset, self._step = env.reset, env.step
        self._expected: int | None = None
        env.reset, env.step = self.reset, self.step

    @classmethod
    def of(cls, env: Any) -> _Attached | None:
        """What is attached to an env, if anything is."""
        its = getattr(vars(env).get("step"), "__self__", None)
        return its if isinstance(its, cls) else None

    def expect(self, reel: Any, episode: int) -> None:
        self._recorder.drop()
        reel.unlink(missing_ok=True)
        self._expected = episode

    def reset(self, **options: Any) -> Any:
        begun = self._reset(**options)
        if self._expected is not None:
            expected, self._expected = self._expected, None
            self._recorder.begin(expected)
        return begun

    def step(self, action: Any) -> Any:
        stepped = self._step(action)
        self._recorder.step(stepped[2] or stepped[3])
        return stepped

    def detach(self) -> None:
        del self._env.reset, self._env.step
        self._recorder.close()
