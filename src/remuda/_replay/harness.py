"""Hosts one env for a replay, with the loop and the checks of a worker."""

from __future__ import annotations

from typing import Any

import numpy as np

from remuda import _core
from remuda._crash.episode_start import restore_random_state
from remuda._crash.record import Record
from remuda._replay.plan import Op, Reset
from remuda._replay.recorded_code import RecordedCode
from remuda._wire.channel import LocalChannel
from remuda._wire.layout import Layout
from remuda._wire.pickling import Parts, dump
from remuda._worker.factories import BuildError
from remuda._worker.host import EnvHost
from remuda._worker.reset_defaults import SeedBase
from remuda._worker.worker_info import HostSpec, WorkerInfo, worker_context
from remuda.errors import RecordError


class _Witness(EnvHost):
    """A host of an env that keeps the latest exception of the env, with the traceback."""

    error: BaseException | None = None
    operation = ""

    def describe(self, error: BaseException, slot: int | None, operation: str) -> Parts:
        self.error, self.operation = error, operation
        return super().describe(error, slot, operation)


class Harness:
    """Builds the env of a record and performs the ops of a plan.

    Attributes:
        env: The env.
        error: The exception of the last op; None if it raised none.
        operation: The operation that raised it: "reset" or "step".
        is_spoilt: Whether the last results were invalid, for example because native code has overwritten them.
    """

    def __init__(self, record: Record, code: RecordedCode) -> None:
        """Raises the factory's exceptions, InvalidEnvError, and RecordError if the env does not fit the record."""
        self._record, self._code = record, code
        info = WorkerInfo(record.worker, record.num_workers, record.env_ids)
        self._channel = LocalChannel()
        self._host = _Witness(HostSpec(WorkerInfo(0, 1, (0,))), self._channel)

        def build() -> Any:
            with worker_context(info):
                return code.env_fn()

        try:
            (report,) = self._host.build([build])
        except BuildError as error:
            raise (error.__cause__ or error) from None
        assert report is not None  # `build` returns None only in hosts that build envs lazily
        space = code.observation_space or report.observation_space
        self._layout = Layout((1,), 1, "disabled", space, report.action_space)
        self._check_actions()
        arena = _core.Arena.create(self._layout.plan)
        self._loop = self._host.start(self._layout, arena)
        self._hub = self._make_hub(arena)
        arena.close_fd()
        self.env = self._host.envs[0]
        self.is_spoilt = False

    @property
    def error(self) -> BaseException | None:
        return self._host.error

    @property
    def operation(self) -> str:
        return self._host.operation

    def perform(self, op: Op) -> None:
        """Performs a reset or a step. If the env raises, the exception is in `error` afterwards."""
        if isinstance(op, Reset):
            arguments = self.prepare(op)
            self._do(_core.Op.RESET, None, dump(_as_named(arguments)) if arguments else None)
        else:
            objects = self._objects_of(op.index)
            arrays = [np.ascontiguousarray(column[op.index : op.index + 1]) for column in self._record.actions]
            actions = tuple(arrays) if objects else self._layout.action.build_batch(arrays, [])
            self._do(_core.Op.STEP, actions, dump(objects) if objects else None)

    def prepare(self, op: Reset) -> dict[str, Any]:
        """Restores the random state that the env had before a reset, and returns the reset's arguments."""
        beginning = op.beginning
        if beginning is None:
            return {}
        if beginning.random is not None:
            try:
                restore_random_state(self.env, beginning.random)
            except ValueError as error:
                raise RecordError(f"{self._record.path} is damaged: {error}") from error
        arguments = {"seed": beginning.seed, "options": self._code.options(beginning)}
        return {name: value for name, value in arguments.items() if value is not None}

    def action(self, index: int) -> Any:
        """Returns the action of a step, in the form that the env receives."""
        return self._layout.action.build_one(
            [column[index] for column in self._record.actions], self._objects_of(index)
        )

    def close(self) -> None:
        """Closes the env, and ignores its exceptions."""
        self._host.close_quietly()
        del self._hub, self._loop

    def _do(self, op: _core.Op, actions: Any, parts: Parts | None) -> None:
        self._host.error = None
        self._hub.send(op, None, actions, None if parts is None else [parts])
        self._loop.run_available()
        self._hub.wait(1, 0, 0)
        self.is_spoilt = not self._hub.slots.ready() and self._host.error is None
        if self._hub.slots.ready():
            self._hub.take(1)

    def _objects_of(self, index: int) -> list[Any]:
        if not self._layout.action.num_objects:
            return []
        if index not in self._code.objects:
            raise RecordError(
                f"{self._record.path} lacks the action of its entry {index}, for there was no room for all of them; "
                "record more with Recording(bytes_per_env=...)"
            )
        return self._code.objects[index]

    def _make_hub(self, arena: _core.Arena) -> _core.Hub:
        columns = self._layout.result_columns(arena)
        return _core.Hub(
            arena=arena,
            plan=self._layout.plan,
            envs_of_worker=[1],
            autoreset=_core.Autoreset.DISABLED,
            columns=[*columns.fixed, *columns.obs],
            final_columns=[],
            computed=[],
            actions=self._layout.sent_actions(arena),
            queues=[self._channel.queues],
            spin_ns=0,
            max_running=1,
        )

    def _check_actions(self) -> None:
        recorded = [(column.dtype, column.shape[1:]) for column in self._record.actions]
        expected = [(column.dtype, column.shape) for column in self._layout.action.columns]
        if recorded != expected or bool(self._layout.action.num_objects) != ("actions" in self._record.pickles):
            raise RecordError(
                f"expected an env with the action space {self._record.action_space}, "
                f"got {self._layout.action_space}: it is not the env of {self._record.path}"
            )


def _as_named(arguments: dict[str, Any]) -> dict[str, Any]:
    """Encodes the arguments of a reset as a pool sends them to a worker."""
    if "seed" not in arguments:
        return arguments
    return {**arguments, "seed": SeedBase(arguments["seed"], 1, 0, of_every_episode=False)}
