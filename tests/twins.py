"""Two pools with the same commands: the tested pool with some features, and a serial twin with the expected results.

The twin has no processes. Where envs of the tested pool are lost, the twin's envs raise in their next step, which gives
the same rows.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import features
import numpy as np
import pytest
from features import SLOTS, Combination
from programs import kill
from scripted_envs import FAIL, FAIL_NEXT_RESET, may_go, put, scripted, seen, take, vectors

from remuda import Batch, BrokenPoolError, EnvError, EnvState, EnvTimeoutError, Pool, WorkerDiedError, load_record

Send: TypeAlias = Callable[[Any, list[int]], None]  # called with a part and some of its slots


@dataclass(frozen=True)
class Row:
    """The row of a slot in a batch."""

    obs: list[int]
    reward: float
    terminated: bool
    truncated: bool
    info: Mapping[str, Any]
    final_obs: list[int] | None
    final_info: Mapping[str, Any]
    has_fault: bool

    @classmethod
    def of(cls, batch: Batch, i: int) -> Row:
        info = dict(batch.infos[i])
        final_obs, final_info = info.pop("final_obs", None), dict(info.pop("final_info", {}))
        faults = [part.pop("fault", None) for part in (info, final_info)]
        flags = bool(batch.terminations[i]), bool(batch.truncations[i])
        final = None if final_obs is None else final_obs.tolist()
        return cls(batch.obs[i].tolist(), float(batch.rewards[i]), *flags, info, final, final_info, any(faults))

    @property
    def tag(self) -> int:
        """The env of this row's observation."""
        return self.obs[0]

    @property
    def ends(self) -> bool:
        """Whether the episode has ended and the row does not begin the next one."""
        return (self.terminated or self.truncated) and self.final_obs is None


@dataclass
class Course:
    """One of the two pools, and its rows since the last comparison.

    Attributes:
        groups: The slots that are sent and received together.
        parts: The part that each group is sent through: the pool itself if it is not split.
        limits: The arguments of `recv`, used in turn.
        rows: The rows of each slot.
        sent: The slots that should have rows.
        failed: The envs that have raised.
        deaths: The errors about workers that have ended.
    """

    pool: Pool
    limits: list[dict[str, Any]]
    groups: list[list[int]] = field(default_factory=lambda: [list(range(SLOTS))])
    parts: Sequence[Any] = ()
    rows: dict[int, list[Row]] = field(default_factory=dict)
    sent: set[int] = field(default_factory=set)
    failed: set[int] = field(default_factory=set)
    deaths: list[WorkerDiedError] = field(default_factory=list)
    _states: dict[int, EnvState] = field(default_factory=dict)
    _held: list[tuple[Batch, Any]] = field(default_factory=list)
    _receives: int = 0

    def __post_init__(self) -> None:
        self.parts = (self.pool,)

    def split(self, parts: int) -> None:
        self.parts = self.pool.split(parts)
        self.groups = [part.env_ids.tolist() for part in self.parts]

    def send(self, send: Send, slots: Sequence[int]) -> None:
        for number, group in enumerate(self.groups):
            if some := [slot for slot in group if slot in slots]:
                send(self.parts[number % len(self.parts)], some)
                self.sent.update(some)

    def drain(self) -> None:
        """Receives until no env is in flight."""
        for part in self.parts:
            while part.pending:
                self._receives += 1
                try:
                    self._note(part.recv(**self.limits[self._receives % len(self.limits)]))
                except EnvError as error:
                    self.failed.update(failure.env_id for failure in error.failures if failure.env_id is not None)
                except WorkerDiedError as error:
                    self.deaths.append(error)

    def keep_states(self, slots: Sequence[int]) -> None:
        self._states = dict(zip(slots, self.pool.get_state(slots, state_fns=(take, put)), strict=True))

    def put_states(self) -> None:
        for number, group in enumerate(self.groups):
            if some := [slot for slot in group if slot in self._states]:
                part = self.parts[number % len(self.parts)]
                self._note(part.set_state([self._states[slot] for slot in some], some))
                self.sent.update(some)

    def _note(self, batch: Batch) -> None:
        # the extras were computed from the same observation
        np.testing.assert_array_equal(batch.extras["seen"], batch.obs)
        for i, slot in enumerate(batch.env_ids.tolist()):
            self.rows.setdefault(slot, []).append(Row.of(batch, i))
        self._held = [*self._held[-2:], (batch, (batch.obs.copy(), batch.rewards.copy()))]
        for held, (obs, reward) in self._held:  # the batches outnumber the frames, and none changes
            np.testing.assert_array_equal(held.obs, obs)
            np.testing.assert_array_equal(held.rewards, reward)

    def take(self) -> tuple[dict[int, list[Row]], set[int], set[int]]:
        """Returns the rows by slot, the slots without rows, and the envs that raised."""
        taken = self.rows, self.sent.difference(self.rows), self.failed
        self.rows, self.sent, self.failed = {}, set(), set()
        return taken


class Twins:
    """Sends the same commands to both pools, and compares their results.

    Attributes:
        last: The last row of each slot.
        to_reset: The slots that the test must reset.
        owing: The slots whose env is lost. The next step will report it.
        failures: (tag, steps before the failure) of each env that was made to fail in a step.
    """

    def __init__(self, combination: Combination, directory: Path) -> None:
        self.combination, self.directory = combination, directory
        self.width, self.mode = combination["vector_size"] or 1, combination["autoreset"]
        self.restarts, self.has_threads = combination["faults"] == "restart", combination["backend"] == "thread"
        self.last, self.to_reset, self.owing = dict[int, Row](), set[int](), set[int]()
        self.failures: list[tuple[int, int]] = []
        self._hangs, self._has_armed_spares, self._number = 0, False, 0
        arguments = {**features.pool_arguments(combination, directory / "records"), "extras": {"seen": seen}}
        num_envs = SLOTS + combination["spares"]
        self.per_worker = num_envs // (arguments["num_workers"] or num_envs // self.width)
        limits = [{"order": "slot"}] if combination["spares"] else [{}]
        self.twin = Course(self._serial(num_envs, arguments), limits)
        # A background reset begins when the env's last row is received, and with spares the order of resets matters.
        if combination["partial"] and not (combination["spares"] and self.mode == "background"):
            one = self.width
            limits = [{"min_envs": 1}, {"max_envs": one}, {"timeout": 0.01}, {"max_envs": one, "order": "slot"}]
        self.tested = Course(self._pool(num_envs, arguments), limits)

    def _pool(self, num_envs: int, arguments: dict[str, Any]) -> Pool:
        env_fns = scripted(num_envs, _made(self.directory / "tested"), self.width)
        return Pool(vectors(env_fns, self.width, self.mode) if self.width > 1 else env_fns, **arguments)

    def _serial(self, num_envs: int, arguments: dict[str, Any]) -> Pool:
        """Returns the twin pool. Vector envs become single envs."""
        policy = replace(arguments["faults"], step_timeout=None, reset_timeout=None)
        own = {"backend": "serial", "faults": policy, "crash_dir": None, "vector_size": None, "max_concurrency": None}
        if self.width > 1:
            own["num_workers"] = None
        return Pool(scripted(num_envs, _made(self.directory / "twin"), self.width), **{**arguments, **own})

    def close(self) -> None:
        for course in (self.tested, self.twin):
            course.pool.close(terminate=True)
        may_go.set()
        for thread in threading.enumerate():
            if thread.name.startswith("remuda-"):
                thread.join()
        may_go.clear()

    # -- commands for both pools -----------------------------------------------------------------------------

    def split(self, parts: int) -> None:
        """Splits both pools, because spares are used in the order of sending. A twin of vector envs stays whole."""
        self.tested.split(parts)
        if self.width == 1:
            self.twin.split(parts)
            assert self.twin.groups == self.tested.groups
        self.twin.groups = self.tested.groups

    def reset(self, slots: Sequence[int], seed: int | None = None, level: int | None = None) -> None:
        def send(part: Any, some: list[int]) -> None:
            seeds = None if seed is None else [seed + slot for slot in some]
            part.send_reset(seed=seeds, options=None if level is None else {"level": level}, env_ids=some)

        self._both(send, slots)

    def reset_all(self, seed: int) -> None:
        """Resets all slots. In a whole pool this also resets the spares."""

        def send(part: Any, some: list[int]) -> None:
            part.send_reset(seed=seed, env_ids=None if len(some) == part.num_envs else some)

        self._both(send, range(SLOTS))

    def _both(self, send: Send, slots: Sequence[int]) -> None:
        for course in (self.tested, self.twin):
            course.send(send, slots)
        self.compare()

    def step(
        self,
        slots: Sequence[int] = range(SLOTS),
        failing: Mapping[int, int] | None = None,
        victims: Sequence[int] = (),
        meanwhile: Callable[[Pool], None] | None = None,
    ) -> None:
        """Steps envs, after a reset of those that need one.

        Args:
            slots: The slots to step.
            failing: The actions of the slots whose envs shall fail.
            victims: The slots whose envs are lost in this step.
            meanwhile: Called with each pool while it steps.
        """
        if to_reset := sorted(self.to_reset.intersection(slots)):
            self.reset(to_reset)
        slots = [slot for slot in slots if slot not in self.to_reset]  # a reset may have failed
        self._number += 1
        actions = {slot: (7 * slot + self._number) % 50 for slot in slots} | dict(failing or {})
        lost = self.owing.union(victims).intersection(slots)
        exceptions = {slot: _as_exception(action) for slot, action in actions.items()}
        self._send_steps(self.tested, actions)
        self._send_steps(self.twin, exceptions | dict.fromkeys(lost, FAIL["exception"]))
        self.owing = self.owing.union(victims).difference(slots)
        for course in (self.tested, self.twin) if meanwhile is not None else ():
            meanwhile(course.pool)
        self.compare()

    def _send_steps(self, course: Course, actions: Mapping[int, int]) -> None:
        def send(part: Any, some: list[int]) -> None:
            array = np.array([actions[slot] for slot in some])
            part.send(array, None if len(some) == part.num_envs else np.array(some))

        course.send(send, list(actions))

    def observe(self, slots: Sequence[int] = range(SLOTS)) -> None:
        """Compares the last observations once more, except those of envs that must be reset."""
        if slots := [slot for slot in slots if slot not in self.to_reset and slot not in self.owing]:
            rows = {slot: self.last[slot] for slot in slots}
            self._both(lambda part, some: part.request_obs(some), slots)
            assert {slot: self.last[slot].obs for slot in slots} == {slot: row.obs for slot, row in rows.items()}
            self.last.update(rows)

    def go_back(self, pick: int) -> None:
        """Saves the states of some envs, steps, and restores them. The envs must return the same observations again."""
        # Not possible with spares (slots change envs), renewals (no state) and crash records (the record would end).
        if self.width > 1 or any(self.combination[name] for name in ("spares", "renew_every", "crash_dir")):
            return
        slots = [slot for slot in range(SLOTS) if pick >> slot & 1 and not self.last[slot].has_fault]
        slots = [slot for slot in slots if slot not in self.to_reset and slot not in self.owing]
        rows = {slot: self.last[slot] for slot in slots}
        for course in (self.tested, self.twin):
            course.keep_states(slots)
        self.step()
        if self.to_reset.intersection(slots):
            return
        for course in (self.tested, self.twin):
            course.put_states()
        self.compare()
        for slot, row in rows.items():
            assert (self.last[slot].obs, self.last[slot].ends) == (row.obs, row.ends)
        self.last.update(rows)

    def compare(self) -> None:
        """Receives all results of both pools and compares them."""
        for course in (self.tested, self.twin):
            course.drain()
        (tested, silent, failed), (expected, expected_silent, expected_failed) = self.tested.take(), self.twin.take()
        for slot in range(SLOTS):
            got, right = self._comparable(tested.get(slot, [])), self._comparable(expected.get(slot, []))
            assert got == right, f"slot {slot}: {got}\nis not {right}"
        assert (silent, failed) == (expected_silent, expected_failed)
        self.last.update({slot: rows[-1] for slot, rows in tested.items()})
        self.to_reset = self.to_reset.difference(tested) | silent
        # the env failed in its background reset, or must be reset by the caller
        if self.mode in {"disabled", "background"}:
            self.to_reset |= {slot for slot in tested if self.last[slot].ends}

    def _comparable(self, rows: Sequence[Row]) -> Sequence[Row]:
        """Omits seeds of rebuilt vector envs, which derive their envs' seeds from one seed."""
        if self.width == 1:
            return rows
        return [replace(row, info={**row.info, "seed": None}) if row.obs[1] > 1 else row for row in rows]

    # -- failures --------------------------------------------------------------------------------------------

    def kinds(self, *, in_reset: bool) -> list[str]:
        """Returns the kinds of failures with results that do not depend on timing.

        The other envs of a worker that dies may or may not have finished, unless it dies before they begin.
        """
        is_alone = self.per_worker == self.width
        kinds = ["exception"] if self.width == 1 or not self.restarts or is_alone else []
        may_die = not self.has_threads and self.restarts and (is_alone or not in_reset)
        may_hang = self.combination["deadlines"] and self._hangs == 0
        return kinds + ["death"] * may_die + ["hang"] * (may_hang and self.restarts and (may_die or self.has_threads))

    def fail_in_step(self, pick: int, kind: str) -> None:
        if (found := self._find_victims(pick, kind)) is None:
            return
        slot, victims = found
        self._hangs += kind == "hang"
        self.failures.append((self.last[slot].tag, self.last[slot].obs[3]))
        self.step(failing={slot: FAIL[kind]}, victims=victims)

    def fail_in_reset(self, pick: int, kind: str) -> None:
        """Makes the reset after the next step fail."""
        slots = self._vector_of(pick % SLOTS)
        if not self._reach(lambda: slots):
            return
        self._hangs += kind == "hang"
        self._has_armed_spares = self.combination["spares"] > 0
        self.step(failing=dict.fromkeys(slots, FAIL_NEXT_RESET) | {slots[0]: FAIL_NEXT_RESET + FAIL[kind]})
        self.step()

    def kill_idle(self, pick: int) -> None:
        """Kills an idle worker from outside."""
        slots = self._slots_of(self._worker_of(pick % SLOTS))
        if self._are_in_mid_episode(slots):
            kill(self.tested.pool, self._worker_of(slots[0]))
            self.owing.update(slots)

    def lose_worker(self, pick: int, kind: str) -> None:
        """Loses a worker, or the env that hangs in a thread, permanently, with `faults="raise"`."""
        if (found := self._find_victims(pick, kind)) is None:
            return
        slot, victims = found
        worker = self._worker_of(slot)
        others = [other for other in range(SLOTS) if other not in victims and other not in self.to_reset]
        actions = dict.fromkeys(others, 1)
        self._send_steps(self.tested, actions | {slot: FAIL[kind]} | dict.fromkeys(set(victims) - {slot}, 1))
        self.tested.sent.difference_update(victims)
        self._send_steps(self.twin, actions)
        self.compare()
        (death,) = self.tested.deaths
        assert (death.worker, isinstance(death, EnvTimeoutError)) == (worker, kind == "hang")
        for victim in victims:
            with pytest.raises(BrokenPoolError):
                self.tested.pool.get_attr("spec", [victim])

    def reset_some(self, pick: int) -> None:
        """Resets some slots within their episode."""
        slots = [slot for slot in range(SLOTS) if pick >> (slot // self.width) & 1]
        if slots and self._are_in_mid_episode(slots):
            self.reset(slots, seed=100 * pick if pick % 3 else None, level=pick)

    def reset_all_again(self, pick: int) -> None:
        if not self.owing and not self._has_armed_spares:  # the seeds of these resets would depend on timing
            self.reset_all(seed=1000 + pick)

    def set_bonus(self, bonus: int) -> None:
        """Sets an attribute that rebuilt envs also receive."""
        if self.owing or self._has_armed_spares:
            return
        for course in (self.tested, self.twin):
            course.pool.set_attr("bonus", bonus, lasting=True)
        assert self.tested.pool.get_attr("bonus") == [bonus] * SLOTS

    def set_reset_options(self, pick: int) -> None:
        """Sets different options for all slots but one. With spares, it sets the same options for all envs."""
        if self.owing or self._has_armed_spares:
            return
        slots = None if self.combination["spares"] else [slot for slot in range(SLOTS) if slot != (pick + 1) % SLOTS]
        options: Any = {"level": pick} if slots is None else [{"level": 10 * pick + slot} for slot in slots]
        for course in (self.tested, self.twin):
            course.pool.set_reset_options(options, slots)

    def ask_in_flight(self) -> None:
        if self.owing or self._has_armed_spares:
            return

        def ask(pool: Pool) -> None:
            assert pool.apply(lambda _: 5) == [5] * SLOTS

        self.step(meanwhile=ask)

    def check_records(self) -> None:
        """Asserts that each failure in a step has a crash record with the steps of its episode."""
        recorded = set()
        for path in (self.directory / "records").iterdir():
            record = load_record(path)
            if record.fault.operation == "step" and record.begins_at is not None:
                recorded.add((record.env_id, len(record.kinds) - record.begins_at - 2))
        assert recorded.issuperset(self.failures)

    # -- victims ---------------------------------------------------------------------------------------------

    def _worker_of(self, slot: int) -> int:
        return self.last[slot].tag // self.per_worker

    def _slots_of(self, worker: int) -> list[int]:
        return [slot for slot in range(SLOTS) if self._worker_of(slot) == worker]

    def _vector_of(self, slot: int) -> list[int]:
        first = slot // self.width * self.width
        return list(range(first, first + self.width))

    def _find_victims(self, pick: int, kind: str) -> tuple[int, list[int]] | None:
        """Returns the slot that fails and the slots that are lost with it. None means that this is impossible within a
        few steps.

        The failing slot is the first that is sent a command, so that no other env of the worker has begun its step.
        """
        order = [slot for group in self.tested.groups for slot in group]

        def victims() -> list[int]:
            slot = order[pick % SLOTS]
            if (kind == "exception" or self.has_threads) and not (self.width > 1 and self.restarts):
                return self._vector_of(slot)
            return self._slots_of(self._worker_of(slot))

        if not self._reach(victims):
            return None
        lost = victims()
        return next(slot for slot in order if slot in lost), lost

    def _reach(self, slots: Callable[[], Sequence[int]]) -> bool:
        """Steps until the slots are within an episode. Returns whether that succeeded."""
        for _ in range(4):
            if self._are_in_mid_episode(slots()):
                return True
            self.step()
        return False

    def _are_in_mid_episode(self, slots: Sequence[int]) -> bool:
        return not any(slot in self.to_reset or slot in self.owing or self.last[slot].ends for slot in slots)


def _as_exception(action: int) -> int:
    """Returns the action that fails in the same way by an exception."""
    if action < FAIL["exception"]:
        return action
    return FAIL["exception"] + FAIL_NEXT_RESET * (action >= FAIL_NEXT_RESET)


def _made(directory: Path) -> Path:
    directory.mkdir()
    return directory
