"""Commands to an env between its fault and its next episode, and to a worker while its successor starts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from accidents import once, raise_value_error
from failing import ACTS
from pool_envs import CountingEnv, Gate, Gauge, HookedEnv, TextEnv, begun, hooked
from programs import kill

from remuda import EnvError, FaultPolicy, Pool, RestartLimitError

RESTART = FaultPolicy("restart", backoff=0)
WAITING = FaultPolicy("restart", backoff=0.2)  # a delay before each restart except the first


def restarting(env_fns: Any, faults: FaultPolicy = RESTART, **options: Any) -> Pool:
    """Returns a pool of envs that have been reset."""
    return begun(env_fns, faults=faults, log_advice=False, **options)


def clumsy(tag: int) -> Callable[[], Any]:
    """Returns a factory of envs that fail in the second step of each episode."""

    def fail(env: Any, action: int) -> None:
        if env.steps == 2:
            raise ValueError("broken")

    return lambda: HookedEnv(tag, step=fail)


# -- lasting attributes ----------------------------------------------------------------------------------


class Wish:
    """A value that is set as an attribute and that the env changes."""

    def __init__(self) -> None:
        self.granted = 0


def grant(env: Any, *_: Any) -> None:
    env.wish.granted += 1


@pytest.mark.parametrize("kind", ["death", "exception"])
@pytest.mark.parametrize("options", [{}, {"num_workers": 1}], ids=str)
def test_lasting_attributes_are_set_again(kind: str, options: dict[str, Any], tmp_path: Path) -> None:
    fail = once(tmp_path / "accident", ACTS[kind], lambda env: env.level == 12, skip=1)
    step = lambda *given: (fail(*given), grant(*given))[1]  # noqa: E731
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

    with restarting([CountingEnv, clumsy(1)], backend="serial") as pool:
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


def test_large_messages_wait_for_the_successor() -> None:
    text = "x" * 3_000_000
    with restarting([TextEnv] * 2, WAITING) as pool:
        for _ in range(2):  # the second death is followed by a delay in which env 1 has no worker
            pool.reset()
            kill(pool, 1)
            assert pool.step(("a", "b")).truncations.tolist() == [False, True]
        sizes = [pool.apply_async(lambda env, data: len(data), (text,), env_ids=[1]) for _ in range(2)]
        assert [len(obs) for obs in pool.step((text, text)).obs] == [len(text), 0]  # the action of env 1 is not used
        pool.send_reset(options={"text": text}, env_ids=[1])
        assert pool.recv().obs == (text,)
        assert [size.result() for size in sizes] == [[len(text)]] * 2


def test_large_messages_survive_a_failed_build(tmp_path: Path) -> None:
    text, builds = "x" * 3_000_000, Gauge(tmp_path / "builds")
    gate = Gate(tmp_path)

    def make() -> TextEnv:
        builds.enter()
        if builds.entries() == 2:
            gate.wait()
            raise ValueError("broken")
        return TextEnv()

    with restarting([TextEnv, make]) as pool:
        kill(pool, 1)
        assert pool.step(("a", "b")).truncations.tolist() == [False, True]
        pool.send_reset(options={"text": text}, env_ids=[1])
        gate.let_pass()
        assert pool.recv().obs == (text,)
