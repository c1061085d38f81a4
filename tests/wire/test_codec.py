"""`SpaceCodec` converts a value of a space to columns and objects, and back."""

from __future__ import annotations

import numpy as np
from gymnasium import spaces
from pool_envs import assert_same

from remuda._wire.codec import SpaceCodec


def test_a_space_is_flattened_depth_first() -> None:
    space = spaces.Dict(b=spaces.Tuple((spaces.Discrete(3), spaces.Text(4))), a=spaces.Box(0, 1, (2,)))
    codec = SpaceCodec(space)
    assert [(c.path, c.shape) for c in codec.columns] == [("['b'][0]", ()), ("['a']", (2,))]
    assert codec.objects == [("['b'][1]", spaces.Text)]
    value = {"a": np.array([0.5, 1]), "b": (2, "hey")}
    arrays, objects = codec.flatten(value)
    assert [a.dtype for a in arrays] == [np.int64, np.float32]
    assert objects == ["hey"]
    assert_same(
        codec.build_one([array[()] for array in arrays], objects),
        {"a": np.array([0.5, 1], np.float32), "b": (np.int64(2), "hey")},
    )
