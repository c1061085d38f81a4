"""Replaces envs by new ones in the same workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from remuda import _core
from remuda._engine.calls import Noting
from remuda._engine.commands.action_spaces import ActionSpaces
from remuda._engine.commands.exchange import Exchange
from remuda._engine.commands.shared_rendering import SharedRendering
from remuda._engine.options.checks import check_autoreset
from remuda._engine.options.crash_dir import described, pickled_specs
from remuda._engine.running import Running
from remuda._factories import check_env_fns
from remuda._progress.bar import INTERVAL, BuildBar
from remuda._wire.failures import build_error
from remuda._wire.pickling import Buffers, dump
from remuda._wire.requests import TakeReplacement
from remuda._worker.env_report import EnvReport, check_fit, renders
from remuda.errors import BrokenPoolError, EnvError, StateError


class Replacing:
    """Replaces envs in two rounds: first all new envs are built, then each takes the place of an old one.

    An env is built beside the old one, which stays if any cannot be built or does not fit. An old env that renders is
    closed before: if the new one does not take its place, its next reset builds it again.
    """

    def __init__(
        self, running: Running, exchange: Exchange, action_spaces: ActionSpaces, rendering: SharedRendering
    ) -> None:
        self._running, self._exchange, self._action_spaces = running, exchange, action_spaces
        self._rendering = rendering
        self._backend, self._layout = running.backend, running.layout

    def replace(self, slots: Sequence[int], env_fns: Sequence[Callable[[], Any]]) -> None:
        """Replaces the envs of `slots`. `slots` has all slots of a vector env, or none of them."""
        factories, envs = check_env_fns(env_fns), [its[0] for its in self._layout.by_env(slots)]
        self._check(slots, len(envs), len(factories))
        carried = [
            self._backend.carry(self._layout.worker_of(env), env, env_fn)
            for env, env_fn in zip(envs, factories, strict=True)
        ]
        try:
            reports = self._build(envs, carried)
            self._check_fit(envs, reports)
            notes = [self._note(*each) for each in zip(envs, factories, carried, reports, strict=True)]
            takes = [dump(TakeReplacement(True))] * len(envs)
            self._note_fresh(slots)
            self._exchange.ask(envs, takes, addressee_of=lambda call, i: Noting(call, notes[i])).result()
        except BaseException:
            self._drop(envs)
            raise
        self._rendering.warn()

    def _note(self, env: int, env_fn: Callable[[], Any], carried: Buffers, report: EnvReport) -> Callable[[], object]:
        """Returns a function that notes that a new env has replaced the env with this id. May be called twice.

        The supervisor's thread calls that function, so all that may run code of the program is done here.
        """
        running = self._running
        described_one = None if running.factories is None else described([env_fn])[0]
        specs = {} if running.factories is None else pickled_specs([report])
        spaces = {slot: self._action_spaces.own(report.action_space) for slot in self._layout.ids_with(env)}

        def note() -> None:
            if self._backend.processes is not None:
                self._backend.processes.adopt(self._layout.worker_of(env), env, carried)
            if running.factories is not None and described_one is not None:
                running.factories[env] = described_one
                running.specs.update(specs)
            for slot, space in spaces.items():
                running.reports[slot] = report
                self._action_spaces.replace(slot, space)

        return note

    def _note_fresh(self, slots: Sequence[int]) -> None:
        """Marks the envs as rebuilt. Called before workers replace them, as an interrupt may delay the answers."""
        guards = self._exchange.faults.guards
        for slot in slots:
            self._running.slots.note_replaced(slot)
            if self._layout.mode.in_next_step:  # the next step resets the env by itself
                self._running.slots.cut_off_in_rollout(slot)
            else:
                guards.require_reset(slot)

    def _check(self, slots: Sequence[int], num_envs: int, num_factories: int) -> None:
        if self._layout.spares:
            raise ValueError(
                f"expected a pool without spares where envs are replaced, got spares={self._layout.spares}: they must "
                "be interchangeable, for each may back any slot"
            )
        if num_envs != num_factories:
            what = "env" if self._layout.vector_size is None else "vector env"
            raise ValueError(f"expected {num_envs} env_fns, one for each {what} to replace, got {num_factories}")
        self._exchange.faults.check_alive(slots)
        if (busy := next((slot for slot in slots if not self._running.slots.is_idle(slot)), None)) is not None:
            raise StateError(f"expected no env in flight where envs are replaced, got env {busy}; call recv first")

    def _build(self, envs: Sequence[int], carried: Sequence[Buffers]) -> list[EnvReport]:
        try:
            call = self._exchange.ask(envs, carried, _core.Op.REBUILD)
            with BuildBar(envs) as progress:
                while not call.done:
                    progress.missing = call.missing
                    progress.show_builds()
                    call.wait(INTERVAL)
            return call.result()
        except EnvError as error:
            told = build_error(error.failures)
            if isinstance(told, EnvError):
                raise
            raise told from error

    def _check_fit(self, envs: Sequence[int], reports: Sequence[EnvReport]) -> None:
        every = list(self._running.reports)
        for env, report in zip(envs, reports, strict=True):
            for slot in self._layout.ids_with(env):
                every[slot] = report
        check_fit(self._layout, every)
        if self._layout.vector_size is not None:
            check_autoreset(self._layout.autoreset, [report.metadata for report in reports])

    def _drop(self, envs: Sequence[int]) -> None:
        for env in envs:
            if renders(self._running.reports[env]):  # an env that renders is closed before its replacement is built
                self._note_fresh(self._layout.ids_with(env))
            with suppress(BrokenPoolError):  # if the worker has died, the new env is gone too
                self._exchange.notify(self._layout.worker_of(env), dump(TakeReplacement(False)), env)
