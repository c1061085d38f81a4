"""Random lives of a pool, compared with the lives of a serial twin that has the same seed.

A life is a sequence of operations on a pool: commands, calls, failures of envs and deaths of workers. It is drawn from
the operations that the pool's features allow. The twin lives first. It has no processes and no partial batches. Where
envs of the tested pool are lost, the twin's envs raise in their next step, which gives the same rows. If the parts live
in threads, each part has a life of its own.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import features
import numpy as np
import pytest
from features import IN_THREADS, SLOTS, Combination
from programs import kill
from scripted_envs import FAIL, FAIL_NEXT_RESET, may_go, paid, put, scripted, seen, take, vectors

from remuda import (
    Batch,
    BrokenPoolError,
    EnvError,
    EnvTimeoutError,
    Part,
    Pool,
    StateError,
    StepColumn,
    WorkerDiedError,
    load_record,
)

Send: TypeAlias = Callable[[Part, list[int]], None]  # called with a part and some of its slots
REPLACED = 100  # added to the tag of an env at each replacement


def compare(combination: Combination, seed: int, directory: Path) -> None:
    """Asserts that the lives of a pool with these features equal those of its twin."""
    expected = [life.seen for life in _live(combination, seed, directory / "twin", None)]
    try:
        lives = _live(combination, seed, directory / "tested", expected)
    finally:  # lets the envs go that hang in threads
        may_go.set()
        for thread in threading.enumerate():
            if thread.name.startswith("remuda-"):
                thread.join()
        may_go.clear()
    if combination["crash_dir"]:
        _check_records(directory / "tested" / "records", [failure for life in lives for failure in life.failures])


def _live(combination: Combination, seed: int, directory: Path, expected: list[Any] | None) -> list[Life]:
    directory.mkdir()
    maker = Maker(combination, directory, is_twin=expected is None)
    pool = maker.pool()
    try:
        if combination["parts"] != IN_THREADS:
            life = Life(maker, pool, pool, seed, expected and expected[0])
            life.run()
            return [life]
        parts = enumerate(pool.split(2))
        lives = [Life(maker, pool, part, seed + i, expected and expected[i]) for i, part in parts]
        with ThreadPoolExecutor(1 if expected is None else len(lives)) as threads:
            list(threads.map(Life.run, lives))
        return lives
    finally:
        pool.close(terminate=True)


def _check_records(directory: Path, failures: list[tuple[int, int]]) -> None:
    """Asserts that each failure in a step has a crash record with the steps of its episode."""
    recorded, restored = set(), set[int]()
    for path in directory.iterdir():
        record = load_record(path)
        if record.is_restored:  # the steps before the state that the env was put into are not recorded
            restored.add(record.env_id)
        elif record.fault.operation == "step" and record.begins_at is not None:
            recorded.add((record.env_id, len(record.kinds) - record.begins_at - 2))
    assert recorded.issuperset(failure for failure in failures if failure[0] not in restored)


@dataclass(frozen=True)
class Maker:
    """Makes the tested pool or its twin, and their envs. `directory`: for files of the envs, and crash records."""

    combination: Combination
    directory: Path
    is_twin: bool

    @property
    def width(self) -> int:
        return self.combination["vector_size"] or 1

    def pool(self) -> Pool:
        arguments = features.pool_arguments(self.combination, self.directory / "records") | {"extras": {"seen": seen}}
        if self.width == 1:
            arguments["extras"] |= {"paid": StepColumn(paid, (), "float32")}
        if self.is_twin:  # vector envs become single envs
            policy = replace(arguments["faults"], step_timeout=None, reset_timeout=None)
            # The twin has the same `max_concurrency`: with it, envs reset in the background are not reset in advance.
            arguments |= {"backend": "serial", "faults": policy, "vector_size": None}
            arguments |= {"crash_dir": None} | ({"num_workers": 1} if self.width > 1 else {})
        return Pool(self.env_fns(SLOTS + self.combination["spares"]), **arguments)

    def env_fns(self, num_envs: int = SLOTS, first_tag: int = 0) -> list[Any]:
        counts_builds = self.combination["faults"] != "resume"
        env_fns = scripted(num_envs, self.directory if counts_builds else None, self.width, first_tag)
        if self.width == 1 or self.is_twin:
            return env_fns
        return vectors(env_fns, self.width, self.combination["autoreset"])

    def limits(self) -> list[dict[str, Any]]:
        """Returns the arguments of `recv`, to be used in turn."""
        # A background reset begins when the env's last row is received, and with spares the order of resets matters.
        in_order = self.combination["spares"] > 0
        depends = in_order and self.combination["autoreset"] == "background"
        if self.is_twin or depends or not self.combination["partial"]:
            return [{"order": "slot"}] if in_order else [{}]
        one = self.width
        return [{"min_envs": 1}, {"max_envs": one}, {"timeout": 0.01}, {"max_envs": one, "order": "slot"}]


@dataclass(frozen=True)
class Row:
    """The row of a slot in a batch."""

    obs: list[int]
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    info: Mapping[str, Any] = field(default_factory=dict)
    final_obs: list[int] | None = None
    final_info: Mapping[str, Any] = field(default_factory=dict)
    has_fault: bool = False

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
        """The env of this row's observation, or the env that it has replaced."""
        return self.obs[0] % REPLACED

    @property
    def ends(self) -> bool:
        """Whether the episode has ended and the row does not begin the next one."""
        return (self.terminated or self.truncated) and self.final_obs is None


class Life:
    """The life of a pool, or of a part that lives in a thread of its own.

    Attributes:
        seen: The results of the operations.
        failures: (tag, steps before the failure) of each env that was made to fail in a step.
    """

    def __init__(self, maker: Maker, pool: Pool, whole: Part, seed: int, expected: list[Any] | None) -> None:
        """`whole`: the pool or its part. `expected`: the results of the twin; None in its life."""
        self._maker, self._pool, self._whole, self._expected = maker, pool, whole, expected
        self._parts: tuple[Part, ...] = (whole,)  # of the whole, which are sent commands
        self._combination, self._width, self._is_twin = maker.combination, maker.width, maker.is_twin
        self._slots, self._limits, self._draw = whole.env_ids.tolist(), maker.limits(), random.Random(seed)
        self._mode, faults = self._combination["autoreset"], self._combination["faults"]
        self._restarts, self._resumes = faults != "raise", faults == "resume"
        self._has_threads = self._combination["backend"] == "thread"
        num_envs = SLOTS + self._combination["spares"]
        workers = features.pool_arguments(self._combination, maker.directory)["num_workers"]
        self._per_worker = num_envs // (workers or num_envs // self._width)
        self._is_in_thread = self._combination["parts"] == IN_THREADS
        # A death ends the episodes of all envs of the worker, which may be in the other part.
        self._may_die = not (self._is_in_thread and self._per_worker > self._width)
        self.seen, self.failures = list[Any](), list[tuple[int, int]]()
        self._rows, self._last = dict[int, list[Row]](), dict[int, Row]()  # by slot
        self._sent, self._failed = set[int](), set[int]()  # the slots that should have rows; the envs that raised
        self._to_reset, self._owing = set[int](), set[int]()  # slots; the next step reports that the env was lost
        self._deaths = list[WorkerDiedError]()
        self._held = list[tuple[Batch, Any]]()
        self._receives = self._steps = self._hangs = self._replacements = 0
        self._has_armed_spares = False

    def run(self) -> None:
        self.reset_all()
        if self._combination["parts"] == 2:
            self.split(2)
        for operation in self._draw.sample(OPERATIONS, len(OPERATIONS)):
            self._see(operation.__name__)
            operation(self)
            self.step()
            self.step()
        kind = "hang" if self._combination["deadlines"] else "death"
        # Any part raises the death of a worker, so the parts do not live in threads of their own here.
        if not self._restarts and not (self._has_threads and kind == "death") and not self._is_in_thread:
            self.lose_worker(kind)

    # -- sending and receiving -------------------------------------------------------------------------------

    def _see(self, value: Any) -> None:
        if self._expected is not None:
            right = self._expected[len(self.seen)]
            operations = [one for one in self.seen if isinstance(one, str)]
            assert value == right, f"after {operations}: {value}\nis not {right}"
        self.seen.append(value)

    def _send(self, send: Send, slots: Iterable[int]) -> None:
        for part in self._parts:
            if some := [slot for slot in part.env_ids.tolist() if slot in slots]:
                send(part, some)
                self._sent.update(some)

    def _send_steps(self, actions: Mapping[int, int]) -> None:
        def send(part: Part, some: list[int]) -> None:
            array = np.array([actions[slot] for slot in some])
            part.send(array, None if len(some) == part.num_envs else np.array(some))

        self._send(send, actions)

    def _drain(self) -> None:
        """Receives until no env is in flight."""
        for part in self._parts:
            while part.pending:
                self._receives += 1
                try:
                    self._note(part.recv(**self._limits[self._receives % len(self._limits)]))
                except EnvError as error:
                    self._failed.update(failure.env_id for failure in error.failures if failure.env_id is not None)
                except WorkerDiedError as error:
                    self._deaths.append(error)

    def _note(self, batch: Batch) -> None:
        np.testing.assert_array_equal(batch.extras["seen"], batch.obs)  # computed from the same observation
        np.testing.assert_array_equal(batch.extras.get("paid", batch.rewards), batch.rewards)  # of the same step
        for i, slot in enumerate(batch.env_ids.tolist()):
            self._rows.setdefault(slot, []).append(Row.of(batch, i))
        self._held = [*self._held[-2:], (batch, (batch.obs.copy(), batch.rewards.copy()))]
        for held, (obs, reward) in self._held:  # the batches outnumber the frames, and none changes
            np.testing.assert_array_equal(held.obs, obs)
            np.testing.assert_array_equal(held.rewards, reward)

    def _receive(self) -> None:
        """Receives and compares all results."""
        self._drain()
        rows, silent, failed = self._rows, self._sent.difference(self._rows), self._failed
        self._rows, self._sent, self._failed = {}, set(), set()
        self._see(({slot: self._comparable(rows[slot]) for slot in sorted(rows)}, silent, failed))
        self._last.update({slot: its[-1] for slot, its in rows.items()})
        self._to_reset = self._to_reset.difference(rows) | silent
        if self._mode in {"disabled", "background"}:  # the caller must reset, or the background reset has failed
            self._to_reset |= {slot for slot in rows if self._last[slot].ends}

    def _comparable(self, rows: Sequence[Row]) -> Sequence[Row]:
        """Omits seeds of rebuilt vector envs, which derive their envs' seeds from one seed."""
        if self._width == 1:
            return rows
        return [replace(row, info={**row.info, "seed": None}) if row.obs[1] > 1 else row for row in rows]

    def _next_action(self, slot: int) -> int:
        return (7 * slot + self._steps) % 50

    def step(
        self,
        slots: Iterable[int] | None = None,
        failing: Mapping[int, int] | None = None,
        victims: Iterable[int] = (),
        meanwhile: Callable[[], None] = lambda: None,
    ) -> None:
        """Steps envs, after a reset of those that need one.

        Args:
            slots: The slots to step; None for all.
            failing: The actions of the slots whose envs shall fail.
            victims: The slots whose envs are lost in this step.
            meanwhile: Called while the envs step.
        """
        slots = self._slots if slots is None else slots
        self._reset(sorted(self._to_reset.intersection(slots)))
        slots = [slot for slot in slots if slot not in self._to_reset]  # a reset may have failed
        self._steps += 1
        actions = {slot: self._next_action(slot) for slot in slots} | dict(failing or {})
        if self._is_twin:
            lost = self._owing.union(victims).intersection(slots)
            actions = {slot: _as_exception(action) for slot, action in actions.items()}
            actions |= dict.fromkeys(lost, FAIL["exception"])
        self._send_steps(actions)
        self._owing = self._owing.union(victims).difference(slots)
        meanwhile()
        self._receive()

    def _reset(self, slots: Sequence[int], seed: int | None = None, level: int | None = None) -> None:
        def send(part: Part, some: list[int]) -> None:
            seeds = None if seed is None else [seed + slot for slot in some]
            part.send_reset(seed=seeds, options=None if level is None else {"level": level}, env_ids=some)

        if slots:
            self._send(send, slots)
            self._receive()

    # -- operations ------------------------------------------------------------------------------------------

    def split(self, parts: int = 1) -> None:
        if self._combination["parts"] == 2:
            self._parts = self._pool.split(parts)
            if parts == 1:
                self.step()
                self.split(2)

    def step_some(self) -> None:
        if self._combination["partial"]:
            self.step(self._some(self._slots))

    def observe(self) -> None:
        """Requests the last observations once more, except those of envs that must be reset."""
        slots = self._steppable()
        rows = {slot: self._last[slot] for slot in slots}
        self._send(lambda part, some: part.request_obs(some), slots)
        self._receive()
        assert all(self._last[slot].obs == row.obs for slot, row in rows.items())
        self._last.update(rows)

    def reset_some(self) -> None:
        """Resets some slots within their episode."""
        if self._are_in_mid_episode(slots := self._some(self._slots)):
            self._reset(slots, seed=self._draw.choice([None, 100, 200]), level=self._draw.randrange(9))

    def reset_all(self) -> None:
        """Resets all slots. In a whole pool this also resets the spares."""
        if self._has_armed_spares:  # the seeds of these resets would depend on timing
            return
        seed = self._draw.randrange(10_000)

        def send(part: Part, some: list[int]) -> None:
            part.send_reset(seed=seed, env_ids=None if len(some) == part.num_envs else some)

        if not self._owing:
            self._send(send, self._slots)
            self._receive()

    def set_reset_options(self) -> None:
        """Sets different options for all slots but one. With spares, it sets the same options for all envs."""
        if self._combination["reset_options"] and self._is_calm():
            slots = None if self._combination["spares"] else self._slots[1:]
            longest = 12_000 if self._resumes else 20_000  # an episode that begins with longer options is not resumed
            level, pad = self._draw.randrange(9), "x" * self._draw.choice([0, longest])
            options: Any = {"level": level} if slots is None else [{"level": 10 * level + i, "pad": pad} for i in slots]
            if self._draw.random() < 0.5:
                self._whole.set_reset_options(options, slots)
            else:
                self.step(meanwhile=lambda: self._whole.set_reset_options(options, slots))

    def set_bonus(self) -> None:
        """Sets an attribute that rebuilt envs also receive."""
        if self._combination["calls"] and self._is_calm():
            self._whole.set_attr("bonus", self._draw.randrange(9), lasting=True)
            self._see(self._whole.get_attr("bonus"))
            self._begin_anew(self._slots)

    def call_in_flight(self) -> None:
        if not (self._combination["calls"] and self._is_calm()):
            return

        def ask() -> None:
            if self._resumes:  # another call might change the env
                assert len(self._whole.get_attr("bonus")) == len(self._slots)
            else:
                assert self._whole.apply(lambda _: 5) == [5] * len(self._slots)
            for part in self._parts:
                if part.pending:
                    with pytest.raises(StateError, match="in flight"):
                        part.send_reset(env_ids=part.env_ids)

        self.step(meanwhile=ask)

    def discard(self) -> None:
        # With spares, the order of background resets would be that of the results.
        if self._is_calm() and not (self._combination["spares"] and self._mode == "background"):
            self._send_steps({slot: self._next_action(slot) for slot in self._steppable()})
            for part in self._parts:
                part.discard()
            self._sent.clear()
            if self._mode == "disabled":  # the ends of episodes are unknown
                self._reset(self._slots)

    def set_states(self) -> None:
        """Saves the states of some envs, steps, and restores them. The envs must return the same observations again."""
        slots = self._some(self._steppable())
        if self._is_refused("[states](state.md)", lambda: self._whole.get_state(slots)):
            return
        if not slots or self._changes_envs():
            return
        rows = {slot: self._last[slot] for slot in slots}
        states = dict(zip(slots, self._whole.get_state(slots, state_fns=(take, put)), strict=True))
        self.step()
        if self._to_reset.intersection(slots):
            return
        for part in self._parts:
            if some := [slot for slot in part.env_ids.tolist() if slot in states]:
                self._note(part.set_state([states[slot] for slot in some], some))
                self._sent.update(some)
        self._receive()
        for slot, row in rows.items():
            assert (self._last[slot].obs, self._last[slot].ends) == (row.obs, row.ends)
        self._last.update(rows)
        self._begin_anew(slots)

    def _begin_anew(self, slots: Sequence[int]) -> None:
        """Resets envs that were put into a state or called, so that the next record, or replay, begins with a reset."""
        if self._combination["crash_dir"] or self._resumes:
            self._reset(slots)

    def fork_state(self) -> None:
        part = self._draw.choice(self._parts)
        slots = part.env_ids.tolist()
        if self._is_refused("[states](state.md)", lambda: part.fork_state(*slots[:2])):
            return
        if self._are_in_mid_episode(slots) and not self._changes_envs():
            self._see(part.fork_state(slots[0], slots, state_fns=(take, put)).obs.tolist())
            self._begin_anew(slots)

    def replace(self) -> None:
        part = self._draw.choice(self._parts)
        slots = self._some(part.env_ids.tolist())
        if not self._are_in_mid_episode(slots):
            return
        self._replacements += 1
        env_fns = self._maker.env_fns(first_tag=REPLACED * self._replacements)
        chosen = [env_fns[slot] for slot in slots] if len(env_fns) == SLOTS else [env_fns[i // 2] for i in slots[::2]]
        if not self._is_refused("`replace`", lambda: part.replace(slots, chosen)):
            part.replace(slots, chosen)
            self._reset(slots)

    def rollout(self) -> None:
        if not self._is_calm():
            return
        self._reset(sorted(self._to_reset))
        for part in self._parts:
            if self._is_refused("[rollouts](rollouts.md)", lambda: self._parts[0].rollout(3)):
                continue
            rollout = part.rollout(3)
            for step in rollout:
                self._steps += 1
                step.act(np.array([self._next_action(slot) for slot in step.env_ids.tolist()]))
            np.testing.assert_array_equal(rollout.extras["seen"], rollout.obs)
            np.testing.assert_array_equal(rollout.extras.get("paid", rollout.rewards), rollout.rewards)
            columns = rollout.obs, rollout.rewards, rollout.terminations, rollout.truncations, rollout.valid
            obs, *others = (column.tolist() for column in columns)
            assert obs[0] == [self._last[slot].obs for slot in part.env_ids.tolist()]
            self._see((obs, others))
            for i, slot in enumerate(part.env_ids.tolist()):
                ends = self._mode == "next_step" and bool(rollout.terminations[-1, i])
                self._last[slot] = Row(obs[-1][i], terminated=ends)

    # -- failures --------------------------------------------------------------------------------------------

    def _kinds(self, *, in_reset: bool) -> list[str]:
        """Returns the kinds of failures with results that do not depend on timing.

        The other envs of a worker that dies may or may not have finished, unless it dies before they begin.
        """
        is_alone = self._per_worker == self._width
        kinds = ["exception"] if self._width == 1 or not self._restarts or is_alone else []
        may_die = self._may_die and not self._has_threads and self._restarts and (is_alone or not in_reset)
        if in_reset and self._combination["spares"] and self._combination["faults"] == "report":
            may_die = False  # a spare that dies in a reset in advance has no command that would report it
        may_hang = self._combination["deadlines"] and self._hangs == 0
        return kinds + ["death"] * may_die + ["hang"] * (may_hang and self._restarts and (may_die or self._has_threads))

    def fail_in_step(self) -> None:
        kind = self._draw.choice(self._kinds(in_reset=False) or [""])
        if not kind or (found := self._find_victims(kind)) is None:
            return
        slot, victims = found
        self._hangs += kind == "hang"
        self.failures.append((self._last[slot].tag, self._last[slot].obs[3]))
        self.step(failing={slot: FAIL[kind]}, victims=victims)

    def fail_in_reset(self) -> None:
        """Makes the reset after the next step fail."""
        kind = self._draw.choice(self._kinds(in_reset=True) or [""])
        slots = self._vector_of(self._draw.choice(self._slots))
        if kind and self._reach(lambda: slots):
            self._hangs += kind == "hang"
            self._has_armed_spares = self._combination["spares"] > 0
            self.step(failing=dict.fromkeys(slots, FAIL_NEXT_RESET) | {slots[0]: FAIL_NEXT_RESET + FAIL[kind]})
            self.step()

    def kill_idle(self) -> None:
        """Kills an idle worker from outside."""
        slots = self._slots_of(self._worker_of(self._draw.choice(self._slots)))
        if "death" in self._kinds(in_reset=False) and self._are_in_mid_episode(slots):
            if not self._is_twin:
                kill(self._pool, self._worker_of(slots[0]))
            if not self._resumes:
                self._owing.update(slots)

    def kill_in_flight(self) -> None:
        """Kills a worker while commands are in flight. Its rows are those of the commands, or report the fault."""
        if self._changes_envs() or not self._is_calm():  # later rows would depend on what the worker has done
            return
        struck = self._slots_of(self._worker_of(self._draw.choice(self._slots)))
        if "death" not in self._kinds(in_reset=False) or not self._reach(lambda: struck):
            return
        before, slots = dict(self._last), self._steppable()
        command, is_dropped = self._draw.choice([self._step_on, self._observe_on]), self._draw.random() < 0.3
        if self._is_twin and self._resumes:
            command(slots)
        elif self._is_twin:
            self._send_steps(dict.fromkeys(struck, FAIL["exception"]))  # rebuilds the envs, as the death does
            command([slot for slot in slots if slot not in struck])
        else:
            command(slots)
            kill(self._pool, self._worker_of(struck[0]))
        for part in self._parts if is_dropped else ():
            part.discard()
        self._drain()
        rows, self._rows, self._sent = self._rows, {}, set()
        of_struck = {} if self._resumes else {slot: rows.pop(slot) for slot in struck if slot in rows}
        self._see({slot: self._comparable(rows[slot]) for slot in sorted(rows)})
        for slot, (row, *_) in () if self._is_twin else of_struck.items():
            old, obs = before[slot].obs, row.obs if row.final_obs is None else row.final_obs
            stepped = [*old[:3], old[3] + 1, self._next_action(slot)] if command == self._step_on else old
            assert obs == (old if row.has_fault else stepped), (row, before[slot])
        self.reset_all()

    def _step_on(self, slots: Iterable[int]) -> None:
        self._send_steps({slot: self._next_action(slot) for slot in slots})

    def _observe_on(self, slots: Iterable[int]) -> None:
        self._send(lambda part, some: part.request_obs(some), slots)

    def lose_worker(self, kind: str) -> None:
        """Loses a worker, or the env that hangs in a thread, permanently, with `faults="raise"`."""
        if (found := self._find_victims(kind)) is None:
            return
        slot, victims = found
        worker = self._worker_of(slot)
        actions = {other: 1 for other in self._slots if other not in victims and other not in self._to_reset}
        if not self._is_twin:
            actions |= dict.fromkeys(victims, 1) | {slot: FAIL[kind]}
        self._send_steps(actions)
        self._sent.difference_update(victims)
        self._receive()
        if not self._is_twin:
            (death,) = self._deaths
            assert (death.worker, isinstance(death, EnvTimeoutError)) == (worker, kind == "hang")
            for victim in victims:
                with pytest.raises(BrokenPoolError):
                    self._whole.get_attr("spec", [victim])

    # -- choosing slots --------------------------------------------------------------------------------------

    def _is_refused(self, method: str, call: Callable[[], Any]) -> bool:
        """Returns whether a feature excludes the method. If so, the tested pool must refuse the call."""
        is_refused = any(self._combination[factor] == value for factor, value in features.LIMITS[method])
        if is_refused and not self._is_twin:
            with pytest.raises(ValueError, match="expected"):
                call()
        return is_refused

    def _changes_envs(self) -> bool:
        """Whether slots get other envs, or rebuilt ones, that have no state."""
        return bool(self._combination["spares"] or self._combination["renew_every"])

    def _is_calm(self) -> bool:
        return not self._owing and not self._has_armed_spares

    def _some(self, slots: Sequence[int]) -> list[int]:
        """Returns some of these slots, as whole vectors."""
        firsts = slots[:: self._width]
        chosen = self._draw.sample(firsts, self._draw.randint(1, len(firsts))) if firsts else []
        return [slot for first in sorted(chosen) for slot in self._vector_of(first)]

    def _steppable(self) -> list[int]:
        return [slot for slot in self._slots if slot not in self._to_reset and slot not in self._owing]

    def _worker_of(self, slot: int) -> int:
        return self._last[slot].tag // self._per_worker

    def _slots_of(self, worker: int) -> list[int]:
        return [slot for slot in self._slots if self._worker_of(slot) == worker]

    def _vector_of(self, slot: int) -> list[int]:
        first = slot // self._width * self._width
        return list(range(first, first + self._width))

    def _find_victims(self, kind: str) -> tuple[int, list[int]] | None:
        """Returns the slot that fails and the slots that are lost with it. None means that this is impossible within a
        few steps.

        The failing slot is the first that is sent a command, so that no other env of the worker has begun its step.
        """
        order = [slot for part in self._parts for slot in part.env_ids.tolist()]
        slot = self._draw.choice(order)

        def victims() -> list[int]:
            is_alone = kind == "exception" or self._has_threads or self._resumes
            if is_alone and not (self._width > 1 and self._restarts):
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
        return not any(slot in self._to_reset or slot in self._owing or self._last[slot].ends for slot in slots)


OPERATIONS: list[Callable[[Life], None]] = [
    Life.split, Life.step_some, Life.step_some, Life.observe, Life.reset_some, Life.reset_all,
    Life.set_reset_options, Life.set_bonus, Life.call_in_flight, Life.discard,
    Life.set_states, Life.fork_state, Life.replace, Life.rollout,
    Life.fail_in_step, Life.fail_in_step, Life.fail_in_reset, Life.kill_idle, Life.kill_in_flight,
]  # fmt: skip


def _as_exception(action: int) -> int:
    """Returns the action that fails in the same way by an exception."""
    if action < FAIL["exception"]:
        return action
    return FAIL["exception"] + FAIL_NEXT_RESET * (action >= FAIL_NEXT_RESET)
