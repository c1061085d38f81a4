"""Whether the spaces of envs, and what is computed of them, fit into the same rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gymnasium import Space

from remuda._wire.codec import ColumnSpec, SpaceCodec
from remuda._wording import name_some
from remuda.errors import InvalidEnvError, SpaceMismatchError


def check_agreement(
    kind: str, reference: Space[Any], reference_name: str, spaces: Sequence[Space[Any]], first: int = 0
) -> None:
    """Bounds may differ; structure, shapes and dtypes may not. `first`: the id of the first of these envs.

    Raises:
        SpaceMismatchError: Names the envs and the difference.
    """
    expected = SpaceCodec(reference)
    differing: dict[str, list[int]] = {}
    for env_id, space in enumerate(spaces, first):
        if space is reference or space == reference:
            continue
        if difference := _difference(expected, SpaceCodec(space)):
            differing.setdefault(f"{difference} ({space})", []).append(env_id)
    if differing:
        details = "; ".join(f"{name_some('env', ids)}: {what}" for what, ids in differing.items())
        raise SpaceMismatchError(
            f"expected every {kind} space to have the structure, shapes and dtypes of {reference_name}'s, {reference}; "
            f"got {details}",
            kind,
            spaces,
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


def check_same(reference: Sequence[ColumnSpec], name: str, found: Mapping[int, Sequence[ColumnSpec]]) -> None:
    """Whether envs have found their columns to be what they are for those called `name`. `found`: by env.

    Raises:
        InvalidEnvError: Names the envs, and in what they differ.
    """
    for i, expected in enumerate(reference):
        others = {env_id: specs[i] for env_id, specs in found.items() if specs[i] != expected}
        if others:
            raise InvalidEnvError(
                f"expected {expected.path} to be of one shape and dtype for all envs, {_text(expected)} as for {name}, "
                f"got {_text(next(iter(others.values())))} for {name_some('env', others)}; declare them, as "
                "(function, (shape, dtype)), and what can be cast without loss is"
            )


def _text(spec: ColumnSpec) -> str:
    return f"the shape {spec.shape} and dtype {spec.dtype}"
