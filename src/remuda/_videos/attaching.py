"""Makes an env notify a recorder of its resets and steps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from remuda._videos.video_recorder import VideoRecorder


def attach(env: Any, fps: float | None = None, choose: Callable[[], Path | None] | None = None) -> VideoRecorder:
    """Replaces the methods `reset`, `step` and `close` of an env by functions that also record. Returns the recorder.

    No wrapper is added, so the states of recorded envs fit other envs: a state includes no functions.
    """
    recorder = VideoRecorder(env.render, fps or (env.metadata or {}).get("render_fps"), choose)
    env_reset, env_step, env_close = env.reset, env.step, env.close

    def reset(**options: Any) -> Any:
        begun = env_reset(**options)
        recorder.begin()
        return begun

    def step(action: Any) -> Any:
        try:
            stepped = env_step(action)
        except BaseException:
            recorder.end()  # the video shows the episode up to the fault
            raise
        recorder.step(stepped[2] or stepped[3])
        return stepped

    def close() -> None:
        recorder.drop()
        env_close()

    reset.recorder = recorder  # type: ignore[attr-defined]
    env.reset, env.step, env.close = reset, step, close
    return recorder


def expect(env: Any, path: Path | None) -> None:
    """Makes an env record the episode that begins with its next reset into a file; None: it is not recorded.

    Runs in the env's worker.
    """
    (_recorder_of(env) or attach(env)).expected = path


def detach(env: Any) -> None:
    """Drops the unfinished video of an env, and removes a recorder that `expect` has attached. Runs in the worker."""
    recorder = _recorder_of(env)
    if recorder is not None:
        recorder.drop()
        if recorder.choose is None:
            del env.reset, env.step, env.close


def _recorder_of(env: Any) -> VideoRecorder | None:
    return getattr(env.reset, "recorder", None)
