"""The data of a crash record: all that is needed to make an env fail again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from remuda import _core

_RESETS = tuple(int(entry.value) for entry in (_core.Entry.RESET, _core.Entry.SEEDED_RESET, _core.Entry.OPTIONS_RESET))


@dataclass(frozen=True)
class RecordedFault:
    """How it failed.

    Attributes:
        kind: "death", "timeout", "exception" or "corrupt".
        operation: What its worker was doing: "reset", "step", "call" or "nothing".
        error: The error's text, as the pool reported it.
        type_name, message, traceback: Of an exception: its class, text, and the worker's traceback; else empty.
        exitcode: Of a worker that died: negative for a signal; None when that is not known.
        deadline: The limit that was missed, in seconds; None when none was.
        stack: The Python calls that the env was in when it was, the last first; empty where they are not known.
    """

    kind: str
    operation: str
    error: str
    type_name: str = ""
    message: str = ""
    traceback: str = ""
    exitcode: int | None = None
    deadline: float | None = None
    stack: str = ""


@dataclass(frozen=True)
class Beginning:
    """How an episode began.

    Attributes:
        seed: Of its reset; None for none.
        options: Of its reset, where they are plain data.
        pickled_options: Where they are not: a pickle, which can run any code when it is loaded.
        options_lost: Why they are missing, where there were some that are not here; else empty.
        random: The state of `env.unwrapped.np_random` before that reset, as plain data; None where it is unknown.
        random_unknown: Why it is; else empty.
    """

    seed: int | None = None
    options: Mapping[str, Any] | None = None
    pickled_options: bytes | None = field(default=None, repr=False)
    options_lost: str = ""
    random: Mapping[str, Any] | None = field(default=None, repr=False)
    random_unknown: str = ""

    @property
    def is_known(self) -> bool:
        """Whether it can be done again: with a seed, or from the random state of then."""
        return not self.options_lost and (self.seed is not None or self.random is not None)


@dataclass(frozen=True, eq=False)
class Record:
    """A crash record: a pool with `record=` writes one if an env fails, and `remuda replay` runs it again.

    Attributes:
        path: Its file.
        env_id, worker, num_workers, pid, backend, autoreset: Of the env, its worker and the pool.
        env_ids: The envs of that worker.
        episode, step: How far the env had come, as `EnvProgress` has it.
        fault: How it failed.
        beginning: Of the last episode; None where that is not known.
        seeded: Of the last episode that was given a seed, when all that was done since then is here; else None.
        kinds: (n,) uint8. What was done to the env, oldest first: 0 it was made, 1 reset, 2 reset with a seed, 3 reset
            with options only, 4 stepped, 5 put into a state (`Pool.set_state`), which is not here. The last is what it
            never answered, unless it failed between two of them.
        actions: An (n, ...) array for each array leaf of the action space, in the order of `kinds`; only rows of steps
            mean anything.
        entries: How much had been done to the env in all; what is older than `kinds` is gone.
        calls: How often the program had called the env (`call`, `apply`, `set_attr`, `render`) since it was made. What
            those did is not recorded.
        observation_space, action_space: As text.
        spec_id: The env's id in Gymnasium's registry, if it has one.
        versions: Of "python", "numpy", "gymnasium", "remuda", and the "platform".
        factory: What built the env, as text.
        sys_path, cwd: Of the pool's process.
        when: The time of the fault, in ISO 8601.
        pickles: By name: the factory, the row's observation space, the env's spec, and the parts of actions without a
            fixed size. Loading one can run any code: do so only with files that you trust.
    """

    path: Path
    env_id: int
    worker: int
    num_workers: int
    env_ids: tuple[int, ...]
    pid: int | None
    backend: str
    autoreset: str
    episode: int | None
    step: int
    fault: RecordedFault
    beginning: Beginning | None
    seeded: Beginning | None
    kinds: np.ndarray[Any, np.dtype[np.uint8]] = field(repr=False)
    actions: tuple[np.ndarray[Any, Any], ...] = field(repr=False)
    entries: int
    calls: int
    observation_space: str
    action_space: str
    spec_id: str | None
    versions: Mapping[str, str]
    factory: str
    sys_path: tuple[str, ...] = field(repr=False)
    cwd: str
    when: str
    pickles: Mapping[str, bytes] = field(repr=False)

    @property
    def begins_at(self) -> int | None:
        """Index in `kinds` where the last episode begins; None if it is gone, or the env had none since it was made."""
        begun = np.flatnonzero(np.isin(self.kinds, (_core.Entry.MADE.value, *_RESETS)))
        return int(begun[-1]) if len(begun) and self.kinds[begun[-1]] != _core.Entry.MADE.value else None

    @property
    def seeded_at(self) -> int | None:
        """Index in `kinds` of the last reset with a seed, if everything since then can be done again; else None."""
        seeded = np.flatnonzero(self.kinds == _core.Entry.SEEDED_RESET.value)
        if not len(seeded) or self.seeded is None or not self.seeded.is_known:
            return None
        since = self.kinds[seeded[-1] + 1 :]
        disturbances = (_core.Entry.MADE.value, _core.Entry.OPTIONS_RESET.value, _core.Entry.RESTORED.value)
        return None if np.isin(since, disturbances).any() else int(seeded[-1])

    @property
    def is_whole(self) -> bool:
        """Whether the last episode can be run again from its beginning."""
        is_known = self.begins_at is not None and self.beginning is not None and self.beginning.is_known
        return is_known and not self.is_restored

    @property
    def is_restored(self) -> bool:
        """Whether the env was put into a state in its last episode, so that this does not follow from its beginning."""
        return bool((self.kinds[self.begins_at or 0 :] == _core.Entry.RESTORED.value).any())

    @property
    def is_first_episode(self) -> bool:
        """Whether the env had not been reset before the last episode began, since it was made."""
        at = self.begins_at
        return at is not None and at > 0 and bool(self.kinds[at - 1] == _core.Entry.MADE.value)
