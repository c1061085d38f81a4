"""Tells which envs render, and frees those that are closed: graphics contexts belong to a process, not to an env."""

from __future__ import annotations

import gc
from typing import Any

_TEXT = ("ansi", "ansi_list")


def renders(env: Any) -> bool:
    """Whether an env, or the report of one, has a render mode that draws. Text is not drawn."""
    return getattr(env, "render_mode", None) not in (None, *_TEXT)


def free_closed_env() -> None:
    """Frees a closed env that renders and has no more users, before another one is built.

    Its graphics objects are freed with it, by their numbers. Freed later, these would be numbers of the next env's
    objects, because an env that refers to itself stays until the collector runs.
    """
    gc.collect()
