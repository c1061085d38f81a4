"""The start of worker processes and their inherited settings, equal for every start method."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pool_envs import CountingEnv, Gate, counting, hooked
from programs import Script, holdings, kill, pids_of, step_until_restarted

from remuda import Pool, StartTimeoutError, worker_info
from remuda._backends.waiting import Deadline


def test_a_script_needs_no_guard(start_method: Any, script: Callable[..., Script]) -> None:
    run = script(f"""
say("run")

class Oops(Exception):
    pass

class Thing:
    def __init__(self, n):
        self.n = n

class Colour(ColourSpace):
    pass

class Mine(CountingEnv):
    def __init__(self, tag=0):
        super().__init__(tag)
        self.observation_space = Colour()
        self.action_space = Colour()

    def observe(self):
        return "red"

    def reset(self, **kwargs):
        obs, info = super().reset(**kwargs)
        return obs, {{"n": kwargs["options"]["thing"].n, "thing": Thing(7)}}

    def step(self, action):
        raise Oops(action)

def named(env, thing):
    return Thing(env.tag + thing.n)

with Pool([Mine, lambda: Mine(tag=5)], start_method="{start_method}") as pool:
    batch = pool.reset(options={{"thing": Thing(3)}})
    say([batch.obs, batch.infos.stack()["n"].tolist(), type(batch.infos[0]["thing"]).__name__])
    say([type(pool.single_action_space) is Colour, pool.single_action_space == Colour()])
    say([thing.n for thing in pool.apply(named, Thing(1))])
    pool.set_attr("thing", Thing(8))
    say([thing.n for thing in pool.get_attr("thing")])
    try:
        pool.step(("red", "blue"))
    except EnvError as error:
        say([type(failure.exception).__name__ + str(failure) for failure in error.failures])
""")
    assert run.read_line() == "run"  # the program ran once
    assert run.read_line() == [["red", "red"], [3, 3], "Thing"]
    assert run.read_line() == [True, True]
    assert run.read_line() == [1, 6]
    assert run.read_line() == [8, 8]
    assert run.read_line() == [
        "Oopsenv 0 (worker 0) raised __main__.Oops in step: red (episode 0, step 1, no seed)",
        "Oopsenv 1 (worker 1) raised __main__.Oops in step: blue (episode 0, step 1, no seed)",
    ]
    assert run.await_end() == (0, "", "")


def test_workers_have_the_callers_environment(
    start_method: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers have the current environment variables, working directory and import path."""
    Pool(
        counting(1), start_method=start_method, num_workers=None
    ).close()  # starts the processes that remain between pools
    (tmp_path / f"new_module_{start_method}.py").write_text("VALUE = 42\n")
    monkeypatch.setenv("REMUDA_TEST_VARIABLE", "new")
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)

    def look(env: Any) -> Any:
        import importlib

        module = importlib.import_module(f"new_module_{start_method}")
        return os.environ.get("REMUDA_TEST_VARIABLE"), os.environ.get("HOME"), os.getcwd(), module.VALUE

    with Pool(counting(2), start_method=start_method, num_workers=None) as pool:
        assert pool.apply(look) == [("new", None, str(tmp_path), 42)] * 2


def test_workers_have_worker_info(start_method: Any) -> None:
    def note(env: Any) -> None:
        env.built_as = worker_info()

    def look(env: Any) -> Any:
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.append(worker_info()))
        thread.start()
        thread.join()
        return env.built_as, worker_info(), os.environ["REMUDA_WORKER_INDEX"], found[0]

    assert worker_info() is None
    fns = hooked(5, range(5), build=note)
    with Pool(fns, num_workers=2, start_method=start_method, name="herd") as pool:
        for i, (built_as, now, variable, in_thread) in enumerate(pool.apply(look)):
            index = 0 if i < 3 else 1
            assert (now.index, now.num_workers, now.env_ids) == (index, 2, ((0, 1, 2), (3, 4))[index])
            assert built_as == now == in_thread
            assert variable == str(index)
        names = [Path(f"/proc/{pid}/comm").read_text().strip() for pid in pids_of(pool)]
        assert names == [worker.name for worker in pool.workers] == ["herd-0", "herd-1"]
        assert pool.workers[1].env_ids == (3, 4)
    assert worker_info() is None
    assert "REMUDA_WORKER_INDEX" not in os.environ


def test_a_worker_is_a_child_of_multiprocessing(start_method: Any) -> None:
    """Libraries derive ports and seeds from its name and identity, and need its authkey."""

    def use(env: Any) -> Any:
        me, parent = multiprocessing.current_process(), multiprocessing.parent_process()
        assert parent is not None
        assert parent.is_alive()
        assert multiprocessing.active_children() == []
        child = multiprocessing.get_context("fork").Process(target=shared.update, args=({env.tag: env.built},))
        child.start()
        child.join()
        return me.name, me._identity, me.pid == os.getpid(), child._identity, child.exitcode, parent.pid, parent.name

    def build(env: Any) -> None:
        shared[f"built {env.tag}"] = env.built = multiprocessing.current_process().name

    with multiprocessing.Manager() as manager:
        shared = manager.dict()
        shared["before"] = True  # now the proxy has a connection, which forked workers must not use
        options: Any = {"start_method": start_method, "name": "sim", "num_workers": None}
        with (
            Pool(hooked(2, (0, 1), build=build), faults="restart", **options) as pool,
            Pool(counting(1), **options) as other,
        ):
            mine = multiprocessing.current_process()
            first = pool.apply(use)
            numbers = [one[1] for one in first]
            assert first == [
                (f"sim-{i}", numbers[i], True, (*numbers[i], 1), 0, os.getpid(), mine.name) for i in range(2)
            ]
            identities = {*numbers, *other.apply(lambda env: multiprocessing.current_process()._identity)}
            assert len(identities) == 3
            assert all(one[:-1] == mine._identity for one in identities)
            pool.reset()
            step_until_restarted(pool, 1, kill(pool, 1))
            assert pool.apply(use, env_ids=[1]) == first[1:]
        assert shared.copy() == {"before": True, **{k: f"sim-{i}" for i in (0, 1) for k in (i, f"built {i}")}}


@pytest.mark.parametrize(
    ("start_method", "limit"), [("forkserver", None), ("forkserver", 1), ("spawn", 3), ("fork", 1)]
)
def test_variables_for_threads_and_of_mpi(
    start_method: Any, limit: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"]
    of_mpi = ["OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"]
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    for name in limits[1:]:
        monkeypatch.delenv(name, raising=False)
    for name in of_mpi:
        monkeypatch.setenv(name, "1")
    expected = ["5", None, None, None] if limit is None else [str(limit)] * 4
    with Pool(counting(1), start_method=start_method, threads_per_worker=limit, num_workers=None) as pool:
        assert pool.apply(lambda env: [os.environ.get(name) for name in limits + of_mpi]) == [expected + [None] * 3]
    assert (os.environ["OMP_NUM_THREADS"], os.environ["PMI_RANK"]) == ("5", "1")


def test_workers_print_to_the_callers_current_output(start_method: Any, capfd: pytest.CaptureFixture[str]) -> None:
    def shout(env: Any) -> None:
        print("from python")
        os.write(1, b"from below\n")
        print("an error", file=sys.stderr)

    for _ in range(2):
        with Pool(counting(1), start_method=start_method, num_workers=None) as pool:
            pool.apply(shout)
            assert pool.workers[0].output() == pool.workers[0].output_tail() == ""
        out, err = capfd.readouterr()
        assert sorted(out.split("\n")) == ["", "from below", "from python"]
        assert err == "an error\n"


def test_global_random_numbers_differ_between_workers(start_method: Any) -> None:
    np.random.seed(0)
    drawn: list[Any] = []
    for _ in range(2):
        with Pool(counting(2), start_method=start_method, num_workers=None) as pool:
            drawn += pool.apply(lambda env: (int(np.random.randint(2**31)), __import__("random").random()))
    assert len({number for number, _ in drawn}) == 4
    assert len({number for _, number in drawn}) == 4
    # the caller's random numbers are unchanged
    assert np.random.randint(2**31) == np.random.RandomState(0).randint(2**31)


def test_start_timeout_names_the_envs_that_are_not_built_and_reports_the_stack_of_the_factory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, hangs = Gate(tmp_path), threading.Event()

    def hang_in_here() -> CountingEnv:
        gate.wait()
        raise AssertionError("it is never opened")

    def look_on() -> None:
        gate.await_arrival()
        hangs.set()

    monkeypatch.setattr(Deadline, "has_passed", lambda _: hangs.is_set())
    onlooker = threading.Thread(target=look_on)
    onlooker.start()
    # Worker 1 may not have built its envs either on a slow machine.
    expected = r"within start_timeout=1000.0 s, got no answer for the envs \[0, 1(, 2, 3)?\]"
    with pytest.raises(StartTimeoutError, match=expected) as caught:
        Pool([CountingEnv, hang_in_here, CountingEnv, CountingEnv], num_workers=2, start_timeout=1000.0)
    onlooker.join()
    message = str(caught.value)
    assert "worker 0 was in, the last call first:\n    File " in message
    assert message.endswith(" in hang_in_here"), message


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        (None, ModuleNotFoundError, "No module named 'bad_module"),
        ("raise ValueError('not today')", ValueError, "not today"),
        ("import sys; sys.exit(3)", Exception, "SystemExit in importing bad_module"),
        ("class E(Exception):\n    def __init__(self, a, b): super().__init__(a)\nraise E('odd', 2)", Exception, "odd"),
        ("import os; os._exit(3)", Exception, "fork server"),
    ],
)
def test_the_error_of_a_failed_preload(
    content: str | None, error: type[Exception], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"bad_module_{abs(hash(content))}"
    if content is not None:
        (tmp_path / f"{name}.py").write_text(content)
    monkeypatch.syspath_prepend(tmp_path)
    before = holdings()["children"]
    with pytest.raises(error, match=message):
        Pool(counting(2), preload=[name], num_workers=None)
    with Pool(counting(1), num_workers=None) as pool:
        assert pool.reset().obs.shape == (1, 4)
    assert holdings()["children"] <= before + 1
