"""Converts envs of the old gym library, by shimmy. Its releases before 0.26 have another `reset` and `step`."""

from __future__ import annotations

import inspect
import sys
from typing import Any

import gymnasium

from remuda.errors import InvalidEnvError


def converted(env: Any, factory: str) -> Any:
    """Returns an env of the old gym library as a `gymnasium.Env`, and any other object as it is.

    Raises:
        InvalidEnvError: shimmy is not installed. `factory`: the name of the env's factory in the error.
    """
    gym: Any = sys.modules.get("gym")  # an env of gym has imported it
    kind: Any = getattr(gym, "Env", ())
    if not isinstance(env, kind) or isinstance(env.observation_space, gymnasium.Space):
        return env
    try:
        import shimmy
    except ModuleNotFoundError as error:
        raise InvalidEnvError(
            f"expected {factory} to return a gymnasium.Env, got {env!r} of the old gym library; install shimmy, and it "
            "is converted (pip install shimmy), or make the env with Gymnasium: `import gymnasium as gym`"
        ) from error
    is_new = gym.__version__ >= "0.26" and "seed" in inspect.signature(env.unwrapped.reset).parameters
    return (shimmy.GymV26CompatibilityV0 if is_new else shimmy.GymV21CompatibilityV0)(env=env)
