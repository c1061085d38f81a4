"""A pool in a storm: its envs come to grief and its workers are killed, while somebody keeps book of all it tells."""

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
from chaos import FAULTS, FuseBox, options_for
from pool_envs import assert_same

from remuda import Batch, Pool

GRIEFS = 0.04  # for each command
ATTACKS = 0.4  # of the griefs: from outside
INTERRUPTS = 0.03  # for each call of the pool
CHANGES = 0.04  # of the options of resets: before each command, and behind it
SPREADS = [0.0, 0.01, 0.02, 0.04]  # what they are, `chaos.options_for`
SLOW = 0.12  # of the griefs: those that only a deadline ends. More of them would take all the time


class Interrupt(BaseException):
    """What the handler of a signal raises, wherever its caller is just then."""


def derived(seed: int, env_id: int, n: int) -> int:
    """The seed of the n-th env that was rebuilt since this seed was given, as docs/pool.md has it."""
    (state,) = np.random.SeedSequence(seed, spawn_key=(env_id, n)).generate_state(1)
    return int(state) % 2**31


@dataclass
class Episode:
    """What an env told since a reset.

    Attributes:
        seed: Of the reset, as the env says.
        spread: What its options were, `chaos.options_for`.
        first: Observation and info of the reset.
        steps: (action, observation, reward, terminated, truncated, info) of each step.
        over: Whether it has ended, by itself or by a fault.
    """

    seed: int
    spread: float
    first: tuple[Any, dict[str, Any]]
    steps: list[tuple[Any, ...]] = field(default_factory=list)
    over: bool = False

    @property
    def last_obs(self) -> Any:
        return self.steps[-1][1] if self.steps else self.first[0]


@dataclass
class Flight:
    """A command that an env was sent.

    Attributes:
        seed: Of a reset that was asked for.
        action: Of a step. Neither: the pool begins the next episode by itself.
        spreads: The options of resets since it was sent: those of then, and what they were set to meanwhile. The first
            hold; but an env that is rebuilt on the way is told the last ones.
        faults: How many the env had had when it was sent; -1: its worker may not have been there yet.
    """

    seed: int | None
    action: Any
    spreads: list[float]
    faults: int


@dataclass(frozen=True)
class Row:
    """What a batch has of one env."""

    obs: Any
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]

    @classmethod
    def of(cls, batch: Batch, i: int) -> Row:
        flags = bool(batch.terminated[i]), bool(batch.truncated[i])
        return cls(_row_of(batch.obs, i), float(batch.reward[i]), *flags, batch.infos[i])

    @property
    def is_plain(self) -> bool:
        """As after a reset."""
        return (self.reward, self.terminated, self.truncated) == (0.0, False, False)


def _row_of(obs: Any, i: int) -> Any:
    if isinstance(obs, dict):
        return {key: _row_of(value, i) for key, value in obs.items()}
    return obs[i].copy() if isinstance(obs, np.ndarray) else obs[i]


@dataclass(frozen=True)
class Entry:
    """What the log says of a fault."""

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
    """Reads of every fault that the pool bears, also of those that no row tells."""

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
    """Steps a pool whose envs come to grief, and checks all that it tells.

    What an env is to suffer with its n-th command, or its worker from outside, follows from the seed, the env and n
    alone; only whose worker is in trouble already is spared. Nothing that is checked depends on when anything happens:

    - each grief is told as one fault of its own kind, and envs that only went with their worker say so (`shared`);
    - a fault in an episode ends it, truncated, with the last observation once more;
    - every episode, up to its end or its fault, is bit by bit what a serial pool makes of its seed, its options and its
      actions;
    - its options are those that the env was to remember when it was sent what began the episode.

    Some calls of the pool are cut short by a signal whose handler raises. Then whatever is in flight is discarded, and
    all envs begin again.
    """

    def __init__(self, pool: Pool, reference: Pool, box: FuseBox, witness: Witness, seed: int) -> None:
        """`reference`: one env of the same kind, without a fuse, that is never reset by itself."""
        self._pool, self._reference, self._box, self._witness = pool, reference, box, witness
        self._seed, self._everybody = seed, range(pool.num_envs)
        self._worker_of = {env_id: worker.index for worker in pool.workers for env_id in worker.env_ids}
        self._commands = [0] * pool.num_envs
        self._episodes: dict[int, Episode] = {}
        self._sent: dict[int, Flight] = {}  # by env in flight
        self._spreads = [0.0] * pool.num_envs  # of the options that envs remember
        self._num_faults = [0] * pool.num_envs
        self._troubles: dict[int, tuple[str, int | None]] = {}  # by worker: the kind of the fault to come, and its env
        self._changed: set[int] = set()  # envs with other reset options since their trouble began
        self._sound: set[int] = set()  # workers that have answered since their last fault
        self._given: dict[int, tuple[int, int]] = {}  # by env: the seed it was given, and the last derived one
        # By env: the latest faults that no row has told. One that came between episodes, or in a reset, stays untold.
        self._untold = {env_id: deque[str](maxlen=16) for env_id in self._everybody}
        self.griefs: Counter[str] = Counter()
        self.told = 0  # faults that came with a row
        self.played = 0  # episodes
        self.interrupts = 0
        self.settings = 0  # of options
        self._chances, self._is_calling = np.random.default_rng([seed, 1]), False

    @property
    def commands(self) -> int:
        """How many have been sent."""
        return sum(self._commands)

    # -- the pool's user ---------------------------------------------------------------------------------

    def begin(self) -> None:
        self._send(self._everybody, resets=True)
        self._recv()

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """While this lasts, calls of the pool may be cut short."""
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
        """One round, of all or of those that are done first."""
        try:
            self.step_all() if min_envs is None else self.step_some(min_envs)
        except Interrupt:
            self._begin_anew()

    def _begin_anew(self) -> None:
        """Nobody knows what was told last, nor which faults: both may have been lost on the way to us."""
        self._box.disarm()
        self._pool.discard()
        self._sent.clear()
        self._witness.take()
        self._remember({env_id: float(self._rng(env_id, "anew").choice(SPREADS)) for env_id in self._everybody})
        seeds = [10**9 + 10**6 * (env_id + 1) + self._commands[env_id] for env_id in self._everybody]
        batch = self._pool.reset(seed=seeds)  # whoever was hit has a successor that answers this
        assert len(batch) == len(self._everybody)
        self._witness.take()
        self._troubles.clear()
        self._sound.clear()
        for env_id in self._everybody:
            row = Row.of(batch, env_id)
            assert row.is_plain, row
            self._begin(env_id, row.obs, row.info, self._flight(env_id, seed=seeds[env_id]))

    def step_all(self, *, calm: bool = False) -> None:
        """One round in which all envs step together; `calm`: without further griefs."""
        if over := self._to_reset(self._everybody):
            self._send(over, resets=True, calm=calm)
            self._recv()
        self._send(self._everybody, calm=calm)
        self._recv_all()

    def step_some(self, min_envs: int) -> None:
        """One round in which those go on that are done first."""
        idle = [env_id for env_id in self._everybody if env_id not in self._sent]
        over = self._to_reset(idle)
        self._send(over, resets=True)
        self._send([env_id for env_id in idle if env_id not in over])
        self._recv(min_envs=min_envs)

    def settle(self) -> None:
        """Goes on until no trouble is left, all workers come from the same fork server, and each has answered."""
        self._recv_all()
        self._end_troubles()
        for worker in range(len(self._pool.workers)):  # an interrupt may have cost the server of some of them
            self._troubles[worker] = "death", None
            self._hit(worker, signal.SIGKILL)
        self._end_troubles()
        for env_id in self._everybody:
            self._play_again(env_id)

    def _end_troubles(self) -> None:
        while self._troubles:  # of a worker that was hit while it was idle, or an env with a fuse that still burns
            lost = [worker for worker in self._troubles if self._may_be_lost(*self._troubles[worker])]
            self.step_all(calm=True)
            for worker in lost:
                self._troubles.pop(worker, None)
        self.step_all(calm=True)

    def _may_be_lost(self, kind: str, env_id: int | None) -> bool:
        """Whether an env may have raised in a reset in advance, which other options have discarded with its error."""
        return kind == "exception" and env_id in self._changed and not self._box.is_armed(env_id)

    def _to_reset(self, env_ids: Sequence[int]) -> list[int]:
        """Those that nobody but us resets."""
        if self._pool.autoreset != "disabled":
            return []
        return [env_id for env_id in env_ids if self._episodes[env_id].over]

    def _send(self, env_ids: Sequence[int], *, resets: bool = False, calm: bool = False) -> None:
        if not env_ids:
            return
        attacks = [None if calm else self._prepare(env_id) for env_id in env_ids]
        for env_id in env_ids:
            self._next_command(env_id)
        self._set_options(env_ids, "before")
        if resets:
            seeds = [10**9 + self._box.seed(env_id) for env_id in env_ids]  # not those of the box
            with self._calling():
                self._pool.send_reset(seed=seeds, env_ids=env_ids)
            self._sent |= {env_id: self._flight(env_id, seed=seed) for env_id, seed in zip(env_ids, seeds, strict=True)}
        else:
            actions = np.array([self._rng(env_id, "action").integers(2) for env_id in env_ids])
            with self._calling():
                self._pool.send(actions, None if len(env_ids) == len(self._everybody) else env_ids)
            self._sent |= {env_id: self._flight(env_id, action=a) for env_id, a in zip(env_ids, actions, strict=True)}
        for attack in filter(None, attacks):
            self._hit(*attack)
        self._set_options(env_ids, "behind")

    def _flight(self, env_id: int, *, seed: int | None = None, action: Any = None) -> Flight:
        faults = self._num_faults[env_id] if self._worker_of[env_id] in self._sound else -1
        return Flight(seed, action, [self._spreads[env_id]], faults)

    def _set_options(self, env_ids: Sequence[int], when: str) -> None:
        """Has some of these envs remember others, in flight or not."""
        rngs = {env_id: self._rng(env_id, f"options {when}") for env_id in env_ids}
        spreads = {env_id: float(rng.choice(SPREADS)) for env_id, rng in rngs.items() if rng.random() < CHANGES}
        if spreads:
            with self._calling():
                self._remember(spreads)

    def _remember(self, spreads: dict[int, float]) -> None:
        self._pool.set_reset_options([options_for(spread) for spread in spreads.values()], list(spreads))
        for env_id, spread in spreads.items():
            self._spreads[env_id] = spread
            self._changed.add(env_id)
            if env_id in self._sent:
                self._sent[env_id].spreads.append(spread)
        self.settings += 1

    def _recv_all(self) -> None:
        """Background resets too, which follow the rows that end episodes."""
        while self._sent:
            self._recv()

    def _recv(self, **limits: Any) -> None:
        with self._calling():
            batch = self._pool.recv(**limits)
        gone = self._count_faults()  # what they did before may still be in this batch
        for i, env_id in enumerate(batch.env_ids.tolist()):
            told_before, worker = self.told, self._worker_of[env_id]
            self._note(env_id, Row.of(batch, i))
            if self.told == told_before and worker not in gone:  # nor did the pool say it in the place of one to come
                self._sound.add(worker)

    def _next_command(self, env_id: int) -> None:
        self._commands[env_id] += 1
        self._box.set_seed(env_id, 10**6 * (env_id + 1) + self._commands[env_id])

    def _rng(self, env_id: int, what: str) -> np.random.Generator:
        """The same for the same command, whatever came before."""
        return np.random.default_rng([self._seed, env_id, self._commands[env_id], *what.encode()])

    # -- griefs --------------------------------------------------------------------------------------------

    def _prepare(self, env_id: int) -> tuple[int, signal.Signals] | None:
        """Before a command: what its env is to suffer. Returns an attack on the worker that is to follow it."""
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
            return None  # its successor may still be building, for which it has more time
        if not self._pool.workers[worker].is_alive():
            return None  # its successor has not been started yet
        self._expect(worker, "timeout" if is_slow else "death", None, number.name)
        if rng.random() < 0.5:
            return worker, number
        self._hit(worker, number)
        return None

    def _expect(self, worker: int, kind: str, env_id: int | None, grief: str) -> None:
        self._troubles[worker] = kind, env_id
        if env_id is not None:
            self._changed.discard(env_id)
        self.griefs[grief] += 1

    def _hit(self, worker: int, number: signal.Signals) -> None:
        pid = self._pool.workers[worker].pid
        assert pid is not None
        os.kill(pid, number)

    def _count_faults(self) -> set[int]:
        """Each is the one that was to come, or its shadow on the other envs of the worker. Returns these workers."""
        by_worker: dict[int, list[Entry]] = {}
        for fault in self._witness.take():
            by_worker.setdefault(fault.worker, []).append(fault)
            self._untold[fault.env_id].append(fault.text)
            self._num_faults[fault.env_id] += 1
        for worker, faults in by_worker.items():
            self._sound.discard(worker)
            alone = [fault for fault in faults if not fault.shared]
            assert len(alone) == 1 and worker in self._troubles, (self._troubles.get(worker), faults)
            kind, env_id = self._troubles.pop(worker)
            assert (alone[0].kind, alone[0].env_id) == (kind, alone[0].env_id if env_id is None else env_id), alone
            lost = (env_id,) if kind == "exception" else self._pool.workers[worker].env_ids
            assert sorted(fault.env_id for fault in faults) == sorted(lost), faults
        return set(by_worker)

    # -- the book ------------------------------------------------------------------------------------------

    def _note(self, env_id: int, row: Row) -> None:
        flight = self._sent.pop(env_id)
        same_step = self._pool.autoreset == "same_step"
        if flight.seed is not None:
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
                self._sent[env_id] = self._flight(env_id)

    def _begin(self, env_id: int, obs: Any, info: dict[str, Any], flight: Flight) -> None:
        """`flight`: the command that was answered by the beginning of an episode."""
        if env_id in self._episodes:
            self._play_again(env_id)
        seed, spread = int(info.pop("seed")), float(info.pop("spread"))
        may_be = flight.spreads if self._num_faults[env_id] > flight.faults else flight.spreads[:1]
        assert spread in may_be, (env_id, spread, flight)
        if flight.seed is not None:
            assert seed == flight.seed
            self._given[env_id] = seed, 0
        elif seed != self._box.seed(env_id):  # it was rebuilt: the pool derives one, and never one twice
            base, n = self._given[env_id]
            numbers = [later for later in range(n + 1, n + 1000) if derived(base, env_id, later) == seed]
            assert len(numbers) == 1, (env_id, seed, base, n)
            self._given[env_id] = base, numbers[0]
        self._episodes[env_id] = Episode(seed, spread, (obs, info))

    def _note_step(self, env_id: int, action: Any, row: Row) -> None:
        episode = self._episodes[env_id]
        episode.over = row.terminated or row.truncated
        if "fault" not in row.info:
            episode.steps.append((action, row.obs, row.reward, row.terminated, row.truncated, row.info))
            return
        text = str(row.info["fault"])
        assert text in self._untold[env_id], row
        while self._untold[env_id].popleft() != text:  # a later one may still be told, of the episode that follows
            pass
        assert (row.reward, row.terminated, row.truncated, list(row.info)) == (0.0, False, True, ["fault"]), row
        assert_same(row.obs, episode.last_obs)
        self.told += 1

    def _play_again(self, env_id: int) -> None:
        """Without griefs."""
        episode = self._episodes[env_id]
        batch = self._reference.reset(seed=[episode.seed], options=options_for(episode.spread))
        assert_same(episode.first, (_row_of(batch.obs, 0), batch.infos[0]), f"beginning of env {env_id}")
        for number, (action, *told) in enumerate(episode.steps, 1):
            row = Row.of(self._reference.step(np.array([action])), 0)
            theirs = [row.obs, row.reward, row.terminated, row.truncated, row.info]
            assert_same(told, theirs, f"step {number} of env {env_id}")
        self.played += 1
