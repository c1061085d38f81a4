"""Envs that raise, in every phase and on every backend: the error names the env and has its traceback."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from failing import assert_goes_on_without
from odd_exceptions import Falsy, NeedsArguments, TwoArguments, Unpicklable, Unprintable, raising
from pairs import each
from pool_envs import counting, hooked

import remuda
from remuda import EnvError, Pool, RemoteTraceback
from remuda._wire.pickling import load

BACKENDS: tuple[Any, ...] = ("process", "thread", "serial")


# -- envs that raise -------------------------------------------------------------------------------------


def local_exception() -> BaseException:
    class Local(RuntimeError):
        pass

    return Local("known nowhere else")


def chained() -> BaseException:
    try:
        raise KeyError("inner")
    except KeyError as inner:
        error = RuntimeError("outer")
        error.__cause__ = inner
        return error


EXCEPTIONS: dict[str, tuple[Callable[[], BaseException], str]] = {
    "plain": (lambda: ValueError("100% {wrong}"), "ValueError in {}: 100% {{wrong}}"),
    "empty": (lambda: RuntimeError(), "RuntimeError in {}"),
    "multiline": (lambda: RuntimeError("one\ntwo"), "RuntimeError in {}: one\ntwo"),
    "stop iteration": (lambda: StopIteration(3), "StopIteration in {}: 3"),
    "key error": (lambda: KeyError("key"), "KeyError in {}: 'key'"),
    "chained": (chained, "RuntimeError in {}: outer"),
    "local": (local_exception, "Local in {}: known nowhere else"),
    "SystemExit": (lambda: SystemExit(3), "SystemExit in {}: 3"),
    "GeneratorExit": (lambda: GeneratorExit(), "GeneratorExit in {}"),
    "TwoArguments": (TwoArguments, "TwoArguments in {}: seven (7)"),
    "NeedsArguments": (lambda: NeedsArguments(7, "seven"), "NeedsArguments in {}: seven (7)"),
    "Unpicklable": (Unpicklable, "Unpicklable in {}: holds a generator"),
    "Unprintable": (Unprintable, "Unprintable in {}: <"),
    "Falsy": (lambda: Falsy("not nothing"), "Falsy in {}: not nothing"),
}


def assert_traceback(error: EnvError) -> None:
    """Asserts that the error's causes are the env's exception, if it could be pickled, and the worker's traceback."""
    failure = error.failures[0]
    cause: BaseException | None = error.__cause__
    if failure.exception is not None:
        assert cause is failure.exception
        cause = None if cause is None else cause.__cause__
    assert isinstance(cause, RemoteTraceback)
    assert failure.traceback in str(cause)
    assert failure.traceback.startswith("Traceback (most recent call last)")


@each(backend=BACKENDS, name=EXCEPTIONS)
def test_envs_that_raise_in_step(name: str, backend: Any) -> None:
    make, message = EXCEPTIONS[name]
    with Pool(hooked(3, step=raising(make)), backend=backend, num_workers=2) as pool:
        pool.reset()
        with pytest.raises(EnvError) as raised:
            pool.step([1, 2, 3])
        error = raised.value
        assert str(error).startswith("env 1 (worker 0) raised ")
        assert message.format("step") in str(error)
        assert error.env_ids == (1,)
        assert (error.failures[0].env_id, error.failures[0].operation) == (1, "step")
        assert_traceback(error)
        assert_goes_on_without(pool, 1)


@pytest.mark.parametrize("phase", ["build", "step"])
@pytest.mark.parametrize(
    ("hook", "ends_in_the_package"),
    [
        (raising(chained), False),
        (lambda *_: Pool([], num_workers=None), False),
        (lambda *_: load([b"no pickle"]), True),
    ],
)
def test_tracebacks_begin_with_code_of_the_env(phase: str, hook: Any, ends_in_the_package: bool) -> None:
    """Frames of the package only follow, if they lead to an error that is not the text of a check."""
    with (
        pytest.raises(EnvError) as raised,
        Pool(hooked(1, [0], **{phase: hook}), backend="serial") as pool,
    ):
        pool.reset()
        pool.step([0])
    *_, trace = raised.value.failures[0].traceback.split("Traceback (most recent call last):")
    frames = [os.path.dirname(remuda.__file__) in line for line in trace.splitlines() if line.startswith('  File "')]
    assert frames == sorted(frames)
    assert not frames[0]
    assert frames[-1] == ends_in_the_package


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_env_is_closed_even_if_some_raise(backend: Any, tmp_path: Path) -> None:
    def close(env: Any) -> None:
        (tmp_path / str(env.tag)).touch()
        raise ValueError(f"env {env.tag} will not")

    pool = Pool(hooked(4, (0, 1, 3), close=close), backend=backend, num_workers=2)
    with pytest.raises(EnvError) as raised:
        pool.close()
    assert raised.value.env_ids == (0, 1, 3)
    assert_traceback(raised.value)
    assert sorted(os.listdir(tmp_path)) == ["0", "1", "3"]
    pool.close()
    assert not any(worker.is_alive() for worker in pool.workers)
    (tmp_path / "0").unlink()
    with pytest.raises(EnvError, match=r"^env 1 \(worker 0\) raised ValueError in build"):
        Pool([*hooked(1, (0,), close=close), *hooked(2, build=raising(ValueError))[1:]], backend=backend, num_workers=1)
    assert (tmp_path / "0").exists()  # the envs of the worker that were built are closed


@pytest.mark.parametrize("backend", ["process", "thread"])
def test_an_interrupt_that_an_env_in_a_worker_raises_is_its_fault(backend: Any) -> None:
    with Pool(hooked(3, step=raising(KeyboardInterrupt)), backend=backend, num_workers=2) as pool:
        pool.reset()
        with pytest.raises(EnvError, match="env 1 .* raised KeyboardInterrupt in step"):
            pool.step([1, 2, 3])
        assert_goes_on_without(pool, 1)


@pytest.mark.parametrize(
    ("backend", "phase"),
    [*(("serial", phase) for phase in ("build", "reset", "step", "call", "close")), ("thread", "build")],
)
def test_an_interrupt_in_an_env_that_the_caller_waits_for_is_raised(backend: Any, phase: str) -> None:
    """`except Exception` must not catch the caller's Ctrl-C in an env that the caller builds or steps."""
    pools, hooks = list[Pool](), dict[str, Any]({phase: raising(KeyboardInterrupt)})
    with pytest.raises(KeyboardInterrupt) as raised:
        pools.append(Pool(hooked(2, **hooks), backend=backend, num_workers=None))
        pools[0].reset()
        pools[0].step([0, 0])
        pools[0].call("poke")
        pools[0].close()
    assert len(pools) == (phase != "build")
    for pool in pools:
        assert isinstance(raised.value.__cause__, EnvError)
        assert f"env 1 (worker 1) raised KeyboardInterrupt in {phase}" in str(raised.value.__cause__)
        pool.close()
        assert pool.closed


@pytest.mark.parametrize("waits", [True, False])
def test_a_fault_that_arrives_with_an_answer_is_raised(waits: bool) -> None:
    """Answers to calls wake the pool while it waits for results. Failures that arrived with them must be raised, also
    if the pool had waited for the answers alone.
    """
    with Pool(hooked(3, step=raising(ValueError)), num_workers=2) as pool:
        for _ in range(15):
            pool.reset()
            pool.send([0, 0, 0])
            calls = [pool.call_async("pid") for _ in range(3)]
            if waits:  # each env answers the calls after its step
                assert all(len(call.result()) == 3 for call in calls)
            with pytest.raises(EnvError, match="env 1 "):
                pool.recv()
            assert all(len(call.result()) == 3 for call in calls)
            assert sorted(pool.recv().env_ids.tolist()) == [0, 2]


# -- values that cannot be sent --------------------------------------------------------------------------


def test_calls_and_answers_that_cannot_be_made_are_refused() -> None:
    generator = (i for i in range(3))
    with Pool(counting(2), num_workers=None) as pool:
        with pytest.raises(Exception, match="pickle"):
            pool.call("echo", generator)
        with pytest.raises(Exception, match="pickle"):
            pool.set_attrs("tag", [1, generator])
        with pytest.raises(ValueError, match="expected 2 .*got 1"):
            pool.set_attrs("tag", [1])
        with pytest.raises(EnvError, match=r"envs 0, 1 .*AttributeError in call: .*'fly'"):
            pool.call("fly")
        with pytest.raises(EnvError, match=r"envs 0, 1 .* in call: expected a result that can be pickled, got <gen"):
            pool.apply(lambda env: (i for i in range(3)))
        assert pool.call("tag") == [0, 1]
