"""Compares what a face needs to be equal for all envs, beside their spaces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from remuda._wording import name_some
from remuda.errors import InvalidEnvError

Agreed: TypeAlias = "tuple[tuple[str, Any], ...]"
"""Names and values, which can be pickled. The class in which a face wraps its envs has them as `must_agree`."""


def check_agreed(expected: Agreed, name: str, found: Mapping[int, Agreed]) -> None:
    """Checks that each env in `found` has the expected values. Errors name their source by `name`.

    Raises:
        InvalidEnvError: Names the envs and the difference.
    """
    for what, value in expected:
        others = {env_id: dict(own).get(what) for env_id, own in found.items() if dict(own).get(what) != value}
        if others:
            raise InvalidEnvError(
                f"expected the {what} of all envs to be {value}, as for {name}, got {next(iter(others.values()))} for "
                f"{name_some('env', others)}; make them equal, in the same order"
            )
