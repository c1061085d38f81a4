"""Attributes of batches and rollouts may be spelled in singular or plural, and with Gymnasium's names."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from rollout_envs import NumberInfoEnv, fill

from remuda import Batch, Pool, ShardRollout

SINGULAR_PLURAL = [("reward", "rewards"), ("terminated", "terminations"), ("truncated", "truncations")]
OTHERS = [("obs", "observation"), ("obs", "observations"), ("infos", "info"), ("extras", "extra")]


@pytest.fixture
def made() -> Iterator[dict[str, Any]]:
    """A batch, a rollout, and a rollout of a shard."""
    with Pool([NumberInfoEnv] * 2, num_workers=1, autoreset="same_step") as pool:
        pool.reset()
        batch = pool.step([1, 2])
        rollout = fill(pool.rollout(6))
        names = ("env_ids", "obs", "actions", "rewards", "terminations", "truncations", "valid", "episode_starts")
        shards = ShardRollout(0, "here", 0, *(getattr(rollout, name) for name in names))
        yield {"Batch": batch, "Rollout": rollout, "ShardRollout": shards}
        del batch, rollout, shards


@pytest.mark.parametrize(("first", "second"), [*SINGULAR_PLURAL, *OTHERS])
def test_both_spellings_give_the_same_value(made: dict[str, Any], first: str, second: str) -> None:
    for each in made.values():
        np.testing.assert_equal(getattr(each, first), getattr(each, second))
    made.clear()


@pytest.mark.skipif(find_spec("torch") is None, reason="needs torch")
@pytest.mark.parametrize(("first", "second"), SINGULAR_PLURAL)
def test_both_spellings_give_the_same_tensor(made: dict[str, Any], first: str, second: str) -> None:
    for kind in ("Batch", "Rollout"):
        tensors = made[kind].to("cpu")
        assert getattr(tensors, first) is getattr(tensors, second)
        del tensors
    made.clear()


@pytest.mark.parametrize(
    ("kind", "name", "advice"),
    [
        ("Batch", "rewrad", "; use 'reward'"),
        ("Batch", "terminatd", "; use 'terminated'"),
        ("Batch", "xyz", ""),
        ("Batch", "actions", ""),
        ("Rollout", "truncation", "; use 'truncations'"),
        ("Rollout", "episode_begins", "; use 'episode_starts'"),
        ("ShardRollout", "vald", "; use 'valid'"),
    ],
)
def test_the_error_of_a_missing_attribute_suggests_an_existing_one(
    made: dict[str, Any], kind: str, name: str, advice: str
) -> None:
    with pytest.raises(AttributeError, match=f"^'{kind}' object has no attribute '{name}'{advice}$"):
        getattr(made[kind], name)
    assert not hasattr(made[kind], name)
    made.clear()


def test_spellings_do_not_affect_pickling_and_copying(made: dict[str, Any]) -> None:
    rollout = made["ShardRollout"]
    for twin in (pickle.loads(pickle.dumps(rollout)), copy.deepcopy(rollout), copy.copy(rollout)):
        np.testing.assert_array_equal(twin.reward, rollout.rewards)
        assert not hasattr(twin, "nothing")
    del rollout, twin
    made.clear()


def test_the_error_of_a_failing_property_names_the_missing_attribute() -> None:
    class Broken(Batch):
        @property
        def odd(self) -> Any:
            return self.nothing  # type: ignore[attr-defined]

    with Pool([NumberInfoEnv], backend="serial") as pool:
        made = pool.reset()
        broken = Broken(*made.__reduce__()[1])
        with pytest.raises(AttributeError, match="no attribute 'nothing'"):
            _ = broken.odd
        del made, broken
