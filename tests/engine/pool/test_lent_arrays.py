"""The pool reuses array objects of a frame that the caller dropped. Only a weak reference could reveal the reuse."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from arena_views import arrays_of, is_view
from pool_envs import begun, counting

from remuda import Pool, StateError


def _make_read_only(array: Any) -> None:
    array.flags.writeable = False


def _give_shape(array: Any) -> None:
    array.shape = (*reversed(array.shape),)


def _give_dtype(array: Any) -> None:
    array.dtype = np.dtype(f"V{array.itemsize}")


@pytest.mark.parametrize("change", [_make_read_only, _give_shape, _give_dtype])
@pytest.mark.parametrize("is_held", [False, True])
def test_changes_to_an_array_object_do_not_affect_later_batches(is_held: bool, change: Callable[[Any], None]) -> None:
    with Pool(counting(2), backend="serial", frames=16) as pool:
        before = pool.reset()
        kinds = [(array.shape, array.dtype, str(array.flags)) for array in arrays_of(before)]
        held = []
        for i in range(6):
            batch = pool.step([i, i])
            assert [(array.shape, array.dtype, str(array.flags)) for array in arrays_of(batch)] == kinds
            assert batch.obs[:, 3].tolist() == [i, i]
            for array in arrays_of(batch):
                change(array)
            held += [batch] * is_held


@pytest.mark.filterwarnings("ignore:Setting the:DeprecationWarning")
def test_a_changed_array_object_holds_its_frame() -> None:
    with begun(counting(2), backend="serial", frames=2) as pool:
        pool.step([1, 1])
        batch = pool.step([5, 6])
        obs = batch.obs
        obs.shape = (8,)
        del batch
        for _ in range(4):
            assert not is_view(pool.step([7, 8]).obs)  # the caller holds the only frame that the pool may lend
        assert obs[[3, 7]].tolist() == [5, 6]
        del obs
        pool.step([7, 8])
        assert is_view(pool.step([7, 8]).obs)


def test_an_array_with_a_weak_reference_ends_when_dropped() -> None:
    """The weak reference ends with the batch and never refers to an array with another batch's values."""
    with begun(counting(2), num_workers=1) as pool:
        ended: list[int] = []
        for i in range(8):
            batch = pool.step([i, i])
            obs = weakref.ref(batch.obs, lambda _, i=i: ended.append(i))
            kept = obs()
            assert kept is not None
            del batch
            pool.step([99, 99])
            assert kept[:, 3].tolist() == [i, i]
            del kept
            pool.step([99, 99])
            assert obs() is None
        assert ended == list(range(8))


def test_a_callback_of_a_weak_reference_cannot_split_the_pool() -> None:
    """The callback of the weak reference runs during the next call, and its split is refused."""
    with begun(counting(4), backend="serial") as pool:
        refused = []

        def divide(_: object) -> None:
            with pytest.raises(StateError, match="in the middle of another one") as caught:
                pool.split(2)
            refused.append(caught)

        batch = pool.step([1] * 4)
        obs = weakref.ref(batch.obs, divide)
        del batch
        assert pool.step([7] * 4).obs[:, 3].tolist() == [7] * 4
        assert obs() is None and len(refused) == 1
