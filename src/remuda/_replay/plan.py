"""Lists the resets and steps that lead to the failure of a crash record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from remuda import _core
from remuda._crash.record import CrashRecord, EpisodeStart
from remuda.errors import RecordError


@dataclass(frozen=True)
class Reset:
    """A reset. `start` has its seed, options and random state; it is None for an autoreset."""

    start: EpisodeStart | None = None


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
Plan: TypeAlias = "Sequence[Op]"  # the env failed in the last op


def make_plans(record: CrashRecord, since_seed: bool = False) -> list[Plan]:
    """Returns the plans to follow until one reproduces the failure: the last episode, and all since the last seed.

    `since_seed`: return only the second one.

    Raises:
        RecordError: The record cannot be replayed; the message has the reason.
    """
    plans: list[Plan] = []
    if record.is_whole and not since_seed:
        assert record.begins_at is not None  # because the episode is whole
        plans.append([*_warm_up(record), Reset(record.start), *_ops_from(record, record.begins_at + 1)])
    if record.seeded_at is not None and (not plans or record.seeded_at != record.begins_at):
        plans.append([Reset(record.seeded), *_ops_from(record, record.seeded_at + 1)])
    if plans:
        return plans
    if since_seed:
        raise RecordError(f"{record.path} does not reach back to a reset with a seed: replay without --since-seed")
    raise RecordError(f"{record.path} cannot be replayed: {_why_not(record)}")


def cut_plan(plan: Plan, until_step: int) -> Plan:
    """Returns a plan that ends with a step of the last episode, or the whole plan if it has no such step."""
    last = max(i for i, op in enumerate(plan) if isinstance(op, Reset))
    return plan[: last + until_step + 1]


def _warm_up(record: CrashRecord) -> Plan:
    """If the episode was not the env's first, returns a reset to make before it, because a first reset may differ."""
    if record.is_first_episode or record.start is None or record.start.seed is not None:
        return []
    return [Reset(record.seeded)]


def _ops_from(record: CrashRecord, first: int) -> Plan:
    ops: list[Op] = []
    number = 0
    for index in range(first, len(record.kinds)):
        is_step = record.kinds[index] == _core.Entry.STEP.value
        number = number + 1 if is_step else 0
        ops.append(Step(index, number) if is_step else Reset())
    return ops


def _why_not(record: CrashRecord) -> str:
    start = record.start
    if record.is_restored:
        return "the env was put into a state (set_state) in its last episode, and records do not have that"
    if record.begins_at is None:
        if _core.Entry.MADE.value in record.kinds:
            return "the env failed before its first reset"
        return (
            f"its {len(record.kinds)} latest actions are there, but the episode began before them; "
            "record more with CrashDir(bytes_per_env=...)"
        )
    if start is None:
        return "how the episode began is not known: the worker was killed while it noted that, or wrote over it"
    if start.options_lost:
        return f"the options of its reset are missing: {start.options_lost}"
    return f"its random state is unknown ({start.random_unknown}), and it had no seed"
