"""Random sequences of operations on a pool, compared with a model of its envs.

Hypothesis draws resets, steps and observes of some envs, receives, reset options, calls,
exceptions, deaths of workers and held batches. The same sequences also run on threads and with `backend="serial"`,
without deaths. `make soak` draws more and different sequences each time, and shrinks failures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import pytest
from drawn import MINUTES
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from pool_envs import FusedEnv
from programs import kill

from remuda import Batch, Fault, FaultPolicy, Pool, StateError, WorkerDiedError

ENVS, WORKERS, LENGTH = 4, 2, 3
WORKER_OF = [0, 0, 1, 1]
POLICY = FaultPolicy("restart", max_restarts=100, backoff=0)  # more than a sequence can have
NO_LEVEL = -1
Obs: TypeAlias = tuple[int, ...]
Options: TypeAlias = dict[str, Any] | None
OPTIONS: list[Options] = [None, {"big": b"x" * 200_000}, *({"level": level} for level in range(3))]


def level_of(options: Options) -> int:
    return (options or {}).get("level", NO_LEVEL)


# -- the model -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """The row of an env in a batch."""

    obs: Obs
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    final_obs: Obs | None = None
    has_fault: bool = False

    @classmethod
    def of(cls, batch: Batch, i: int) -> Row:
        info = batch.infos[i]
        final = info.get("final_obs")
        fault = info.get("final_info", info).get("fault")
        assert fault is None or (isinstance(fault, Fault) and fault.env_id == batch.env_ids[i])
        return cls(
            tuple(batch.obs[i].tolist()),
            float(batch.rewards[i]),
            bool(batch.terminations[i]),
            bool(batch.truncations[i]),
            None if final is None else tuple(final.tolist()),
            fault is not None,
        )


@dataclass(frozen=True)
class Env:
    """The state of one env, as far as the pool's caller can determine it.

    Attributes:
        phase: "new": never reset. "running" or "over": its episode. "owing": the env is lost, and the next step reports
            the fault.
        last_obs: The last observation that the caller received.
        level: The level in the slot's reset options, which resets without options use.
        was_cut: A fault ended the episode, so that without autoreset the env must be reset.
        episodes, steps, mark, fuse: The env's own attributes.
    """

    tag: int
    phase: str = "new"
    last_obs: Obs = ()
    level: int = NO_LEVEL
    was_cut: bool = False
    episodes: int = 0
    steps: int = 0
    mark: int = 0
    fuse: str = ""

    def lost(self) -> Env:
        """Returns the env after its worker was lost and it was rebuilt."""
        phase = "owing" if self.phase == "running" else self.phase
        return Env(self.tag, phase, self.last_obs, self.level, self.was_cut or phase == "over")

    def begun(self, level: int | None = None) -> Env:
        """Returns the env after a reset, which was repeated if it failed first. `level`: of the reset's options, or
        None.
        """
        env = self.lost() if self.fuse == "reset" else self
        last_obs = (env.tag, env.episodes + 1, 0, env.level if level is None else level)
        return replace(env, phase="running", last_obs=last_obs, was_cut=False, episodes=env.episodes + 1, steps=0)


Outcome = tuple[Row, Env]
Command = Callable[[Env], Outcome]  # returns the row and the next state of an env


def reset(level: int | None = None) -> Command:
    def outcome(env: Env) -> Outcome:
        after = env.begun(level)
        return Row(after.last_obs), after

    return outcome


def observe(autoreset: str) -> Command:
    return lambda env: _cut_off(env, autoreset) if env.phase == "owing" else (Row(env.last_obs), env)


def step(autoreset: str, action: int) -> Command:
    def outcome(env: Env) -> Outcome:
        if env.phase == "owing":
            return _cut_off(env, autoreset)
        if env.phase == "over":
            return reset()(env)
        ends = env.steps + 1 == LENGTH
        if env.fuse == "step" or (env.fuse == "reset" and ends and autoreset == "same_step"):
            return outcome(env.lost())
        last_obs = (env.tag, env.episodes, env.steps + 1, action)
        after = replace(env, phase="over" if ends else "running", last_obs=last_obs, steps=env.steps + 1)
        if ends and autoreset == "same_step":
            fresh = after.begun()
            return Row(fresh.last_obs, action, True, False, last_obs), fresh
        return Row(last_obs, action, ends), after

    return outcome


def _cut_off(env: Env, autoreset: str) -> Outcome:
    if autoreset == "same_step":
        fresh = env.begun()
        return Row(fresh.last_obs, 0.0, False, True, env.last_obs, has_fault=True), fresh
    return Row(env.last_obs, 0.0, False, True, has_fault=True), replace(env, phase="over", was_cut=True)


@dataclass
class Flight:
    """A command in flight and its possible outcomes.

    A worker that is killed meanwhile may have answered or not. If it has not, its successor executes the command.

    Attributes:
        is_repeated: Whether a rebuilt env may have executed the command again. It begins with the current values that
            its slot keeps.
    """

    command: Command
    before: set[Env]
    outcomes: set[Outcome]
    is_repeated: bool

    @classmethod
    def of(cls, command: Command, envs: set[Env], *, may_be_dead: bool) -> Flight:
        may_fail = any(env.fuse for env in envs)
        return cls(command, envs, {command(env) for env in envs}, may_be_dead or may_fail)

    def lose(self) -> None:
        self.before = {env.lost() for env in self.before}
        answered = {(row, env.lost()) for row, env in self.outcomes}
        self.outcomes = answered | {self.command(env) for env in self.before}
        self.is_repeated = True

    def remember(self, level: int) -> None:
        """Sets the level for later resets, and for this command if a rebuilt env may execute it."""
        outcomes = {(row, replace(env, level=level)) for row, env in self.outcomes}
        before = {replace(env, level=level) for env in self.before}
        if self.is_repeated:
            outcomes |= {self.command(env) for env in before}
        self.outcomes, self.before = outcomes, self.before | before


# -- the sequence of operations ------------------------------------------------------------------------------

SOME = st.sets(st.integers(0, ENVS - 1), min_size=1)


class Life(RuleBasedStateMachine):
    """The pool and the model. `envs` has the possible states of each env that is not in flight.

    The drawn operations may not depend on earlier results, whose timing is random. A rule whose condition does not hold
    does nothing.
    """

    def __init__(self, backend: Any, autoreset: Any) -> None:
        super().__init__()
        factories = [(lambda tag=i: FusedEnv(tag, LENGTH)) for i in range(ENVS)]  # type: ignore[misc]
        self.pool = Pool(
            factories,
            num_workers=WORKERS,
            backend=backend,
            autoreset=autoreset,
            frames=2,
            faults=POLICY,
            log_advice=False,
        )
        self.has_processes, self.autoreset = backend == "process", autoreset
        self.envs = [{Env(i)} for i in range(ENVS)]
        self.flights: dict[int, Flight] = {}
        self.killed: set[int] = set()  # killed workers that the pool has not reported
        self.held: list[tuple[Batch, Any]] = []

    def teardown(self) -> None:
        with allowing(self.killed):
            self.pool.close()
        self.held_batches_do_not_change()

    # -- sending and receiving -----------------------------------------------------------------------------

    def _idle(self, ids: set[int]) -> list[int]:
        return sorted(ids - set(self.flights))

    def _send(self, command: Command, env_ids: list[int]) -> None:
        for env_id in env_ids:
            may_be_dead = WORKER_OF[env_id] in self.killed
            self.flights[env_id] = Flight.of(command, self.envs[env_id], may_be_dead=may_be_dead)

    def _can_step(self, env_id: int) -> bool:
        """Returns whether the env can surely be stepped. Without autoreset, a step after the end of an episode is
        undefined.
        """
        phases = {env.phase for env in self.envs[env_id]}
        return "new" not in phases and not ("over" in phases and self.autoreset == "disabled")

    @rule(ids=SOME, seed=st.none() | st.integers(0, 9), options=st.sampled_from(OPTIONS))
    def send_reset(self, ids: set[int], seed: int | None = None, options: Options = None) -> None:
        if env_ids := self._idle(ids):
            self.pool.send_reset(seed=seed, options=options, env_ids=env_ids)
            self._send(reset(None if options is None else level_of(options)), env_ids)

    @initialize()
    def reset_all(self) -> None:
        self.send_reset(set(range(ENVS)))
        self.recv(ENVS)

    @rule(ids=SOME, options=st.sampled_from(OPTIONS))
    def set_reset_options(self, ids: set[int], options: Options) -> None:
        """The options may also be set for envs in flight."""
        self.pool.set_reset_options(options, sorted(ids))
        for env_id in ids:
            if env_id in self.flights:
                self.flights[env_id].remember(level_of(options))
            else:
                self.envs[env_id] = {replace(env, level=level_of(options)) for env in self.envs[env_id]}

    @rule(ids=SOME, action=st.integers(0, 9))
    def send_steps(self, ids: set[int], action: int) -> None:
        if env_ids := [env_id for env_id in self._idle(ids) if self._can_step(env_id)]:
            self.pool.send(np.full(len(env_ids), action), env_ids)
            self._send(step(self.autoreset, action), env_ids)

    @rule(action=st.integers(0, 9))
    def step_all(self, action: int) -> None:
        if not self.flights and all(map(self._can_step, range(ENVS))):
            self._send(step(self.autoreset, action), list(range(ENVS)))
            self._take(self.pool.step(np.full(ENVS, action)))

    @rule(ids=SOME)
    def request_obs(self, ids: set[int]) -> None:
        if env_ids := [env_id for env_id in self._idle(ids) if self._can_step(env_id)]:
            self.pool.request_obs(env_ids)
            self._send(observe(self.autoreset), env_ids)

    @rule(min_envs=st.integers(1, ENVS), limit=st.none() | st.integers(1, ENVS))
    def recv(self, min_envs: int, limit: int | None = None) -> None:
        pending = len(self.flights)
        if pending == 0:
            with pytest.raises(StateError, match="none: recv follows send"):
                self.pool.recv()
            return
        batch = self.pool.recv(min_envs=min_envs, max_envs=limit)
        most = min(pending, limit or ENVS)
        assert min(min_envs, most) <= len(batch) <= most
        self._take(batch)

    @rule()
    def recv_without_waiting(self) -> None:
        if self.flights:
            self._take(self.pool.recv(timeout=0))

    def _take(self, batch: Batch) -> None:
        for i, env_id in enumerate(batch.env_ids.tolist()):
            row, flight = Row.of(batch, i), self.flights.pop(env_id)
            self.envs[env_id] = {env for possible, env in flight.outcomes if possible == row}
            assert self.envs[env_id], f"expected of env {env_id} one of {flight.outcomes}, got {row}"
        self.held = [*self.held[-3:], (batch, copy_of(batch))]

    @rule()
    def discard(self) -> None:
        self.pool.discard()
        for env_id, flight in self.flights.items():
            self.envs[env_id] = {env for _, env in flight.outcomes}
        self.flights.clear()

    # -- misuse --------------------------------------------------------------------------------------------

    @rule()
    def send_twice(self) -> None:
        for env_id in self.flights:
            with pytest.raises(StateError, match=f"env {env_id} is in flight; call recv first"):
                self.pool.send_reset(env_ids=[env_id])

    @rule(env_id=st.integers(0, ENVS - 1))
    def step_without_a_reset(self, env_id: int) -> None:
        if self.autoreset == "disabled" and env_id not in self.flights and all(e.was_cut for e in self.envs[env_id]):
            if WORKER_OF[env_id] in self.killed:
                return  # the pool may not have noticed the death
            for send in (lambda: self.pool.send([0], [env_id]), lambda: self.pool.request_obs([env_id])):
                with pytest.raises(StateError, match=f"env {env_id}; call reset first"):
                    send()

    # -- calls ---------------------------------------------------------------------------------------------

    def _answers(self, env_id: int, call: Callable[[], Any]) -> bool:
        """Makes the call. Returns False if the worker was dead."""
        worker, answered = WORKER_OF[env_id], False
        with allowing(self.killed & {worker}):
            call()
            answered = True
        self.killed.discard(worker)
        return answered

    @rule(env_id=st.integers(0, ENVS - 1))
    def ask(self, env_id: int) -> None:
        state: list[Any] = []
        ask = lambda: state.extend(self.pool.apply(lambda e: (e.episodes, e.steps, e.mark, e.fuse), env_ids=[env_id]))  # noqa: E731
        if env_id not in self.flights and self._answers(env_id, ask):
            known = self.envs[env_id]
            self.envs[env_id] = {e for e in known if [(e.episodes, e.steps, e.mark, e.fuse)] == state}
            assert self.envs[env_id], f"expected of env {env_id} one of {known}, got {state}"

    @rule(env_id=st.integers(0, ENVS - 1), mark=st.integers(1, 9))
    def set_mark(self, env_id: int, mark: int) -> None:
        self._set(env_id, "mark", mark)

    @rule(env_id=st.integers(0, ENVS - 1), fuse=st.sampled_from(["step", "reset"]))
    def arm(self, env_id: int, fuse: str) -> None:
        self._set(env_id, "fuse", fuse)

    def _set(self, env_id: int, name: str, value: Any) -> None:
        set_value = lambda: self.pool.set_attr(name, value, [env_id])  # noqa: E731
        if env_id not in self.flights and self._answers(env_id, set_value):
            self.envs[env_id] = {replace(env, **{name: value}) for env in self.envs[env_id]}

    # -- deaths --------------------------------------------------------------------------------------------

    @precondition(lambda self: self.has_processes)
    @rule(worker=st.integers(0, WORKERS - 1))
    def kill(self, worker: int) -> None:
        if self.pool.workers[worker].is_alive():
            kill(self.pool, worker)
        self.killed.add(worker)
        for env_id in (env_id for env_id in range(ENVS) if WORKER_OF[env_id] == worker):
            if env_id in self.flights:
                self.flights[env_id].lose()
            else:
                self.envs[env_id] = {env.lost() for env in self.envs[env_id]}

    # -- always --------------------------------------------------------------------------------------------

    @invariant()
    def pending_counts_envs_in_flight(self) -> None:
        assert self.pool.pending == len(self.flights)

    @invariant()
    def held_batches_do_not_change(self) -> None:
        for batch, copy in self.held:
            for now, before in zip(copy_of(batch), copy, strict=True):
                np.testing.assert_array_equal(now, before)


@contextmanager
def allowing(dead: set[int]) -> Iterator[None]:
    """Accepts the death of these workers."""
    try:
        yield
    except WorkerDiedError as error:
        if error.worker not in dead:
            raise


def copy_of(batch: Batch) -> tuple[Any, ...]:
    arrays = batch.env_ids, batch.obs, batch.rewards, batch.terminations, batch.truncations
    return tuple(array.copy() for array in arrays)


@pytest.mark.watchdog(600 + 60 * MINUTES)
@pytest.mark.parametrize("autoreset", ["next_step", "same_step", "disabled"])
@pytest.mark.parametrize(("backend", "lives"), [("process", 4), ("thread", 3), ("serial", 10)])
def test_a_pool_behaves_like_its_model(backend: str, lives: int, autoreset: str) -> None:
    how_long = settings(
        max_examples=lives,
        stateful_step_count=40,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],  # shrinking would take minutes, because it repeats the deaths many times
        report_multiple_bugs=False,
    )
    if MINUTES:  # others each time
        how_long = settings(
            how_long, max_examples=round(lives * (1 + MINUTES)), derandomize=False, phases=list(Phase), print_blob=True
        )
    run_state_machine_as_test(lambda: Life(backend, autoreset), settings=how_long)  # type: ignore[no-untyped-call]
