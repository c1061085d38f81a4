"""Programs that end with an open pool: their exit code and output are unchanged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pairs import each
from pool_envs import Gate
from programs import Script

pytestmark = pytest.mark.leaves_things  # the programs leave things behind on purpose

# For programs with threads that request the GIL during finalisation. The finalisation waits for these requests.
LINGER = r"""
class Linger:
    def __init__(self):
        self.read_end, self.write_end = os.pipe()
        self.arrived, self.tids = threading.Event(), []

    def watch_thread(self):
        self.tids.append(threading.get_native_id())

    def sleep(self, *_):
        self.watch_thread()
        self.arrived.set()
        os.read(self.read_end, 1)

class End:
    # Freed when the interpreter clears its modules: wakes the sleeping threads, and waits until all sleep permanently.

    def __init__(self, linger):
        self.linger = linger

    def __del__(self):
        os.write(self.linger.write_end, b"x" * len(self.linger.tids))
        for tid in self.linger.tids:
            seen, calm = None, 0
            while calm < 1000:
                before, seen = seen, look_at(tid)
                calm = calm + 1 if seen == before and seen[0] == "S" else 0
        os.write(1, b"lingered")

def look_at(tid):
    path = f"/proc/self/task/{tid}/"
    with open(path + "stat") as stat, open(path + "status") as status:
        state = stat.read().rpartition(")")[2].split()[0]
        return state, int(re.search("\nvoluntary_ctxt_switches:(.*)", status.read())[1])

linger = Linger()
sys.modules["end"] = End(linger)
"""


LINGERING = {
    "a step": """
pool = Pool(hooked(2, (1,), step=linger.sleep), backend="thread")
pool.reset()
pool.send([1, 2])
linger.arrived.wait()
""",
    # The env's result is pickled below many frames of the core.
    "pickling": """
class Slow:
    def __reduce__(self):
        linger.sleep()
        return Slow, ()

result = [0] * 4, 0.0, False, False, {"slow": Slow()}
pool = Pool(hooked(1, (0,), step=lambda *_: result), backend="thread")
pool.reset()
pool.send([1])
linger.arrived.wait()
""",
    "a thread that waits for a batch": """
pool = Pool(hooked(1, (0,), step=wait_for_ever), backend="thread")
pool.reset()
waited = pool.stats().caller.waiting
pool.send([1])

def receive():
    linger.watch_thread()
    pool.recv()

threading.Thread(target=receive, daemon=True).start()
while pool.stats().caller.waiting == waited:  # it looks up from time to time
    pass
""",
}


@pytest.mark.parametrize(
    ("lingering", "end"), [*((name, "") for name in LINGERING), ("a step", "raise ValueError('mine')")]
)
def test_a_wait_may_end_during_finalisation(lingering: str, end: str, script: Callable[..., Script]) -> None:
    code, out, err = script(LINGER + LINGERING[lingering] + end).await_end()
    assert (code, out) == (int(end != ""), "lingered"), err
    assert err == "" or ("mine" in end and err.count("Traceback") == 1)


# Workers end in the same way for every exit of the interpreter except `os._exit`, which skips its cleanup.
ENDS = [*(("", start_method) for start_method in ("forkserver", "spawn", "fork"))]
ENDS += [("os._exit(3)", "fork"), ("raise ValueError('mine')", "forkserver")]


@pytest.mark.parametrize(("end", "start_method"), ENDS)
def test_the_interpreter_ends_without_a_close(end: str, start_method: Any, script: Callable[..., Script]) -> None:
    """All workers end, and idle threads close their envs."""
    run = script(
        f"""
pool = Pool(counting(2), start_method="{start_method}")
other = Pool(counting(2), backend="thread")
idle = Pool(hooked(3, (0, 1, 2), close=lambda env: say(env.tag)), backend="thread")
pool.reset(), other.reset(), idle.reset()
pool.send([1, 2]), other.send([1, 2])
{end}
""",
        "-Werror",
        "-Xdev",
    )
    code, out, err = run.await_end()
    assert sorted(out.split()) == ([] if end == "os._exit(3)" else ["0", "1", "2"])
    if "mine" in end:
        assert (code, err.count("Traceback")) == (1, 1)
    else:
        assert (code, err) == (3 if end else 0, "")


def test_a_forked_copy_may_exit_normally(script: Callable[..., Script]) -> None:
    """The copy leaves the `with` block and runs exit handlers."""
    run = script("""
with Pool(counting(2)) as pool:
    pool.reset()
    pid = os.fork()
    if pid == 0:
        sys.exit(0)
    os.waitpid(pid, 0)
    say(pool.step([1, 2]).rewards.tolist())
""")
    assert run.read_line() == [1, 2]
    assert run.await_end()[:2] == (0, "")


@each(
    use__phase=[("step", "step"), ("call", "step"), ("close", "close"), ("start", "build")],
    start_method=["fork", "forkserver"],
)
def test_a_daemon_thread_may_use_a_pool_at_the_programs_end(
    use: str, phase: str, start_method: str, script: Callable[..., Script], tmp_path: Path
) -> None:
    """The daemon thread waits for a worker, and the worker's end raises no error in the thread."""
    gate = Gate(tmp_path)
    run = script(f"""
gate = {gate!r}

def run():
    global pool
    pool = Pool(hooked(2, (1,), {phase}=lambda *_: (gate.wait(), wait_for_ever())), start_method="{start_method}")
    pool.reset()
    if "{use}" == "close":
        pool.close(timeout=1e6)
    pool.send([1, 1])
    if "{use}" == "call":
        pool.call("tag")
    pool.recv()

threading.Thread(target=run, daemon=True).start()
gate.let_pass()
""")
    assert run.await_end() == (0, "", "")


@pytest.mark.parametrize("backend", ["process", "thread", "serial"])
def test_a_daemon_thread_that_calls_a_pool_during_finalisation_is_held(
    backend: str, script: Callable[..., Script]
) -> None:
    run = script(f"""
import weakref

class Last:
    pass

last, has_ended, came_back = Last(), threading.Event(), threading.Event()

def let_it_come():
    # What was made before the pool is finalised after it.
    has_ended.set()
    came_back.wait()
    while thread.is_alive() and "hold_daemon_thread" not in names(sys._current_frames()[thread.ident]):
        pass

def names(frame):
    while frame is not None:
        yield frame.f_code.co_name
        frame = frame.f_back

def run():
    has_ended.wait()
    came_back.set()
    pool.step([1, 1])

weakref.finalize(last, let_it_come)
pool = Pool(counting(2), backend="{backend}")
pool.reset()
thread = threading.Thread(target=run, daemon=True)
thread.start()
""")
    assert run.await_end() == (0, "", "")
