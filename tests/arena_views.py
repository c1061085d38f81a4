"""Helpers that show whether arrays are views of pools' memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from remuda import Batch


def address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


def arenas() -> list[range]:
    """Returns the address ranges of pools' mappings in this process."""
    with open("/proc/self/maps") as maps:
        lines = [line.split() for line in maps if "memfd:remuda" in line]
    return [range(*(int(bound, 16) for bound in line[0].split("-"))) for line in lines]


def is_view(array: Any) -> bool:
    return any(address(array) in arena for arena in arenas())


def leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, tuple):
        for part in value:
            yield from leaves(part)
    else:
        yield value


def arrays_of(batch: Batch) -> list[Any]:
    return [*leaves(batch.obs), batch.rewards, batch.terminations, batch.truncations]
