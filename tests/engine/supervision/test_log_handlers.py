"""Log handlers are code of the program: they may take its locks, block, raise and use the pool, and harm no other code.

Each program would hang if a thread of the pool waited for the handler. Then the watchdog ends the test.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pairs import each, pairwise
from pool_envs import Gate, begun, hooked
from programs import Script

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the programs kill worker processes")

HEAD = """
import logging, signal

lock, entered, released = threading.RLock(), threading.Event(), threading.Event()

def fail(env, action):
    if action == 9 and {backend!r} == "process":
        os.kill(os.getpid(), signal.SIGKILL)
    elif action == 9:
        raise ValueError("broken")

def fork():
    if os.fork() == 0:
        os._exit(0)
    os.wait()

def use_lock():
    with lock:
        pass

def refuse():
    raise ValueError("no space left")

def interrupt():  # in the main thread as Ctrl-C does
    raise KeyboardInterrupt

threading.excepthook = lambda *_: os._exit(3)

class Handler(logging.Handler):
    def __init__(self, act):
        super().__init__()
        self.act = act

    def emit(self, record):
        entered.set()
        act, self.act = self.act, lambda: None
        act()

method = "fork" if {backend!r} == "process" else None  # needs no second interpreter
faults = FaultPolicy("restart", backoff=0)
pool = begun(hooked(2, step=fail), num_workers=2, faults=faults, backend={backend!r}, start_method=method)
ACTS = {{
    "lock": use_lock, "reset": lambda: pool.reset(), "call": lambda: pool.call("tag"), "stats": lambda: pool.stats(),
    "step": lambda: pool.step([1, 1]), "split": lambda: pool.split(2), "close": lambda: pool.close(), "fork": fork,
    "refuse": refuse, "interrupt": interrupt, "block": released.wait,
}}
logging.getLogger("remuda").addHandler(Handler(ACTS[{act!r}]))
"""
STEPS = """
with lock:
    try:
        while not entered.is_set():
            try:
                pool.step([1, 9])
            except KeyboardInterrupt:
                pass
        pool.discard()
        pool.split(1)
        pool.reset()
        pool.step([1, 1])
    except ClosedError:
        say("closed")
pool.close()
say("end")
"""
IDLES = """
with lock:
    pool.send([1, 9])
    entered.wait()  # in a thread of the pool
    try:
        pool.recv() if {act!r} not in ("reset", "step", "split") else None
        pool.stats()
    except (ClosedError, StateError):
        pass
    try:
        pool.discard()
        pool.reset()
        pool.step([1, 1])
    except (ClosedError, StateError):  # the handler is in the middle of its own call
        pass
released.set() if {act!r} == "block" else None
pool.close()
say("end")
"""
CLOSES = """
with lock:
    pool.send([1, 9])
    entered.wait()
    pool.close(timeout=60)
released.set()
say("end")
"""


@pairwise(
    act=["lock", "reset", "call", "stats", "step", "close", "fork", "refuse", "interrupt"],
    main=[STEPS, IDLES, CLOSES],
    backend=["process", "thread", "serial"],
)
def test_a_handler_of_a_fault_harms_only_itself(
    act: str, main: str, backend: str, script: Callable[..., Script]
) -> None:
    if backend == "serial" and main != STEPS:
        return  # only a call makes an env fail
    run = script(HEAD.format(backend=backend, act=act) + main.format(act=act))
    assert '"end"' in (end := run.await_end())[1], end
    assert end[0] == 0


@pytest.mark.parametrize("main", [IDLES, CLOSES])
def test_nothing_waits_for_a_handler_that_blocks(main: str, script: Callable[..., Script]) -> None:
    run = script(HEAD.format(backend="process", act="block") + main.format(act="block"))
    end = run.await_end()
    assert (end[0], '"end"' in end[1]) == (0, True), end


AMID = """
class Amid(logging.Handler):
    def emit(self, record):
        if record.name == "program":
            os.kill(pool.workers[1].pid, signal.SIGKILL)
            while not pool.stats().restarts:
                pass
            signal.raise_signal(signal.SIGTERM)
            say(pool.closed)

signal.signal(signal.SIGTERM, lambda *_: pool.close())
handler = Amid()
for name in ("program", "remuda"):
    logging.getLogger(name).addHandler(handler)
logging.getLogger("program").warning("hello")
"""


def test_a_signal_handler_closes_the_pool_while_a_log_handler_runs(script: Callable[..., Script]) -> None:
    """As a scheduler's SIGTERM does. The main thread holds the lock of the handler, for which a fault waits.

    `test_garbage` collects a pool there.
    """
    run = script(HEAD.format(backend="process", act="stats") + AMID)
    assert run.await_end()[:2] == (0, "true\n")


def test_a_trace_function_may_take_a_lock_of_the_caller(script: Callable[..., Script]) -> None:
    run = script(
        """
import signal

lock = threading.RLock()

def trace(*_):
    with lock:
        return None

def fail(env, action):
    if action == 9:
        os.kill(os.getpid(), signal.SIGKILL)

threading.settrace(trace)
with lock, Pool(hooked(2, step=fail), num_workers=2, faults=FaultPolicy("restart", backoff=0)) as pool:
    pool.reset()
    for _ in range(3):
        pool.step([1, 9])
        pool.step([1, 1])
say("end")
"""
    )
    assert run.await_end()[:2] == (0, '"end"\n')


@each(call=["step", "reset"], ids=[[0, 1], [1, 0]])
def test_a_call_for_some_envs_returns_their_rows_if_a_handler_sends_to_others(
    call: str, ids: list[int], tmp_path: Path
) -> None:
    gate, logger = Gate(tmp_path), logging.getLogger("some.env")

    def log_and_wait(env: Any, *_: Any) -> None:
        logger.warning("begins")
        gate.wait()

    def send(_: Any) -> bool:
        pool.send([7], env_ids=[2])
        threading.Thread(target=let_pass_after_the_other).start()
        return True

    def let_pass_after_the_other() -> None:
        gate.await_arrival()
        while pool.stats().envs[2].steps == 0:
            pass
        gate.open()

    hooks: Any = {"step" if call == "step" else "autoreset": log_and_wait}
    with begun(hooked(3, (0,), **hooks), num_workers=3) as pool:
        logger.addFilter(send)
        try:
            batch = pool.step([5, 5], env_ids=ids) if call == "step" else pool.reset(env_ids=ids)
        finally:
            logger.removeFilter(send)
        assert batch.env_ids.tolist() == ids
        assert pool.recv().env_ids.tolist() == [2]
