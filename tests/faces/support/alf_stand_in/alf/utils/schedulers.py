"""The progress of the training, for values that depend on it."""

from __future__ import annotations

_progress = dict.fromkeys(("percent", "iterations", "env_steps", "global_counter"), 0.0)
_is_scheduler_allowed = True


def update_progress(progress_type: str, value: float) -> None:
    _progress[progress_type] = float(value)


def update_all_progresses(progresses: dict[str, float]) -> None:
    _progress.update(progresses)


def get_progress(progress_type: str) -> float:
    return _progress[progress_type]


def get_all_progresses() -> dict[str, float]:
    return _progress


def disallow_scheduler() -> None:
    global _is_scheduler_allowed
    _is_scheduler_allowed = False
