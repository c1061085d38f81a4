"""Sends resets to envs, with seeds and options, and sends options that workers keep for later resets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from remuda import _core
from remuda._engine.commands.action_spaces import ActionSpaces
from remuda._engine.commands.arguments import check_common
from remuda._engine.commands.exchange import Exchange
from remuda._engine.reset_arguments import (
    entropy_for,
    options_for,
    pickled,
    pickled_options,
    reset_arguments,
    split_seed,
)
from remuda._engine.running import Running
from remuda._engine.seeds import Order, Seed, Seeds
from remuda._wire.env_state import EnvState
from remuda._wire.pickling import dump
from remuda._wire.requests import PutState, RememberOptions
from remuda._worker.reset_defaults import ResetDefaults

Options: TypeAlias = Mapping[str, Any] | Sequence[Mapping[str, Any] | None] | None


class Resets:
    """Sends resets to envs, with seeds and options, and sends options that workers keep for later resets."""

    def __init__(
        self,
        running: Running,
        seeds: Seeds,
        defaults: ResetDefaults,
        spaces: ActionSpaces,
        exchange: Exchange,
    ) -> None:
        self._running, self._layout = running, running.layout
        self._env_ids_of = [worker.env_ids for worker in running.backend.workers]
        self._seeds, self._defaults, self._spaces = seeds, defaults, spaces
        self._exchange = exchange

    def send(self, slots: Sequence[int], seed: Seed, options: Options, part: int, *, to_all: bool) -> None:
        """Sends resets to some slots of a part. If this raises, nothing was sent."""
        self._send(slots, seed, options, part, to_all=to_all)
        if self._layout.spares:  # spares without a `SeedBase` get one, and reset in advance
            spares = self._exchange.spares
            orders = self._seeds.orders(None, spares, spares)
            self._prepare([spare for spare, order in zip(spares, orders, strict=True) if order is not None], None, None)

    def _send(self, slots: Sequence[int], seed: Seed, options: Options, part: int, *, to_all: bool) -> None:
        envs = [self._running.slots.env_of(slot) for slot in slots]
        orders = self._seeds.orders(seed, slots, envs)
        arguments = self._arguments(orders, options_for(options, slots), slots)
        blobs = None
        if any(arguments):
            with_slots = zip(arguments, self._layout.by_env(slots), strict=True)
            blobs = [a and pickled(dump, a, a.get("options"), its[0]) for a, its in with_slots]
        self._exchange.send(_core.Op.RESET, slots, blobs, part, to_all=to_all)
        self._seeds.note(orders, envs)
        each = zip(self._layout.by_env(envs), arguments, strict=True)
        self._exchange.forget_preparations([its[0] for its, given in each if given])
        if self._spaces.are_seeded:
            self._spaces.seed(slots, entropy_for(seed, slots))

    def _arguments(
        self, orders: Sequence[Order], options: Sequence[dict[str, Any] | None], slots: Sequence[int]
    ) -> list[dict[str, Any] | None]:
        """Returns the arguments of each env's reset; None for an env without arguments."""
        if self._layout.vector_size is not None:
            check_common("options", options, slots, self._layout)
            each = zip(self._layout.by_env(orders), self._layout.by_env(options), strict=True)
            return [reset_arguments(list(its) if any(its) else None, common[0]) for its, common in each]
        return [reset_arguments(*pair) for pair in zip(orders, options, strict=True)]

    def restore(
        self, slots: Sequence[int], states: Sequence[EnvState], part: int, *, to_all: bool, seed: Seed = None
    ) -> None:
        """Sends resets that put the envs into these states. If this raises, nothing was sent.

        `seed`: the base of the seeds of later episodes, for envs that were never reset.
        """
        envs = [self._running.slots.env_of(slot) for slot in slots]
        orders = self._seeds.orders(seed, slots, envs)  # an env that was never reset needs a `SeedBase`
        blobs = [dump(PutState(*pair)) for pair in zip(states, orders, strict=True)]
        self._exchange.send(_core.Op.RESET, slots, blobs, part, to_all=to_all)
        self._seeds.note(orders, envs)
        self._exchange.forget_preparations(envs)

    def send_with_spares(
        self, slots: Sequence[int], seed: Seed, options: Options, part: int, *, reset_slots: bool
    ) -> None:
        """Sends resets to all slots and spares. If this raises, nothing was sent, unless a spare's worker died.

        `reset_slots`: all envs return to their first slots, so that the run is a function of the seed.
        """
        spares = range(len(slots), self._layout.num_envs)
        of_slots, of_spares = split_seed(seed, len(slots), self._layout.num_envs)
        options_for(options, slots)
        for ids, part_of_seed in ((slots, of_slots), (spares, of_spares)):
            self._seeds.orders(part_of_seed, ids, ids)
        if reset_slots:
            self._running.slots.seat_in_order()
        self._send(slots, of_slots, options, part, to_all=True)
        self._prepare(self._exchange.spares, of_spares, dict(options) if isinstance(options, Mapping) else None)

    def _prepare(self, spares: Sequence[int], seed: Seed, options: dict[str, Any] | None) -> None:
        for spare, order in zip(spares, self._seeds.orders(seed, spares, spares), strict=True):
            arguments = reset_arguments(order, options)
            self._exchange.prepare(spare, None if arguments is None else dump(arguments))
            self._seeds.note([order], [spare])

    def remember(self, slots: Sequence[int] | None, options: Options) -> None:
        """Keeps options for later resets of these slots (None: of all).

        If this raises, nothing was sent, unless a worker died meanwhile.
        """
        pickles = self._pickles(slots, options)
        self._exchange.faults.check_alive(pickles)
        change = 1 + max(self._defaults.changes.values(), default=0)
        self._defaults.remember_options(pickles, change)  # first: successors of workers that die now need the options
        for worker, env_ids in enumerate(self._env_ids_of):
            if part := {env: pickles[env] for env in env_ids if env in pickles}:
                self._exchange.notify(worker, dump(RememberOptions(part, change)))

    def _pickles(self, slots: Sequence[int] | None, options: Options) -> dict[int, bytes | None]:
        """Returns the pickled options for each env, by its id."""
        if self._layout.vector_size is not None:
            raise ValueError(
                f"expected envs that are reset one by one, got vector_size={self._layout.vector_size}: vector envs "
                "reset theirs by themselves, without options; pass options= to reset()"
            )
        if not self._layout.spares:
            return pickled_options(options, range(self._layout.num_envs) if slots is None else slots)
        if slots is not None or not (options is None or isinstance(options, Mapping)):
            raise ValueError(
                "expected one mapping (or None) for all envs where there are spares, each of which may back any slot, "
                f"got {options!r}{'' if slots is None else f' for env_ids {list(slots)}'}"
            )
        return pickled_options(options, range(self._layout.num_envs))
