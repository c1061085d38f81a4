"""The threads of a pool run no code of the program, whatever happens to its envs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from pairs import each, pairwise

# Notes each function outside remuda, the standard library, NumPy and Gymnasium that a thread of a pool calls.
WATCH = """
import sysconfig
import remuda
from own_classes import *

own = [os.path.dirname(module.__file__) + os.sep for module in (remuda, np, gymnasium)]
library = sysconfig.get_path("stdlib") + os.sep
foreign, watched = set(), set()

def is_foreign(path):
    if path.startswith(("<frozen", "<string>", *own)):  # "<string>": methods that a dataclass generates
        return False
    return not path.startswith(library) or "site-packages" in path

def profile(frame, event, _):
    name = threading.current_thread().name
    if name.endswith("-supervisor") or name.startswith("remuda-start-"):
        watched.add(name.rpartition("-")[0] if name[-1].isdigit() else "supervisor")
        if event == "call" and is_foreign(frame.f_code.co_filename):
            foreign.add(f"{name}: {frame.f_code.co_qualname} ({frame.f_code.co_filename}:{frame.f_lineno})")

threading.setprofile(profile)

def attempt(function, *args, **kwargs):
    try:
        return function(*args, **kwargs)
    except RemudaError as error:
        return error

def report(pool):
    # The number of faults of the pool, and what the threads ran.
    faults = pool.stats().faults
    pool.close()
    say([sorted(foreign), sorted(watched), faults])
"""

STORM = """
import tempfile
from functools import partial

backend, mode, on_fault = sys.argv[1:]
gymnasium.register("Own-v0", entry_point="own_classes:OwnEnv")
made = partial(gymnasium.make, "Own-v0", disable_env_checker=True)
limits = dict(step_timeout=1.0, backoff=0, max_restarts=1000)
limits |= dict(abandon_hung_threads=True) if on_fault == "restart" else {}
acts = [RAISE, UNPICKLABLE, EXIT, HANG] + [KILL] * (backend == "process")
with tempfile.TemporaryDirectory() as builds, tempfile.TemporaryDirectory() as crashes:
    pool = Pool(
        [made, partial(OwnEnv, builds, "fails"), OwnEnv], backend=backend, autoreset=mode, crash_dir=crashes,
        faults=FaultPolicy(on_fault, **limits),
    )
    pool.reset(seed=3, options={"thing": OwnObject()})
    pool.set_reset_options({"thing": OwnObject()})
    pool.set_attr("thing", OwnObject(), lasting=True)
    for act in acts:
        for env in range(3):
            actions = [STEP] * 3
            actions[env] = act
            attempt(pool.reset)
            attempt(pool.step, actions)
            attempt(pool.step, [STEP] * 3)
        if on_fault == "raise":  # otherwise the reset is repeated until the limit of restarts
            attempt(pool.reset, options={"raises": True})
        attempt(pool.request_obs) or attempt(pool.recv)
        attempt(pool.call, "fail")
        attempt(pool.call, "note", OwnObject())
        attempt(pool.reset)
        attempt(pool.replace, [2], [OwnEnv])
    report(pool)
"""


def run(script: Callable[..., Any], code: str, *arguments: str) -> list[Any]:
    program = script(WATCH + f"sys.argv[1:] = {list(arguments)!r}\n" + code)
    foreign, watched, faults = program.read_line()
    code, _, err = program.await_end()
    assert code == 0, err
    return [foreign, watched, faults]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="code has no co_qualname")
@pairwise(backend=["process", "thread"], mode=["next_step", "same_step", "disabled"], on_fault=["restart", "raise"])
def test_supervision_runs_no_code_of_the_program(
    backend: str, mode: str, on_fault: str, script: Callable[..., Any]
) -> None:
    foreign, watched, faults = run(script, STORM, backend, mode, on_fault)
    assert foreign == []
    assert watched == ["remuda-start", "supervisor"][not (backend == "process" and on_fault == "restart") :]
    assert faults > 2


MISFIT = """
import tempfile
from functools import partial

with tempfile.TemporaryDirectory() as builds:
    pool = Pool(
        [OwnEnv, partial(OwnEnv, builds, "other spaces")], autoreset="same_step",
        faults=FaultPolicy("restart", backoff=0, max_restarts=1),
    )
    pool.reset()
    error = attempt(pool.step, [STEP, KILL])
    while not isinstance(error, RestartLimitError):
        error = attempt(pool.step, [STEP, STEP])
    assert "SpaceMismatchError in build" in str(error) and "got env 1: " in str(error), error
    assert isinstance(error.__cause__.__cause__, SpaceMismatchError), error.__cause__.__cause__
    report(pool)
"""


@pytest.mark.skipif(sys.version_info < (3, 11), reason="code has no co_qualname")
@pytest.mark.skipif(sys.platform != "linux", reason="worker processes need Linux")
def test_successors_compare_their_spaces_themselves(script: Callable[..., Any]) -> None:
    foreign, watched, _ = run(script, MISFIT)
    assert foreign == []
    assert watched == ["remuda-start", "supervisor"]


TRAINING = """
import sys
from remuda import EnvError, FaultPolicy, Pool, worker_info
from pool_envs import begun, CountingEnv

class OwnError(Exception):
    pass

class FailingEnv(CountingEnv):
    def step(self, action):
        if action == 1:
            raise OwnError("one")
        return super().step(action)

def train(backend, on_fault, start_method):
    options = {"start_method": start_method} if start_method else {}
    policy = FaultPolicy(on_fault, backoff=0)
    with begun([FailingEnv] * 2, backend=backend, faults=policy, autoreset="same_step", **options) as pool:
        if on_fault == "raise":
            try:
                pool.step([0, 1])
            except EnvError as error:
                return error
        return pool.step([0, 1]).infos[1]["final_info"]["fault"].error

if worker_info() is None:
    print(type(train(*sys.argv[1:]).__cause__).__name__)
"""

WAYS = [("process", "forkserver"), ("process", "fork"), ("thread", ""), ("serial", "")]


@each(on_fault=["restart", "raise"], backend__start_method=WAYS if sys.platform == "linux" else WAYS[2:])
def test_a_module_that_trains_while_it_is_imported(
    backend: str, start_method: str, on_fault: str, script: Callable[..., Any], tmp_path: Path
) -> None:
    """Its exceptions can be unpickled only in the thread that imports it, and pickled in no other thread."""
    (tmp_path / "train_when_imported.py").write_text(TRAINING)
    code = f"sys.argv[1:] = {[backend, on_fault, start_method]!r}\nimport train_when_imported"
    cause = "RemoteTraceback" if backend == "thread" else "OwnError"
    assert script(code).await_end()[:2] == (0, f"{cause}\n")


RAISING = """
from accidents import raise_value_error

backend, on_fault, call = sys.argv[1:]
env_fns = hooked(1, [0], **{call: raise_value_error})
policy = FaultPolicy(on_fault, max_restarts=int(call == "step"))
with begun(env_fns, backend=backend, autoreset="disabled", faults=policy) as pool:
    batch = pool.step([1])
    raise batch.infos[0]["fault"].error if call == "step" else pool.call("poke")
"""
BACKENDS = ["process", "thread", "serial"] if sys.platform == "linux" else ["thread", "serial"]


@each(
    backend__call=[*product(BACKENDS[:1], ["build", "step", "call"]), ("thread", "step"), ("serial", "call")],
    on_fault=["restart", "raise"],
)
def test_python_prints_the_exception_of_an_env_as_the_cause(
    backend: str, on_fault: str, call: str, script: Callable[..., Any]
) -> None:
    """Python prints only causes that exist when it prints an error."""
    _, _, err = script(f"sys.argv[1:] = {[backend, on_fault, call]!r}\n{RAISING}").await_end()
    first, second, *_, last = err.split("The above exception was the direct cause of the following exception:")
    assert "remuda.errors.RemoteTraceback" in first
    assert second.strip() == "ValueError: broken"
    assert f"raised ValueError in {call}: broken" in last
