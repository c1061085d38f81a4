"""Whether the envs of a pool fit into the same rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gymnasium import Space

from remuda._backends.codec import SpaceCodec
from remuda.errors import SpaceMismatchError


def check_agreement(kind: str, reference: Space[Any], reference_name: str, spaces: Sequence[Space[Any]]) -> None:
    """Bounds may differ; structure, shapes and dtypes may not.

    Raises:
        SpaceMismatchError: Names the envs and the difference.
    """
    expected = SpaceCodec(reference)
    differing: dict[str, list[int]] = {}
    for env_id, space in enumerate(spaces):
        if space is reference or space == reference:
            continue
        if difference := _difference(expected, SpaceCodec(space)):
            differing.setdefault(f"{difference} ({space})", []).append(env_id)
    if differing:
        details = "; ".join(f"env {', '.join(map(str, ids))}: {what}" for what, ids in differing.items())
        raise SpaceMismatchError(
            f"expected every {kind} space to have the structure, shapes and dtypes of {reference_name}'s, {reference}; "
            f"got {details}"
        )


def _difference(expected: SpaceCodec, got: SpaceCodec) -> str | None:
    if expected.nest != got.nest:
        return "another structure"
    for one, other in zip(expected.columns, got.columns, strict=True):
        if one.shape != other.shape:
            return f"shape {other.shape} instead of {one.shape}{_at(one.path)}"
        if one.dtype != other.dtype:
            return f"dtype {other.dtype} instead of {one.dtype}{_at(one.path)}"
    for (path, kind), (_, other_kind) in zip(expected.objects, got.objects, strict=True):
        if other_kind is not kind:
            return f"{other_kind.__name__} instead of {kind.__name__}{_at(path)}"
    return None


def _at(path: str) -> str:
    return f" at {path}" if path else ""
