"""The same on a real GPU: what its stand-in cannot show."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from remuda import Pool, _core
from remuda._tensors.cuda import copies_to

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")

CYCLES = 200_000_000  # about a tenth of a second


class Images(gymnasium.Env[Any, Any]):
    """Each pixel is the last action."""

    def __init__(self) -> None:
        self.observation_space = spaces.Box(0, 255, (256, 256, 3), np.uint8)
        self.action_space = spaces.Discrete(256)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros((256, 256, 3), np.uint8), {}

    def step(self, action: Any) -> Any:
        return np.full((256, 256, 3), action, np.uint8), float(action), False, False, {}


@pytest.fixture
def slow_copies() -> Any:
    """Makes the stream of copies sleep, before what it is given next."""
    copies = copies_to(torch.device("cuda"))

    def sleep() -> None:
        with torch.cuda.stream(copies._stream):
            torch.cuda._sleep(CYCLES)

    return sleep


def test_a_frame_is_leased_while_it_is_copied_and_the_data_is_whole(slow_copies: Any) -> None:
    with Pool([Images] * 8, num_workers=2, frames=2) as pool:
        pool.reset().to("cuda")
        for action in range(1, 6):
            pool.step(np.zeros(8, int)).to("cuda")  # lets go of what is done
            slow_copies()
            tensors = pool.step(np.full(8, action)).to("cuda", non_blocking=True)
            assert _core.arena_of(pool.step(np.full(8, 255)).obs) is None
            assert (tensors.obs == action).all().item()  # the current stream waits
            assert (tensors.reward == action).all().item()


def test_the_pools_memory_is_pinned_and_let_go_with_it() -> None:
    with Pool([Images] * 2, backend="serial") as pool:
        batch = pool.reset()
        batch.to("cuda")
        assert torch.from_numpy(batch.obs).is_pinned()
        del batch
    for _ in range(3):  # at the same addresses, as it may be: nothing is registered twice
        with Pool([Images] * 2, backend="serial") as pool:
            pool.reset().to("cuda")


def test_out_stays_where_it_is_for_a_cuda_graph() -> None:
    with Pool([Images] * 2, backend="serial") as pool:
        static = pool.reset().to("cuda")
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            total = static.obs.sum(dtype=torch.int64)
        for action in (1, 2, 3):
            pool.step([action] * 2).to("cuda", non_blocking=True, out=static)
            graph.replay()
            assert total.item() == 2 * 256 * 256 * 3 * action


def test_in_a_loop_no_device_memory_is_allocated() -> None:
    with Pool([Images] * 2, backend="serial") as pool:
        for i in range(5):
            tensors = pool.step([i] * 2).to("cuda", non_blocking=True) if i else pool.reset().to("cuda")
        before = torch.cuda.memory_reserved()
        for i in range(50):
            tensors = pool.step([i] * 2).to("cuda", non_blocking=True)
        assert torch.cuda.memory_reserved() == before
        assert (tensors.obs == 49).all().item()
