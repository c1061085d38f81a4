"""Whether the envs of a pool fit into the same rows, and do what it expects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gymnasium import Space

from remuda._wire.codec import SpaceCodec
from remuda.errors import SpaceMismatchError, name_some


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
        details = "; ".join(f"{name_some('env', ids)}: {what}" for what, ids in differing.items())
        raise SpaceMismatchError(
            f"expected every {kind} space to have the structure, shapes and dtypes of {reference_name}'s, {reference}; "
            f"got {details}",
            kind,
            spaces,
        )


def check_autoreset(autoreset: str, metadata: Sequence[Mapping[str, Any]]) -> None:
    """Whether vector envs, which reset their envs themselves, do so as the pool expects. `metadata`: of each.

    Raises:
        ValueError: One says otherwise. Who says nothing is believed.
    """
    for i, one in enumerate(metadata):
        mode = one.get("autoreset_mode")
        name = autoreset_name(mode)
        if mode is not None and name != autoreset:
            raise ValueError(
                f"expected vector envs that agree with autoreset={autoreset!r}, got the autoreset_mode {mode!r} of "
                f"env_fns[{i}]; pass autoreset={name!r}, or build them with another mode"
            )


_AUTORESET_MODES = {"NextStep": "next_step", "SameStep": "same_step", "Disabled": "disabled"}  # Gymnasium's


def autoreset_name(mode: Any) -> Any:
    """The pool's name for what may be a member of Gymnasium's `AutoresetMode`, or its value; else the mode itself."""
    value = getattr(mode, "value", mode)
    return _AUTORESET_MODES.get(value, mode) if isinstance(value, str) else mode


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
