"""Builds the env of a crash record, and performs the resets and steps of a plan with it."""

from __future__ import annotations

import pdb
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import gymnasium

from remuda._crash.episode_start import restore_random_state
from remuda._replay.plan import Op, Plan, Reset
from remuda._replay.recorded_code import RecordedCode
from remuda._wire.codec import SpaceCodec
from remuda._wire.failures import portable
from remuda._worker.worker_info import WorkerInfo, settle_in_process
from remuda.errors import RecordError


@dataclass(frozen=True)
class Outcome:
    """The outcome of a replay.

    Attributes:
        reached: The index of the op that was begun last; -1: the env was not built.
        end: "finished": all ops were done; "raised": that op raised; "late": it took longer than the deadline that was
            missed originally; "died": the process ended.
        type_name, message, traceback: The class, text and traceback of the exception; empty without one.
        exitcode: The exit code of a process that died, negative for a signal.
    """

    reached: int
    end: Literal["finished", "raised", "late", "died"]
    type_name: str = ""
    message: str = ""
    traceback: str = ""
    exitcode: int | None = None


class Player:
    """Performs resets and steps with the env of a record.

    Attributes:
        env: The env.
    """

    def __init__(self, code: RecordedCode) -> None:
        """Raises the factory's exceptions, and RecordError if the env does not fit the record."""
        self._code, self._record = code, code.record
        env_fn = code.load_factory()
        self._objects = code.load_objects()
        settle_in_process(WorkerInfo(self._record.worker, self._record.num_workers, self._record.env_ids))
        self.env: gymnasium.Env[Any, Any] = env_fn()
        self._observations, self._actions = SpaceCodec(self.env.observation_space), SpaceCodec(self.env.action_space)
        recorded = [(column.dtype, column.shape[1:]) for column in self._record.actions]
        if recorded != [(column.dtype, column.shape) for column in self._actions.columns] or (
            bool(self._actions.num_objects) != ("actions" in self._record.pickles)
        ):
            raise RecordError(
                f"expected an env with the action space {self._record.action_space}, got {self.env.action_space}: "
                f"it is not the env of {self._record.path}"
            )

    def prepare(self, op: Op) -> Callable[[], Any]:
        """Returns the call of a reset or step, and restores the random state that the env had before a reset."""
        if not isinstance(op, Reset):
            return partial(self.env.step, self._action(op.index))
        if op.start is None:
            return self.env.reset
        if op.start.random is not None:
            try:
                restore_random_state(self.env, op.start.random)
            except ValueError as error:
                raise RecordError(f"{self._record.path} is damaged: {error}") from error
        arguments = {"seed": op.start.seed, "options": self._code.load_options(op.start)}
        return partial(self.env.reset, **{name: value for name, value in arguments.items() if value is not None})

    def perform(self, op: Op) -> None:
        """Resets or steps the env. Raises the env's exceptions, and ValueError for an invalid observation."""
        self._observations.flatten(self.prepare(op)()[0])

    def _action(self, index: int) -> Any:
        if self._actions.num_objects and index not in self._objects:
            raise RecordError(
                f"{self._record.path} lacks the action of its entry {index}, for there was no room for all of them; "
                "record more with CrashDir(bytes_per_env=...)"
            )
        columns = [column[index] for column in self._record.actions]
        return self._actions.build_one(columns, self._objects.get(index, []))


def follow(plan: Plan, code: RecordedCode, before_op: Callable[[int], None]) -> Outcome:
    """Builds the env, and performs a plan until an op raises. Raises RecordError if the record does not suffice.

    `before_op` is called with the index of each op before the op begins.
    """
    reached = -1
    try:
        player = Player(code)
        for reached, op in enumerate(plan):
            before_op(reached)
            player.perform(op)
    except RecordError:
        raise
    except BaseException as error:
        name, message, traceback, _ = portable(error)
        return Outcome(reached, "raised", name, message, traceback)
    return Outcome(reached, "finished")


def debug(plan: Plan, code: RecordedCode, stops_before_last: bool) -> None:
    """Performs a plan in this process. The debugger shows the exception of the env.

    With `stops_before_last`, the debugger stops before the last call, with the variables `env`, `unwrapped` and `call`.
    """
    player = Player(code)
    env = player.env
    unwrapped = env.unwrapped  # noqa: F841 - like `env`, for the user of the debugger
    try:
        for op in plan[:-1]:
            player.perform(op)
        call = player.prepare(plan[-1])
        if stops_before_last:
            pdb.set_trace(header="`s` steps into the next `call` of `env`; `unwrapped` is the env without wrappers")
        call()
    except RecordError:
        raise
    except Exception as error:
        if not stops_before_last:
            pdb.post_mortem(error.__traceback__)
