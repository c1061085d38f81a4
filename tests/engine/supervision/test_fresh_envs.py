"""Commands to an env between its fault and its next episode, and to a worker while its successor starts."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from accidents import die, once, raise_value_error
from answers import DEATHS, EXCEPTIONS, SEQUENCES, answers, possible
from answers import MODES as ALL_MODES
from failing import ACTS, MODES, assert_cut_off, fault_in
from pairs import each, pairwise
from pool_envs import CountingEnv, Gate, HookedEnv, TextEnv, begun, hooked
from programs import kill
from replays import at_step, broken
from state_envs import Putting, take_counts

from remuda import EnvError, FaultPolicy, Pool, RestartLimitError, StateError, WorkerDiedError, load_record

RESTART = FaultPolicy("restart", backoff=0)
WAITING = FaultPolicy("restart", backoff=0.2)  # a delay before each restart except the first


def restarting(env_fns: Any, faults: FaultPolicy = RESTART, **options: Any) -> Pool:
    """Returns a pool of envs that have been reset."""
    return begun(env_fns, faults=faults, log_advice=False, **options)


# -- lasting attributes ----------------------------------------------------------------------------------


class Wish:
    """A value that is set as an attribute and that the env changes."""

    def __init__(self) -> None:
        self.granted = 0


@pytest.mark.parametrize("kind", ["death", "exception"])
@pytest.mark.parametrize("options", [{}, {"num_workers": 1}], ids=str)
def test_lasting_attributes_are_set_again(kind: str, options: dict[str, Any], tmp_path: Path) -> None:
    fail = once(tmp_path / "accident", ACTS[kind], lambda env: env.level == 12, skip=1)

    def step(env: Any, action: Any) -> None:
        fail(env, action)
        env.wish.granted += 1

    with restarting(hooked(2, which=(0, 1), step=step), **options) as pool:
        pool.set_attr("wish", Wish(), lasting=True)
        pool.set_attrs("level", [10, 11], lasting=True)
        pool.set_attr("level", 12, env_ids=[1], lasting=True)
        pool.set_attr("tag", 5)  # only the current env gets this attribute
        pool.step([1, 1])
        assert pool.step([1, 1]).truncations[1]
        assert pool.get_attr("level") == [10, 12]
        assert pool.get_attr("tag")[1] == 1
        gone = {0, 1} if kind == "death" and options == {"num_workers": 1} else {1}
        assert [wish.granted for wish in pool.get_attr("wish")] == [0 if i in gone else 2 for i in range(2)]


class ReservedEnv(CountingEnv):
    """An env that accepts a level only once, even after it was rebuilt."""

    marker: Path

    def set_wrapper_attr(self, name: str, value: Any) -> None:
        if self.marker.exists():
            raise ValueError("not again")
        self.marker.touch()
        super().set_wrapper_attr(name, value)


def test_an_exception_when_an_attribute_is_set_again_is_a_fault_of_the_build(tmp_path: Path) -> None:
    ReservedEnv.marker = tmp_path / "told"
    with restarting([ReservedEnv], FaultPolicy("restart", max_restarts=2, backoff=0), start_method="fork") as pool:
        pool.set_attr("level", 7, lasting=True)
        kill(pool, 0)
        with pytest.raises(RestartLimitError, match="not again"):
            while True:
                pool.step([1])


def test_a_rebuilt_env_repeats_the_latest_call_about_each_subject_in_their_order() -> None:
    def log(env: Any, call: str) -> None:
        vars(env).setdefault("calls", []).append(call)

    with restarting(hooked(2, step=at_step(2, broken)), backend="serial") as pool:
        for about, call in (("speed", "slow"), ("size", "large"), ("speed", "fast")):
            pool.apply_async(log, (call,), about=about).result()
        pool.step([1, 1])
        assert pool.step([1, 1]).truncations.tolist() == [False, True]
        assert pool.get_attr("calls") == [["slow", "large", "fast"], ["large", "fast"]]


def test_a_failed_lasting_call_is_not_repeated() -> None:
    with restarting(hooked(2, call=raise_value_error)) as pool:
        with pytest.raises(EnvError, match="broken"):
            pool.apply_async(lambda env: env.poke(), about="poke").result()
        kill(pool, 1)
        pool.step([1, 1])
        pool.step([1, 1])
        assert pool.stats().restarts == 1


# -- between two processes -------------------------------------------------------------------------------


def test_large_messages_wait_for_the_successor(tmp_path: Path) -> None:
    text = "x" * 3_000_000
    build = once(tmp_path / "built", raise_value_error, skip=2)  # the second rebuild fails
    with restarting([TextEnv, lambda: build() or TextEnv()], WAITING) as pool:
        for _ in range(2):  # the second death is followed by a delay in which env 1 has no worker
            pool.reset()
            kill(pool, 1)
            assert pool.step(("a", "b")).truncations.tolist() == [False, True]
        sizes = [pool.apply_async(lambda env, data: len(data), (text,), env_ids=[1]) for _ in range(2)]
        assert [len(obs) for obs in pool.step((text, text)).obs] == [len(text), 0]  # the action of env 1 is not used
        pool.send_reset(options={"text": text}, env_ids=[1])
        assert pool.recv().obs == (text,)
        assert [size.result() for size in sizes] == [[len(text)]] * 2


# -- columns of infos ------------------------------------------------------------------------------------


def test_a_key_that_appears_during_a_restart_has_one_column_in_all_workers(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    build = once(tmp_path / "built", lambda _: gate.wait(), skip=1)

    def step(env: HookedEnv, action: Any) -> Any:
        return env.observe(), 0.0, False, False, {f"key {n}": float(n + env.tag) for n in range(int(action))}

    env_fns = [lambda: HookedEnv(0, step=step), lambda: HookedEnv(1, step=step, build=build)]
    with begun(env_fns, faults=RESTART) as pool:
        pool.step([1, 1])
        kill(pool, 1)
        assert "fault" in pool.step([1, 1]).infos[1]
        gate.await_arrival()
        pool.send([1, 1])
        for keys in (2, 2, 3, 3):  # the successor receives the new keys when it starts
            assert pool.recv(min_envs=1).env_ids.tolist() == [0]
            pool.send([keys], env_ids=[0])
        gate.open()
        pool.recv()
        for keys in (1, 2, 3, 1, 3):
            infos = pool.step([keys, keys]).infos
            assert list(infos) == [{f"key {n}": float(n + env) for n in range(keys)} for env in range(2)]


# -- the last observation --------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("when", [3, 0])
def test_a_result_that_cannot_be_sent_is_not_the_last_observation(when: int, mode: Any, tmp_path: Path) -> None:
    """`when`: the step with an info that cannot be pickled, or 0 for the reset."""
    bad = once(tmp_path / "bad", lambda _: {"lock": threading.Lock()})  # cannot be pickled
    deadly = once(tmp_path / "dead", die, when=lambda env: env.steps == 5)

    def reset(env: HookedEnv) -> Any:
        return (env.observe(), bad(env) or {}) if when == 0 else None

    def step(env: HookedEnv, action: Any) -> Any:
        deadly(env)
        return (env.observe(), 1.0, False, False, bad(env) or {}) if env.steps == when else None

    with begun(hooked(2, reset=reset, autoreset=reset, step=step), faults=RESTART, autoreset=mode) as pool:
        seen: list[list[int]] = []
        cut = 0
        while cut < (1 if when == 0 else 2):
            batch = pool.step([len(seen)] * 2)
            if batch.truncations[1]:
                assert_cut_off(batch, 1, seen[-1])
                cut += 1
                if mode == "disabled":
                    batch = pool.reset(env_ids=[1])
                    seen.append(batch.obs[0].tolist())
                    continue
            seen.append(batch.obs[1].tolist())


# -- each command has one answer, whatever has failed and whenever that was noticed ----------------------


@pytest.mark.parametrize("sequence", SEQUENCES, ids="-".join)
@pytest.mark.parametrize("autoreset", ALL_MODES)
def test_answers_do_not_depend_on_the_fault(autoreset: Any, sequence: tuple[str, ...]) -> None:
    fates = possible(sequence, DEATHS + EXCEPTIONS)
    expected, *others = answers(fates, sequence, num_workers=len(fates), autoreset=autoreset)
    if exceptions := possible(sequence, EXCEPTIONS):
        for backend in ("thread", "serial"):
            others += answers(exceptions, sequence, backend=backend, autoreset=autoreset)
    assert others == [expected] * len(others)


@pytest.mark.parametrize(("fate", "first"), [(("before", "death"), "observe"), (("step", "exception"), "step")])
def test_the_end_is_reported_once_and_then_the_last_observation_repeated(fate: tuple[str, str], first: str) -> None:
    sequence = (first, "observe", "step", "observe", "reset", "step")
    (seen,) = answers([fate], sequence, autoreset="disabled")
    last = [1.0, 1.0]
    assert seen[0] == [(last, None, 0.0, False, True, True)]
    assert seen[1] == seen[3] == [(last, None, 0.0, False, False, None)]
    assert seen[2] == "expected envs that have been reset, got env ...; call reset first"
    assert seen[4][0][0] == [0.0, 0.0]
    assert seen[5][0][0] == [1.0, 2.0]


# -- states: faults in set_state, and after it -----------------------------------------------------------


@each(kind=["death", "exception"], mode=MODES)
def test_a_fault_after_set_state_repeats_the_observation_of_the_state(mode: Any, kind: str, tmp_path: Path) -> None:
    fail = once(tmp_path / "once", ACTS[kind], lambda env: env.last_action == 9)
    extras = {"steps": lambda env: env.steps}
    with begun(hooked(2, step=fail), seed=0, autoreset=mode, faults=RESTART, extras=extras) as pool:
        pool.step([1, 1])
        states = pool.get_state(state_fns=(take_counts, Putting()))
        for _ in range(4):
            pool.step([1, 1])
        put = pool.set_state(states)
        assert put.obs[:, 2].tolist() == [1, 1]
        batch = pool.step([0, 9])
        assert batch.truncations.tolist() == [False, True]
        last = batch.final_obs if mode == "same_step" else batch.obs
        assert last[1].tolist() == put.obs[1].tolist()
        assert batch.extras["steps"].tolist() == [2, 0 if mode == "same_step" else 1]
        if mode == "disabled":
            pool.reset(env_ids=[1])
        assert pool.step([0, 0]).obs[1, 2] == (0 if mode == "next_step" else 1)


@pairwise(is_idle=[True, False], mode=MODES)
def test_a_rebuilt_env_has_no_state_before_its_reset(mode: Any, is_idle: bool, tmp_path: Path) -> None:
    fail = once(tmp_path / "once", raise_value_error, lambda env: env.last_action == 9)
    fns = take_counts, Putting()
    with begun(hooked(2, step=fail), seed=0, autoreset=mode, faults=RESTART) as pool:
        if is_idle:
            kill(pool, 1)
            with pytest.raises((StateError, WorkerDiedError)):
                pool.get_state([1], state_fns=fns)
        else:
            assert pool.step([0, 9]).truncations.tolist() == [False, True]
        if mode != "same_step" or is_idle:  # in the other cases the row of the fault begins the next episode
            for _ in range(2):
                with pytest.raises(StateError, match="env 1"):
                    pool.get_state(state_fns=fns)
        if is_idle:
            assert pool.step([0, 0]).truncations.tolist() == [False, True]
            if mode != "same_step":
                with pytest.raises(StateError, match="env 1"):
                    pool.get_state([1], state_fns=fns)
        if mode == "disabled":
            pool.reset(env_ids=[1])
        pool.step([0, 0])
        assert len(pool.get_state(state_fns=fns)) == 2


@pytest.mark.parametrize("kind", ["death", "exception"])
def test_set_state_is_repeated_after_a_fault(kind: str, tmp_path: Path) -> None:
    fail = once(tmp_path / "once", ACTS[kind], lambda env: env.tag == 1)
    with begun(hooked(2), seed=0, faults=RESTART) as pool:
        pool.step([1, 1])
        states = pool.get_state(state_fns=(take_counts, Putting(fail)))
        pool.step([1, 1])
        batch = pool.set_state(states)
        assert (batch.obs[:, 2].tolist(), batch.truncations.any()) == ([1, 1], False)
        assert pool.stats().restarts == (kind == "death")
        assert pool.step([0, 0]).obs[:, 2].tolist() == [2, 2]


def test_without_restarts_a_failed_set_state_needs_a_reset(tmp_path: Path) -> None:
    fail = once(tmp_path / "once", raise_value_error, lambda env: env.tag == 1)
    with begun(hooked(2), num_workers=1) as pool:
        pool.step([1, 1])
        states = pool.get_state(state_fns=(take_counts, Putting(fail)))
        with pytest.raises(EnvError, match="env 1 .* in reset"):
            pool.set_state(states)
        with pytest.raises(StateError, match="expected envs that have been reset, got env 1"):
            pool.step([0, 0])
        pool.discard()  # discards the result of env 0, because its state was set
        assert pool.set_state(states).obs[:, 2].tolist() == [1, 1]


def test_reports_count_steps_from_the_state(tmp_path: Path) -> None:
    fail = once(tmp_path / "once", raise_value_error, lambda env: env.last_action == 9)
    with begun(hooked(2, step=fail), num_workers=1) as pool:
        for _ in range(3):
            pool.step([1, 1])
        states = pool.get_state(state_fns=(take_counts, Putting()))
        pool.reset()
        pool.set_state(states)
        with pytest.raises(EnvError, match="step 4"):
            pool.step([0, 9])


def test_only_a_record_of_an_episode_without_set_state_can_be_replayed(tmp_path: Path) -> None:
    fail = lambda env, action: raise_value_error() if action == 9 else None  # noqa: E731
    with Pool(hooked(2, step=fail), faults=RESTART, autoreset="disabled", crash_dir=tmp_path) as pool:
        records = []
        for _ in range(2):
            pool.reset(seed=0)
            records.append(load_record(fault_in(pool.step([1, 9]), 1).record or ""))
            pool.reset(env_ids=[1])
            pool.set_state(pool.get_state(state_fns=(take_counts, Putting())))
            records.append(load_record(fault_in(pool.step([1, 9]), 1).record or ""))
    assert [record.is_whole for record in records] == [True, False] * 2
    assert records[1].kinds.tolist()[-2:] == [5, 4]
