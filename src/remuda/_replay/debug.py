"""Replays in the caller's process, with a debugger where it breaks."""

from __future__ import annotations

import pdb
from bdb import BdbQuit
from typing import Any

from remuda._crash.record import Record
from remuda._replay.harness import Stage
from remuda._replay.outcome import Ending
from remuda._replay.plan import Deed, Reset, Script
from remuda._replay.play import describe
from remuda._replay.unpickling import Unsealed
from remuda._worker.worker_info import WorkerInfo, settle_in_process


def debug(record: Record, unsealed: Unsealed, script: Script) -> Ending:
    """Follows a script. Where the env raises, the debugger looks at the exception; where it did not raise then but
    die or hang, the debugger stops before the call that it did that in, with `env` and the call's arguments in sight.

    Raises: RecordError.
    """
    settle_in_process(WorkerInfo(record.worker, record.num_workers, record.env_ids))
    stage = Stage(record, unsealed)
    try:
        return _follow(record, script, stage)
    finally:
        stage.close()


def _follow(record: Record, script: Script, stage: Stage) -> Ending:
    stops = script.is_cut or record.fault.kind != "exception"
    for i, deed in enumerate(script.deeds):
        if stops and i == len(script.deeds) - 1:
            return _stop_before(stage, deed, i)
        stage.perform(deed)
        if stage.error is not None:
            pdb.post_mortem(stage.error.__traceback__)
            return Ending(i, raised=describe(stage.error, stage.operation))
    return Ending(len(script.deeds) - 1, finished=True)


def _stop_before(stage: Stage, deed: Deed, index: int) -> Ending:
    try:
        if isinstance(deed, Reset):
            reset_here(stage.env, stage.prepare(deed))
        else:
            step_here(stage.env, stage.action(deed.index))
    except BdbQuit:
        return Ending(index)
    except Exception as error:
        return Ending(index, raised=describe(error, "reset" if isinstance(deed, Reset) else "step"))
    return Ending(index, finished=True)


def step_here(env: Any, action: Any) -> Any:
    pdb.set_trace(header="`env` is about to step, with `action`; `s` steps into it")
    return env.step(action)


def reset_here(env: Any, arguments: dict[str, Any]) -> Any:
    pdb.set_trace(header="`env` is about to be reset, with `arguments`; `s` steps into it")
    return env.reset(**arguments)
