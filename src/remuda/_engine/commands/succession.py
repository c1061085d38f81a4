"""Replaces the engine of a pool by another engine, once the new engine's workers have built all envs."""

from __future__ import annotations

from collections.abc import Iterable

from remuda import _core
from remuda._engine.commands.answers import Answers
from remuda._engine.engine import Engine
from remuda._engine.running import Phase, Running


def succeed(old: Engine, new: Engine) -> list[Answers]:
    """Makes the engine `new` take the place of the engine `old` for the same envs, of which none is in flight.

    Envs continue their seeds, and get the options and lasting calls of their predecessors. An episode that was under
    way is cut off: the next result of its env is truncated, with `info["resized"]`.

    Returns: The lasting calls that the new envs repeat. Waiting for one may run log handlers of the program.
    """
    new.seeds.continue_from(old.seeds)
    new.action_spaces.continue_from(old.action_spaces)
    _copy_last_results(old.running, new.running)
    slots = range(new.layout.num_slots)
    begun = [slot for slot in slots if not old.faults.guards.must_reset(slot)]
    for slot in begun:
        new.faults.guards.note_reset(slot)
        new.running.slots.set_fresh(slot)
    for first in begun[:: new.layout.width]:
        if not new.layout.mode.in_same_step and old.running.slots.is_over(first):
            continue  # the pool has returned the end of the env's episode, so there is none to cut off
        _cut_off(old, new, first)
    old.enter(Phase.SUCCEEDED)
    return _repeat_calls(old, new)


def _copy_last_results(old: Running, new: Running) -> None:
    """Copies the last result of each env into the new engine's rows for last results."""
    rows = [old.slots.last(slot)[0] for slot in range(old.layout.num_slots)]
    first, count = new.layout.plan.first_kept_row, len(rows)
    for theirs, ours in zip(_columns(old), _columns(new), strict=True):
        ours.view(new.layout.plan.rows)[first : first + count] = theirs.view(old.layout.plan.rows)[rows]


def _columns(running: Running) -> Iterable[_core.Column]:
    columns = running.layout.result_columns(running.arena)
    return (*columns.fixed[1:3], *columns.obs, *columns.computed)


def _cut_off(old: Engine, new: Engine, first: int) -> None:
    """Makes the next result of an env end its episode. `first`: the env, or the first env of a vector env."""
    infos = [{"resized": True}] * new.layout.width
    new.running.slots.cut_off(first, old.pool_rows(first, infos, new.layout.mode.in_same_step))


def _repeat_calls(old: Engine, new: Engine) -> list[Answers]:
    """Makes the new envs repeat the lasting calls of the old ones."""
    remembered = old.exchange.supervisor.workers.remembered
    new.exchange.supervisor.workers.remembered.take_over(remembered.all())
    messages = {worker.index: remembered.for_successor(worker.env_ids, 1) for worker in new.backend.workers}
    return [new.exchange.tell(worker, parts) for worker, parts in messages.items() if parts is not None]
