"""The data of a crash record, with which a failure of an env can be reproduced."""

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
    """The failure of an env, as a crash record describes it.

    Attributes:
        kind: "death", "timeout", "exception" or "corrupt".
        operation: The operation of its worker: "reset", "step", "observe", "call" or "nothing".
        error: The text of the pool's error.
        type_name, message, traceback: The class, text and traceback of the env's exception; empty without one.
        exitcode: The exit code of a worker that died, negative for a signal; None if it is not known.
        deadline: The limit that was missed, in seconds; None if none was missed.
        stack: The Python stack when the deadline was missed, the innermost call first; empty if it is not known.
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
class EpisodeStart:
    """The start of an episode.

    Attributes:
        seed: The seed of the reset; None if it had none.
        options: The options of the reset, if they are plain data.
        pickled_options: Other options, as a pickle, which can run any code when it is loaded.
        options_lost: The reason why options are missing; empty if none are.
        random: The state of `env.unwrapped.np_random` before that reset, as plain data; None if it is unknown.
        random_unknown: The reason why it is unknown; empty if it is known.
    """

    seed: int | None = None
    options: Mapping[str, Any] | None = None
    pickled_options: bytes | None = field(default=None, repr=False)
    options_lost: str = ""
    random: Mapping[str, Any] | None = field(default=None, repr=False)
    random_unknown: str = ""

    @property
    def is_known(self) -> bool:
        """Whether a replay can repeat the start: the seed or random state, and all options, are recorded."""
        return not self.options_lost and (self.seed is not None or self.random is not None)


@dataclass(frozen=True, eq=False)
class CrashRecord:
    """A crash record: a pool with `crash_dir=` writes one if an env fails, and `remuda replay` repeats the failure.

    Attributes:
        path: The path of its file.
        env_id, worker, num_workers, pid, backend, autoreset: The env, its worker, and the pool's settings.
        env_ids: The envs of that worker.
        episode, step: The progress of the env; see `EnvProgress`.
        fault: The failure.
        start: The start of the last episode; None if it is not known.
        seeded: The start of the last episode with a seed, if everything since then is recorded; otherwise None.
        kinds: (n,) uint8. The operations on the env, oldest first: 0 built, 1 reset, 2 reset with a seed, 3 reset
            with options only, 4 step, 5 state restored (`Pool.set_state`); the state is not recorded. The env failed in
            the last one, or after it.
        actions: An (n, ...) array for each array leaf of the action space, in the order of `kinds`; only rows of steps
            have a meaning.
        entries: The number of all operations on the env. Those older than `kinds` are not recorded.
        calls: The number of calls of the env (`call`, `apply`, `set_attr`, `render`) since it was built. Their effects
            are not recorded.
        observation_space, action_space: The spaces as text.
        spec_id: The env's id in Gymnasium's registry, if it has one.
        versions: The versions of "python", "numpy", "gymnasium" and "remuda", and the "platform".
        factory: The env's factory, as text.
        sys_path, cwd: The import path and working directory of the pool's process.
        when: The time of the fault, in ISO 8601.
        pickles: By name: the factory, the env's spec, and the parts of actions without a
            fixed size. Loading a pickle can run any code: do so only with files that you trust.
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
    start: EpisodeStart | None
    seeded: EpisodeStart | None
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
        """The index in `kinds` of the last episode's reset; None if the reset is not recorded, or was never made."""
        begun = np.flatnonzero(np.isin(self.kinds, (_core.Entry.MADE.value, *_RESETS)))
        return int(begun[-1]) if len(begun) and self.kinds[begun[-1]] != _core.Entry.MADE.value else None

    @property
    def seeded_at(self) -> int | None:
        """The index in `kinds` of the last reset with a seed; None if none has one, or no replay can start there."""
        seeded = np.flatnonzero(self.kinds == _core.Entry.SEEDED_RESET.value)
        if not len(seeded) or self.seeded is None or not self.seeded.is_known:
            return None
        since = self.kinds[seeded[-1] + 1 :]
        disturbances = (_core.Entry.MADE.value, _core.Entry.OPTIONS_RESET.value, _core.Entry.RESTORED.value)
        return None if np.isin(since, disturbances).any() else int(seeded[-1])

    @property
    def is_whole(self) -> bool:
        """Whether the last episode can be repeated from its start."""
        is_known = self.begins_at is not None and self.start is not None and self.start.is_known
        return is_known and not self.is_restored

    @property
    def is_restored(self) -> bool:
        """Whether a state was restored in the last episode. If so, no replay can repeat the episode from its start."""
        return bool((self.kinds[self.begins_at or 0 :] == _core.Entry.RESTORED.value).any())

    @property
    def is_first_episode(self) -> bool:
        """Whether the last episode is the env's first since it was built."""
        at = self.begins_at
        return at is not None and at > 0 and bool(self.kinds[at - 1] == _core.Entry.MADE.value)
