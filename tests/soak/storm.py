"""A pool under many random faults: its envs fail and its workers are killed, while a model checks all its results."""

from __future__ import annotations

import logging
import os
import signal
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from chaos import FAULTS, FuseBox
from interrupting import Interrupt
from pool_envs import assert_same

from remuda import Batch, Pool

GRIEFS = 0.04  # the probability of a failure for each command
ATTACKS = 0.4  # the share of failures that are attacks from outside
INTERRUPTS = 0.03  # the probability of an interrupt in each call of the pool
SLOW = 0.12  # the share of failures that only a deadline ends; more would take too much time


def derived(seed: int, env_id: int, n: int) -> int:
    """Returns the seed of the n-th rebuilt env since `seed` was given, by the formula in docs/pool.md."""
    (state,) = np.random.SeedSequence(seed, spawn_key=(env_id, n)).generate_state(1)
    return int(state) % 2**31


@dataclass
class Episode:
    """The results of an env since a reset.

    Attributes:
        seed: The seed of the reset, from the env's info.
        first: The observation and info of the reset.
        steps: (action, observation, reward, terminated, truncated, info) of each step.
        over: Whether the episode has ended, by itself or by a fault.
    """

    seed: int
    first: tuple[Any, dict[str, Any]]
    steps: list[tuple[Any, ...]] = field(default_factory=list)
    over: bool = False

    @property
    def last_obs(self) -> Any:
        return self.steps[-1][1] if self.steps else self.first[0]


@dataclass
class Flight:
    """A command in flight.

    Attributes:
        seed: The seed of a requested reset.
        action: The action of a step. If both are None, the pool begins the next episode by itself.
    """

    seed: int | None = None
    action: Any = None


@dataclass(frozen=True)
class Row:
    """The row of an env in a batch."""

    obs: Any
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]

    @classmethod
    def of(cls, batch: Batch, i: int) -> Row:
        flags = bool(batch.terminations[i]), bool(batch.truncations[i])
        return cls(_row_of(batch.obs, i), float(batch.rewards[i]), *flags, batch.infos[i])

    @property
    def is_plain(self) -> bool:
        """Whether the row could follow a reset."""
        return (self.reward, self.terminated, self.truncated) == (0.0, False, False)


def _row_of(obs: Any, i: int) -> Any:
    if isinstance(obs, dict):
        return {key: _row_of(value, i) for key, value in obs.items()}
    return obs[i].copy() if isinstance(obs, np.ndarray) else obs[i]


@dataclass(frozen=True)
class Entry:
    """A fault in the log."""

    env_id: int
    worker: int
    text: str

    @property
    def shared(self) -> bool:
        return self.text.startswith(f"env {self.env_id} went with its worker: ")

    @property
    def kind(self) -> str:
        if " raised " in self.text:
            return "exception"
        return "death" if " died while " in self.text and " took longer than " not in self.text else "timeout"


class Witness(logging.Handler):
    """Collects all faults from the log, also those that appear in no row."""

    def __init__(self) -> None:
        super().__init__()
        self._entries: list[Entry] = []

    def emit(self, record: logging.LogRecord) -> None:
        self._entries += [Entry(*fault) for fault in vars(record)["faults"]]

    def take(self) -> list[Entry]:
        entries, self._entries = self._entries, []
        return entries

    @contextmanager
    def listening(self) -> Iterator[None]:
        logger = logging.getLogger("remuda")
        logger.addHandler(self)
        try:
            yield
        finally:
            logger.removeHandler(self)


class Storm:
    """Steps a pool of envs that fail, and checks all its results.

    The failures of an env with its n-th command, and of its worker from outside, follow from the seed, the env and n.
    Only workers that are already failing are spared. Each failure is reported as one fault of its kind, and faults of
    the worker's other envs are marked as `shared`. The checks do not depend on timing.

    Signals interrupt some calls of the pool by a handler that raises. The storm then discards all results in flight and
    resets all envs.
    """

    def __init__(self, pool: Pool, reference: Pool, box: FuseBox, witness: Witness, seed: int) -> None:
        """`reference`: a pool of one env of the same kind, without a fuse and without autoreset."""
        self._pool, self._reference, self._box, self._witness = pool, reference, box, witness
        self._seed, self._all_ids = seed, range(pool.num_envs)
        self._worker_of = {env_id: worker.index for worker in pool.workers for env_id in worker.env_ids}
        self._commands = [0] * pool.num_envs
        self._episodes: dict[int, Episode] = {}
        self._sent: dict[int, Flight] = {}  # commands in flight, by env
        self._troubles: dict[int, tuple[str, int | None]] = {}  # by worker: the kind of the expected fault, and its env
        self._sound: set[int] = set()  # workers that have answered since their last fault
        # by env: its given seed and the number of the last derived seed
        self._given: dict[int, tuple[int, int]] = {}
        # By env: the latest faults without a row. A fault between episodes, or in a reset, never has a row.
        self._unreported = {env_id: deque[str](maxlen=16) for env_id in self._all_ids}
        self.griefs: Counter[str] = Counter()
        self.reported = 0  # faults that arrived with a row
        self.played = 0  # repeated episodes
        self.interrupts = 0
        self._chances, self._is_calling = np.random.default_rng([seed, 1]), False

    @property
    def commands(self) -> int:
        """The number of commands sent."""
        return sum(self._commands)

    # -- the pool's user ---------------------------------------------------------------------------------

    def begin(self) -> None:
        while missing := [env_id for env_id in self._all_ids if env_id not in self._episodes]:
            self._send(missing, resets=True)
            self._recv()

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """A context in which calls of the pool may be interrupted."""
        before = signal.signal(signal.SIGALRM, self._interrupt)
        try:
            yield
        finally:
            signal.signal(signal.SIGALRM, before)

    def _interrupt(self, *_: Any) -> None:
        if self._is_calling:
            self._is_calling = False
            self.interrupts += 1
            raise Interrupt

    @contextmanager
    def _calling(self) -> Iterator[None]:
        if signal.getsignal(signal.SIGALRM) != self._interrupt or self._chances.random() >= INTERRUPTS:
            yield
            return
        signal.setitimer(signal.ITIMER_REAL, 1e-5 + self._chances.exponential(0.003))
        try:
            self._is_calling = True
            yield
        finally:
            self._is_calling = False
            signal.setitimer(signal.ITIMER_REAL, 0)

    def go_on(self, min_envs: int | None) -> None:
        """One round of steps, of all envs or of those that are done first."""
        try:
            self.step_all() if min_envs is None else self.step_some(min_envs)
        except Interrupt:
            self._restart_all()

    def _restart_all(self) -> None:
        """Resets all envs after an interrupt, which may have lost results and faults."""
        self._box.disarm()
        self._pool.discard()
        self._sent.clear()
        self._witness.take()
        seeds = [10**9 + 10**6 * (env_id + 1) + self._commands[env_id] for env_id in self._all_ids]
        rows = dict[int, Row]()
        while missing := [env_id for env_id in self._all_ids if env_id not in rows]:  # again, if faults are reported
            batch = self._pool.reset(seed=[seeds[env_id] for env_id in missing], env_ids=missing)
            assert len(batch) == len(missing)  # it also waits for the successors of failed workers
            each = {env_id: Row.of(batch, i) for i, env_id in enumerate(missing)}
            rows |= {env_id: row for env_id, row in each.items() if "fault" not in row.info}
        self._witness.take()
        self._troubles.clear()
        self._sound.clear()
        for env_id, row in rows.items():
            assert row.is_plain, row
            self._begin(env_id, row.obs, row.info, Flight(seeds[env_id]))

    def step_all(self, *, calm: bool = False) -> None:
        """One round in which all envs step together. `calm`: without new failures."""
        while over := self._to_reset(self._all_ids):  # again, if a reset has failed and that is reported
            self._send(over, resets=True, calm=calm)
            self._recv()
        self._send(self._all_ids, calm=calm)
        self._recv_all()

    def step_some(self, min_envs: int) -> None:
        """One round that steps the envs that are done first."""
        idle = [env_id for env_id in self._all_ids if env_id not in self._sent]
        over = self._to_reset(idle)
        self._send(over, resets=True)
        self._send([env_id for env_id in idle if env_id not in over])
        self._recv(min_envs=min_envs)

    def settle(self) -> None:
        """Steps until no failure is pending, all workers have the same fork server, and each has answered."""
        self._recv_all()
        self._end_troubles()
        for worker in range(len(self._pool.workers)):  # an interrupt may have ended the fork server of some workers
            self._troubles[worker] = "death", None
            self._hit(worker, signal.SIGKILL)
        self._end_troubles()
        for env_id in self._all_ids:
            self._check_episode(env_id)

    def _end_troubles(self) -> None:
        while self._troubles:  # a worker that was hit while idle, or an env that has not reached its planned failure
            self.step_all(calm=True)
        self.step_all(calm=True)

    def _to_reset(self, env_ids: Sequence[int]) -> list[int]:
        """Returns the envs that the autoreset mode does not reset."""
        if self._pool.autoreset != "disabled":
            return []
        return [env_id for env_id in env_ids if self._episodes[env_id].over]

    def _send(self, env_ids: Sequence[int], *, resets: bool = False, calm: bool = False) -> None:
        if not env_ids:
            return
        attacks = [None if calm else self._prepare(env_id) for env_id in env_ids]
        for env_id in env_ids:
            self._next_command(env_id)
        if resets:
            seeds = [10**9 + self._box.seed(env_id) for env_id in env_ids]  # other seeds than those in the file
            with self._calling():
                self._pool.send_reset(seed=seeds, env_ids=env_ids)
            self._sent |= {env_id: Flight(seed) for env_id, seed in zip(env_ids, seeds, strict=True)}
        else:
            actions = np.array([self._rng(env_id, "action").integers(2) for env_id in env_ids])
            with self._calling():
                self._pool.send(actions, None if len(env_ids) == len(self._all_ids) else env_ids)
            self._sent |= {env_id: Flight(action=a) for env_id, a in zip(env_ids, actions, strict=True)}
        for attack in filter(None, attacks):
            self._hit(*attack)

    def _recv_all(self) -> None:
        """Receives until no env is in flight. Background resets follow the rows that end episodes."""
        while self._sent:
            self._recv()

    def _recv(self, **limits: Any) -> None:
        with self._calling():
            batch = self._pool.recv(**limits)
        gone = self._count_faults()  # results from before a fault may still be in this batch
        for i, env_id in enumerate(batch.env_ids.tolist()):
            reported_before, worker = self.reported, self._worker_of[env_id]
            self._note(env_id, Row.of(batch, i))
            # neither this row nor the log reports a fault of the worker
            if self.reported == reported_before and worker not in gone:
                self._sound.add(worker)

    def _next_command(self, env_id: int) -> None:
        self._commands[env_id] += 1
        self._box.set_seed(env_id, 10**6 * (env_id + 1) + self._commands[env_id])

    def _rng(self, env_id: int, purpose: str) -> np.random.Generator:
        """Returns the same generator for the same command, whatever happened before."""
        return np.random.default_rng([self._seed, env_id, self._commands[env_id], *purpose.encode()])

    # -- griefs --------------------------------------------------------------------------------------------

    def _prepare(self, env_id: int) -> tuple[int, signal.Signals] | None:
        """Plans a failure for the next command. Returns an attack on the worker that follows the command, or None."""
        rng, worker = self._rng(env_id, "grief"), self._worker_of[env_id]
        chance, is_attack, is_slow = rng.random(), rng.random() < ATTACKS, rng.random() < SLOW
        if chance > GRIEFS or worker in self._troubles:
            return None
        if not is_attack:
            kind = str(rng.choice([kind for kind in FAULTS if (FAULTS[kind] == "timeout") == is_slow]))
            self._box.arm(env_id, kind, delay=int(rng.integers(2)))
            self._expect(worker, FAULTS[kind], env_id, kind)
            return None
        number = signal.SIGSTOP if is_slow else signal.SIGKILL
        if is_slow and worker not in self._sound:
            return None  # the worker's successor may still be building, which has a longer limit
        if not self._pool.workers[worker].is_alive():
            return None  # the worker's successor has not been started
        self._expect(worker, "timeout" if is_slow else "death", None, number.name)
        if rng.random() < 0.5:
            return worker, number
        self._hit(worker, number)
        return None

    def _expect(self, worker: int, kind: str, env_id: int | None, grief: str) -> None:
        self._troubles[worker] = kind, env_id
        self.griefs[grief] += 1

    def _hit(self, worker: int, number: signal.Signals) -> None:
        pid = self._pool.workers[worker].pid
        assert pid is not None
        os.kill(pid, number)

    def _count_faults(self) -> set[int]:
        """Checks that each new fault is the expected one, or a shared one of the same worker. Returns these workers."""
        by_worker: dict[int, list[Entry]] = {}
        for fault in self._witness.take():
            by_worker.setdefault(fault.worker, []).append(fault)
            self._unreported[fault.env_id].append(fault.text)
        for worker, faults in by_worker.items():
            self._sound.discard(worker)
            alone = [fault for fault in faults if not fault.shared]
            assert len(alone) == 1 and worker in self._troubles, (self._troubles.get(worker), faults)
            kind, env_id = self._troubles.pop(worker)
            assert (alone[0].kind, alone[0].env_id) == (kind, alone[0].env_id if env_id is None else env_id), alone
            lost = (env_id,) if kind == "exception" else self._pool.workers[worker].env_ids
            assert sorted(fault.env_id for fault in faults) == sorted(lost), faults
        return set(by_worker)

    # -- the model -----------------------------------------------------------------------------------------

    def _note(self, env_id: int, row: Row) -> None:
        flight = self._sent.pop(env_id)
        same_step = self._pool.autoreset == "same_step"
        if flight.seed is not None and "fault" in row.info:  # with reported resets
            self._note_fault(env_id, row)
        elif flight.seed is not None:
            assert row.is_plain, row
            self._begin(env_id, row.obs, row.info, flight)
        elif self._episodes[env_id].over:  # the step was an autoreset
            assert self._pool.autoreset in ("next_step", "background") and row.is_plain, row
            self._begin(env_id, row.obs, row.info, flight)
        elif same_step and (row.terminated or row.truncated):
            fresh = dict(row.info)
            terminal = Row(fresh.pop("final_obs"), row.reward, row.terminated, row.truncated, fresh.pop("final_info"))
            self._note_step(env_id, flight.action, terminal)
            self._begin(env_id, row.obs, fresh, flight)
        else:
            self._note_step(env_id, flight.action, row)
            if self._episodes[env_id].over and self._pool.autoreset == "background":
                self._sent[env_id] = Flight()

    def _begin(self, env_id: int, obs: Any, info: dict[str, Any], flight: Flight) -> None:
        """`flight`: the command that begins the episode."""
        if env_id in self._episodes:
            self._check_episode(env_id)
        seed = int(info.pop("seed"))
        if flight.seed is not None:
            assert seed == flight.seed
            self._given[env_id] = seed, 0
        elif seed != self._box.seed(env_id):  # the env was rebuilt with a derived seed, and each of those is used once
            base, n = self._given[env_id]
            numbers = [later for later in range(n + 1, n + 1000) if derived(base, env_id, later) == seed]
            assert len(numbers) == 1, (env_id, seed, base, n)
            self._given[env_id] = base, numbers[0]
        self._episodes[env_id] = Episode(seed, (obs, info))

    def _note_step(self, env_id: int, action: Any, row: Row) -> None:
        episode = self._episodes[env_id]
        episode.over = row.terminated or row.truncated
        if "fault" not in row.info:
            episode.steps.append((action, row.obs, row.reward, row.terminated, row.truncated, row.info))
            return
        self._note_fault(env_id, row)

    def _note_fault(self, env_id: int, row: Row) -> None:
        """Checks the row of a fault: that of a step, which ends the episode, or of a reset."""
        text = str(row.info["fault"])
        assert text in self._unreported[env_id], row
        while (
            self._unreported[env_id].popleft() != text
        ):  # a later fault, of the following episode, may still have a row
            pass
        assert (row.reward, row.terminated, row.truncated, list(row.info)) == (0.0, False, True, ["fault"]), row
        if env_id in self._episodes:
            assert_same(row.obs, self._episodes[env_id].last_obs)
        self.reported += 1

    def _check_episode(self, env_id: int) -> None:
        """Repeats the episode in the reference pool, without failures, and compares the results."""
        episode = self._episodes[env_id]
        batch = self._reference.reset(seed=[episode.seed])
        assert_same(episode.first, (_row_of(batch.obs, 0), batch.infos[0]), f"beginning of env {env_id}")
        for number, (action, *reported) in enumerate(episode.steps, 1):
            row = Row.of(self._reference.step(np.array([action])), 0)
            expected = [row.obs, row.reward, row.terminated, row.truncated, row.info]
            assert_same(reported, expected, f"step {number} of env {env_id}")
        self.played += 1
