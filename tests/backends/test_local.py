"""The thread and serial backends, which run in the pool's own process."""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Any

import pytest
from pool_envs import DiceEnv, HookedEnv, counting, hooked
from programs import collect

from remuda import EnvError, Pool, SpaceMismatchError, worker_info
from remuda._backends import thread as thread_backend

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="worker processes need Linux")


def pool_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("remuda-")]


@pytest.mark.parametrize("backend", ["thread", "serial"])
def test_forgotten_pools_close_their_envs(backend: Any) -> None:
    closed: list[int] = []
    pool = Pool(hooked(3, (0, 1, 2), close=lambda env: closed.append(env.tag)), backend=backend, num_workers=None)
    pool.reset()
    threads = pool_threads()
    del pool
    collect()
    for thread in threads:
        thread.join()
    assert sorted(closed) == [0, 1, 2]


@pytest.mark.parametrize("backend", ["thread", "serial"])
def test_workers_of_other_backends_have_worker_info(backend: Any) -> None:
    def note(env: Any) -> None:
        env.built_as = worker_info()

    with Pool(hooked(3, range(3), build=note), backend=backend, num_workers=2) as pool:
        assert [info.index for info in pool.get_attr("built_as")] == [0, 0, 1]
        assert worker_info() is None
        assert [(worker.pid, worker.is_alive()) for worker in pool.workers] == [(None, True)] * 2
        in_main = pool.apply(lambda env: threading.current_thread() is threading.main_thread())
        assert in_main == [backend == "serial"] * 3
    assert not any(worker.is_alive() for worker in pool.workers)


def test_an_env_lives_in_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections to databases, graphics contexts and event loops belong to the thread that makes them."""
    used: dict[int, set[str]] = {}

    def use(env: Any, *_: Any) -> None:
        used.setdefault(env.tag, set()).add(threading.current_thread().name)

    def fails_once(env: Any, action: int) -> None:
        use(env)
        if action == 9:
            raise OSError("fails once")

    def env_fns(tag: int, **hooks: Any) -> Any:
        phases = dict.fromkeys(("build", "reset", "autoreset", "step", "call", "close"), use)
        return [lambda i=i: HookedEnv(i, **{**phases, **hooks}) for i in range(tag, tag + 4)]

    def names() -> dict[int, set[str]]:
        return {tag: {f"remuda-{tag % 4 // 2}"} for tag in used}

    options: Any = {"backend": "thread", "num_workers": 2}
    with Pool(env_fns(0, step=fails_once), faults="restart", **options) as pool:
        pool.reset()
        pool.step([1, 9, 1, 1])
        pool.call("poke")
        pool.replace(range(4), env_fns(4))
        pool.reset()
    assert used == names()

    goes_on = threading.Event()
    monkeypatch.setattr(thread_backend, "_FAREWELL", 0.01)

    def interrupt(env: Any) -> None:
        use(env)
        if env.tag == 10:
            os.kill(os.getpid(), signal.SIGINT)
            goes_on.wait()

    closed: list[int] = []

    def close(env: Any) -> None:
        use(env)
        closed.append(env.tag)

    with pytest.raises(KeyboardInterrupt):
        Pool(env_fns(8, build=interrupt, close=close), **options)
    goes_on.set()
    for thread in pool_threads():
        thread.join()
    assert sorted(closed) == [8, 9, 10]  # env 11 is not built any more
    with pytest.raises(EnvError, match="invalid literal"):
        Pool([*env_fns(12, close=close)[:3], lambda: int("x")], **options)
    with pytest.raises(SpaceMismatchError, match="observation space"):
        Pool([*env_fns(16, close=close)[:3], DiceEnv], **options)
    assert sorted(closed) == [8, 9, 10, 12, 13, 14, 16, 17, 18]
    assert used == names()


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system does not pin workers")
@pytest.mark.parametrize(("backend", "given"), [("thread", False), ("thread", True), ("process", True)])
def test_pinned_workers_stay_on_one_core_each_or_on_the_given_ones(backend: Any, given: bool) -> None:
    before = os.sched_getaffinity(0)
    cores = sorted(before)
    pin_workers: Any = [{cores[-1]}, cores] if given else True
    expected = [{cores[-1]}, before, {cores[-1]}] if given else [{cores[i % len(cores)]} for i in range(3)]
    with Pool(counting(3), backend=backend, num_workers=3, pin_workers=pin_workers) as pool:
        assert pool.apply(lambda env: os.sched_getaffinity(0)) == expected
    assert os.sched_getaffinity(0) == before


@pytest.mark.parametrize(
    ("cores", "error"),
    [
        *[(value, ValueError) for value in ([], [set()], [{0}, {-1}], [{"0"}], "all")],
        *[(value, TypeError) for value in ([0, 1], {0}, [{0}, None], 1.5)],
    ],
)
def test_cores_that_do_not_exist_are_refused(cores: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"expected pin_workers to be True, False, or sets of the cores \[0.*got "):
        Pool(counting(1), backend="thread", pin_workers=cores)


def test_pinning_is_refused_where_the_system_cannot_pin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_setaffinity", raising=False)
    with pytest.raises(ValueError, match="expected pin_workers=False on this system"):
        Pool(counting(1), backend="thread", pin_workers=True)


def test_processes_need_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(
        NotImplementedError, match="expected Linux for backend='process', got darwin; use backend='thread'"
    ):
        Pool(counting(1), backend="process", num_workers=None)
    Pool(counting(1), backend="serial").close()


def test_elsewhere_threads_are_the_default_with_one_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    for backend in (None, "auto", None):
        with Pool(counting(2), num_workers=2, backend=backend) as pool:
            assert pool.backend == "thread"
    assert len([record for record in caplog.records if "backend='thread'" in record.getMessage()]) <= 1
