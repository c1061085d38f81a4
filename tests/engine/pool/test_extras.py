"""Extras: columns that the caller's functions compute from each env after its resets and steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import accidents
import numpy as np
import pytest
from gymnasium import spaces
from pool_envs import CountingEnv, begun, counting, hooked
from vector_envs import plain, synced

from remuda import EnvError, FaultPolicy, InvalidEnvError, Pool, StepColumn
from remuda._worker.measuring import measure


def seen(env: Any) -> Any:
    return env.observe()


def steps(env: Any) -> int:
    return int(env.steps)


def check(batch: Any) -> None:
    np.testing.assert_array_equal(batch.extras["seen"], batch.obs)
    np.testing.assert_array_equal(batch.extras["steps"], batch.obs[:, 2])


BOTH = {"seen": seen, "steps": steps}


# -- when they are computed: tests/lives.py compares them with the observation of each row -----------------


def test_rollouts_of_partial_batches_have_extras() -> None:
    with begun(counting(4, 3), num_workers=4, extras=BOTH) as pool:
        rollout = pool.rollout(5)
        for step in rollout.partial(1):
            np.testing.assert_array_equal(step.extras["steps"], step.obs[:, 2])
            step.act(step.env_ids)
        np.testing.assert_array_equal(rollout.extras["seen"], rollout.obs)


# -- vector envs -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_extras_of_a_vector_env_are_computed_once_for_all_its_envs(mode: Any) -> None:
    extras = {
        "seen": lambda env: env.obs,
        "steps": lambda env: env.obs[:, 2].tolist(),
        "calls": lambda env: [env.steps] * 3,
    }
    with Pool(plain(2, 3, 2, mode), vector_size=3, autoreset=mode, extras=extras, num_workers=None) as pool:
        check(pool.reset())
        for i in range(5):
            batch = pool.step(np.full(6, i))
            check(batch)
            assert batch.extras["calls"].tolist() == [i + 1] * 6
        pool.request_obs()
        check(pool.recv())


def test_extras_of_a_vector_env_need_a_row_for_each_env() -> None:
    with pytest.raises(
        InvalidEnvError, match=r"expected 2 rows at extras\['one'\], one for each env, got the shape \(\)"
    ):
        Pool(synced(counting(2), 2), vector_size=2, extras={"one": lambda env: 1}, num_workers=None)
    wrong = {"one": (lambda env: np.zeros(3), ((), float))}
    with (
        Pool(synced(counting(2), 2), vector_size=2, extras=wrong, num_workers=None) as pool,
        pytest.raises(EnvError) as raised,
    ):
        pool.reset()
    assert "expected an array of shape (2,) and dtype float64 at extras['one']" in str(raised.value)


# -- shapes and dtypes -------------------------------------------------------------------------------------


def after_a_reset(env: Any) -> Any:
    assert env.episodes  # the pool does not call a function with a declaration before the first reset
    return [1, 0, 1]


@pytest.mark.parametrize(
    ("given", "dtype"),
    [
        (True, np.bool_),
        (3, np.int64),
        (0.5, np.float64),
        (np.float32(2), np.float32),
        ([True, False], np.bool_),
        (np.zeros((2, 3), np.uint8), np.uint8),
        (1j, np.complex128),
        ((after_a_reset, spaces.MultiBinary(3)), np.int8),
        ((after_a_reset, spaces.Box(0, 1, (3,), np.float32)), np.float32),
        ((after_a_reset, ((3,), "bool")), np.bool_),
        ((after_a_reset, (3, np.uint16)), np.uint16),
    ],
)
def test_dtype_and_shape_of_extras_are_declared_or_those_of_the_value(given: Any, dtype: Any) -> None:
    extra, value = (given, [1, 0, 1]) if isinstance(given, tuple) else (lambda env: given, given)
    with Pool(counting(2), num_workers=1, extras={"it": extra}) as pool:
        column = pool.reset().extras["it"]
        assert (column.dtype, column.shape) == (dtype, (2, *np.shape(value)))
        np.testing.assert_array_equal(column, [value] * 2)


def test_the_error_of_extras_that_need_a_reset_suggests_a_declaration() -> None:
    def value(env: Any) -> Any:
        return env.board

    with pytest.raises(InvalidEnvError) as raised:
        Pool(counting(2), num_workers=1, extras={"board": value})
    assert "extras['board'] raised AttributeError: 'CountingEnv' object has no attribute 'board'" in str(raised.value)
    assert "extras={'board': (function, (shape, dtype))}" in str(raised.value)


def test_extras_of_all_envs_need_one_shape_and_dtype() -> None:
    with pytest.raises(InvalidEnvError) as raised:
        Pool(counting(4), num_workers=2, extras={"row": lambda env: [0] * (3 if env.tag < 2 else 4)})
    assert (
        "expected extras['row'] to be of one shape and dtype for all envs, the shape (3,) and dtype int64 as for env "
        "0, got the shape (4,) and dtype int64 for envs 2, 3"
    ) in str(raised.value)


@pytest.mark.parametrize(
    ("extras", "error", "message"),
    [
        ([seen], TypeError, "expected extras to be a dict of functions by name"),
        ({3: seen}, TypeError, "expected the names of extras to be strings, got 3"),
        ({"": seen}, TypeError, "expected the names of extras to be strings"),
        ({"obs": seen}, ValueError, "expected another name than 'obs' in extras, which a batch has already"),
        ({"mask": 5}, TypeError, r"expected extras\['mask'\] to be a function of an env"),
        ({"mask": (seen, seen, seen)}, TypeError, r"expected extras\['mask'\] to be a function of an env"),
        ({"mask": (seen, 3)}, TypeError, "declared by a gymnasium.Space or"),
        ({"mask": (seen, ("a", int))}, TypeError, r"declared by \(shape, dtype\)"),
        ({"mask": (seen, ((2,), "no"))}, TypeError, r"declared by \(shape, dtype\)"),
        ({"mask": (seen, ((2,), object))}, ValueError, "to be of numbers, got the dtype object"),
        ({"mask": (seen, spaces.Text(3))}, ValueError, "one array of numbers"),
        ({"mask": StepColumn(None, (), int)}, TypeError, "function of an env, .*or a StepColumn"),  # type: ignore[arg-type]
        ({"mask": StepColumn(steps, "x", int)}, TypeError, r"declared by \(shape, dtype\)"),  # type: ignore[arg-type]
        ({"mask": (seen, spaces.Dict(a=spaces.Discrete(2)))}, ValueError, "one array of numbers"),
    ],
)
def test_wrong_extras_are_refused_before_an_env_is_built(extras: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Pool([lambda: pytest.fail("it was built")], extras=extras)


def test_the_error_names_extras_that_cannot_be_pickled() -> None:
    lock = __import__("threading").Lock()
    with pytest.raises(InvalidEnvError, match=r"expected extras\['held'\] that can be pickled"):
        Pool(counting(2), num_workers=1, extras={"steps": steps, "held": lambda env: lock.locked()})


# -- faults ----------------------------------------------------------------------------------------------------


def test_an_exception_of_a_function_is_a_fault_of_the_env_and_names_the_function() -> None:
    def picky(env: Any) -> Any:
        if env.tag == 1 and env.steps == 2:
            raise KeyError("nothing here")
        return np.zeros(3 if env.steps == 3 else 2)

    with begun(counting(2), backend="serial", num_workers=1, extras={"steps": steps, "picky": picky}) as pool:
        pool.step([0, 0])
        with pytest.raises(EnvError, match=r"extras\['picky'\] raised KeyError: 'nothing here'") as raised:
            pool.step([0, 0])
        (failure,) = raised.value.failures
        assert (failure.env_id, failure.operation) == (1, "step")
        assert "in picky" in failure.traceback
        pool.discard()
        with pytest.raises(EnvError, match=r"shape \(2,\) and dtype float64 at extras\['picky'\]"):
            pool.step([0], [0])
        assert pool.reset().extras["picky"].tolist() == [[0, 0]] * 2


def test_replacements_and_successors_need_the_same_columns(tmp_path: Path) -> None:
    marker = tmp_path / "dead"

    def row(env: Any) -> Any:
        return [env.tag] * (3 if env.tag == 9 or (env.tag == 1 and marker.exists()) else 2)

    def fail(env: Any, action: Any) -> None:
        if action == 13:
            marker.touch()
            accidents.kill_myself()

    policy = FaultPolicy("restart", backoff=0, max_restarts=1)
    with begun(hooked(2, step=fail), faults=policy, extras={"row": row}) as pool:
        wrong = r"extras\['row'\].*the shape \(3,\) and dtype int64 for env"
        with pytest.raises(InvalidEnvError, match=f"{wrong} 0"):
            pool.replace([0], [lambda: CountingEnv(9)])
        pool.replace([0], [lambda: CountingEnv(8)])
        assert pool.step([0, 0]).extras["row"].tolist() == [[8, 8], [1, 1]]
        with pytest.raises(Exception, match=f"{wrong} 1"):
            for _ in range(3):
                pool.step([0, 13])


def test_measuring_an_env_computes_its_extras() -> None:
    calls: list[int] = []
    env = CountingEnv()
    measured = measure(env, computed=[lambda env: calls.append(env.steps)])
    assert measured.problem is None
    assert len(calls) >= measured.steps
    assert measure(env, computed=[lambda env: env.board]).problem is not None


# -- columns of steps: tests/lives.py compares one with the rewards of all rows -----------------------------


def test_a_step_column_keeps_the_value_of_the_step_that_ended_the_episode() -> None:
    extras: Any = {
        "then": StepColumn(steps, (), np.int32),
        "undeclared": StepColumn(lambda env: np.full(3, env.steps, np.int16), None, None),
        "now": steps,
    }
    with Pool(counting(2, 3), extras=extras, autoreset="same_step", num_workers=None) as pool:
        assert pool.reset().extras["then"].tolist() == [0, 0]
        for i in range(1, 8):
            batch = pool.step([1, 1])
            then = (i - 1) % 3 + 1
            assert batch.extras["then"].tolist() == [then] * 2
            assert batch.extras["undeclared"].tolist() == [[then] * 3] * 2
            assert batch.extras["now"].tolist() == [i % 3] * 2
            assert (batch.extras["then"].dtype, batch.extras["undeclared"].dtype) == (np.int32, np.int16)
        pool.request_obs()
        assert pool.recv().extras["then"].tolist() == [0, 0]


def test_step_columns_in_rollouts_and_in_tensors() -> None:
    torch = pytest.importorskip("torch")
    extras = {"then": StepColumn(steps, (), np.int64), **BOTH}
    with begun(counting(2, 3), extras=extras, autoreset="same_step") as pool:
        rollout = pool.rollout(4)
        for step in rollout:
            assert list(step.extras) == ["seen", "steps"]
            step.act([1, 1])
        assert rollout.extras["then"].tolist() == [[1, 1], [2, 2], [3, 3], [1, 1]]
        assert torch.equal(rollout.to("cpu").extras["then"], torch.tensor(rollout.extras["then"]))


def test_wrong_step_columns_are_refused() -> None:
    with pytest.raises(ValueError, match=r"expected no StepColumn in extras with vector_size=3"):
        Pool(plain(2, 3, 2, "next_step"), vector_size=3, extras={"value": StepColumn(steps, (), int)}, num_workers=None)
    with (
        pytest.raises(EnvError, match=r"extras\['value'\]"),
        Pool(counting(1), extras={"value": StepColumn(steps, (2,), int)}, num_workers=None) as pool,
    ):
        pool.reset()
        pool.step([0])
