"""The plan of a replay: the resets and steps that lead to the failure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from remuda import _core
from remuda._crash.record import Beginning, Record
from remuda.errors import RecordError

Extent: TypeAlias = Literal["episode", "history"]


@dataclass(frozen=True)
class Reset:
    """A reset in a plan. `beginning` has its seed, options and random state; it is None for an autoreset."""

    beginning: Beginning | None = None


@dataclass(frozen=True)
class Step:
    """A step.

    Attributes:
        index: The row of the record with its action.
        number: Its number in the episode, from 1.
    """

    index: int
    number: int


Op: TypeAlias = "Reset | Step"


@dataclass(frozen=True)
class Plan:
    """The ops of a replay: the resets and steps that it performs.

    Attributes:
        extent: "episode": only the last episode; "history": everything since the last reset with a seed.
        ops: The ops, in order. The env failed in the last one.
        is_cut: Whether the plan is cut short. Then the last op is an earlier one, which is not performed.
    """

    extent: Extent
    ops: Sequence[Op]
    is_cut: bool = False


def extents(record: Record) -> list[Extent]:
    """Returns the parts of a record that can be replayed ("episode", "history"), the shortest first.

    Raises:
        RecordError: The record cannot be replayed; the message has the reason.
    """
    possible: list[Extent] = []
    if record.is_whole:
        possible.append("episode")
    if record.seeded_at is not None and (not possible or record.seeded_at != record.begins_at):
        possible.append("history")
    if not possible:
        raise RecordError(f"{record.path} cannot be replayed: {_why_not(record)}")
    return possible


def make_plan(record: Record, extent: Extent, until_step: int | None = None) -> Plan:
    """Returns the plan for a part of a record. `until_step`: the step of the last episode at which the plan ends."""
    ops = _history(record) if extent == "history" else _episode(record)
    last = max(i for i, op in enumerate(ops) if isinstance(op, Reset))
    if until_step is None or last + until_step >= len(ops):
        return Plan(extent, ops)
    return Plan(extent, ops[: last + until_step + 1], is_cut=True)


def _history(record: Record) -> list[Op]:
    assert record.seeded_at is not None  # `extents` offers "history" only if `seeded_at` is known
    return [Reset(record.seeded), *_ops_from(record, record.seeded_at + 1)]


def _episode(record: Record) -> list[Op]:
    assert record.begins_at is not None  # `extents` offers "episode" only if `begins_at` is known
    return [*_warm_up(record), Reset(record.beginning), *_ops_from(record, record.begins_at + 1)]


def _warm_up(record: Record) -> list[Op]:
    """If the episode was not the env's first, returns a reset to make before it, because a first reset may differ."""
    if record.is_first_episode or record.beginning is None or record.beginning.seed is not None:
        return []
    return [Reset(record.seeded)]


def _ops_from(record: Record, first: int) -> list[Op]:
    ops: list[Op] = []
    number = 0
    for index in range(first, len(record.kinds)):
        is_step = record.kinds[index] == _core.Entry.STEP.value
        number = number + 1 if is_step else 0
        ops.append(Step(index, number) if is_step else Reset())
    return ops


def _why_not(record: Record) -> str:
    beginning = record.beginning
    if record.is_restored:
        return "the env was put into a state (set_state) in its last episode, and records do not have that"
    if record.begins_at is None:
        if _core.Entry.MADE.value in record.kinds:
            return "the env failed before its first reset"
        return (
            f"its {len(record.kinds)} latest actions are there, but the episode began before them; "
            "record more with Recording(bytes_per_env=...)"
        )
    if beginning is None:
        return "how the episode began is not known: the worker was killed while it noted that, or wrote over it"
    if beginning.options_lost:
        return f"the options of its reset are missing: {beginning.options_lost}"
    return f"its random state is unknown ({beginning.random_unknown}), and it had no seed"
