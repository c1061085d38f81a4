"""Attributes of batches and rollouts are found in singular and plural, and by Gymnasium's words."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from rollout_envs import TellingEnv, fill

from remuda import Batch, Pool, ShardRollout

SINGULAR_PLURAL = [("reward", "rewards"), ("terminated", "terminations"), ("truncated", "truncations")]
OTHERS = [("obs", "observation"), ("obs", "observations"), ("infos", "info"), ("extras", "extra")]


@pytest.fixture
def made() -> Iterator[dict[str, Any]]:
    """One of each kind."""
    with Pool([TellingEnv] * 2, num_workers=1, autoreset="same_step") as pool:
        pool.reset()
        batch = pool.step([1, 2])
        rollout = fill(pool.rollout(6))
        names = ("env_ids", "obs", "actions", "rewards", "terminations", "truncations", "valid", "episode_starts")
        shards = ShardRollout(0, "here", 0, *(getattr(rollout, name) for name in names))
        yield {"Batch": batch, "Rollout": rollout, "ShardRollout": shards}
        del batch, rollout, shards


@pytest.mark.parametrize(("one", "other"), [*SINGULAR_PLURAL, *OTHERS])
def test_both_spellings_are_the_same_thing(made: dict[str, Any], one: str, other: str) -> None:
    for each in made.values():
        np.testing.assert_equal(getattr(each, one), getattr(each, other))
    made.clear()


@pytest.mark.parametrize(("one", "other"), SINGULAR_PLURAL)
def test_those_of_tensors_are_too(made: dict[str, Any], one: str, other: str) -> None:
    pytest.importorskip("torch")
    for kind in ("Batch", "Rollout"):
        tensors = made[kind].to("cpu")
        assert getattr(tensors, one) is getattr(tensors, other)
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
def test_the_error_names_the_attribute_that_is_there(made: dict[str, Any], kind: str, name: str, advice: str) -> None:
    with pytest.raises(AttributeError, match=f"^'{kind}' object has no attribute '{name}'{advice}$"):
        getattr(made[kind], name)
    assert not hasattr(made[kind], name)
    made.clear()


def test_they_are_pickled_and_copied_as_before(made: dict[str, Any]) -> None:
    rollout = made["ShardRollout"]
    for twin in (pickle.loads(pickle.dumps(rollout)), copy.deepcopy(rollout), copy.copy(rollout)):
        np.testing.assert_array_equal(twin.reward, rollout.rewards)
        assert not hasattr(twin, "nothing")
    del rollout, twin
    made.clear()


def test_a_property_that_has_no_such_attribute_itself_says_so() -> None:
    class Broken(Batch):
        @property
        def odd(self) -> Any:
            return self.nothing  # type: ignore[attr-defined]

    with Pool([TellingEnv], backend="serial") as pool:
        made = pool.reset()
        broken = Broken(*made.__reduce__()[1])
        with pytest.raises(AttributeError, match="no attribute 'nothing'"):
            _ = broken.odd
        del made, broken
