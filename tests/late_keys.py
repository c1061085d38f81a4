"""Envs with keys in their infos that first appear after many steps. Workers import this module by name."""

from __future__ import annotations

import threading
from typing import Any

from pool_envs import HookedEnv

LATE, LATER = 7, 8  # actions from which on the info has one and two more keys


def info_of(env: Any, action: int) -> dict[str, Any]:
    info: dict[str, Any] = {"tag": float(env.tag), "steps": env.steps}
    if action >= LATE:
        info["late"] = 10.0 * action + env.tag
    if action >= LATER:
        info["later"] = 100 * action + env.tag
    return info


def step_with_late_keys(env: Any, action: Any) -> Any:
    return env.observe(), float(action), False, False, info_of(env, int(action))


def with_a_lock(env: HookedEnv) -> dict[str, Any]:
    return {"lock": threading.Lock()}  # cannot be pickled
