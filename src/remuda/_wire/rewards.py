"""Compares the shapes of the rewards of envs."""

from __future__ import annotations

from collections.abc import Mapping

from remuda._wording import name_some
from remuda.errors import InvalidEnvError


def check_same_rewards(expected: tuple[int, ...], name: str, found: Mapping[int, tuple[int, ...]]) -> None:
    """Checks that the rewards of each env in `found` have the expected shape. Errors name its source by `name`.

    Raises:
        InvalidEnvError: Names the envs and the difference.
    """
    others = {env_id: shape for env_id, shape in found.items() if shape != expected}
    if others:
        raise InvalidEnvError(
            f"expected rewards of the shape {expected} from all envs, as for {name}, got "
            f"{next(iter(others.values()))} for {name_some('env', others)}; their `reward_space` declares it"
        )
