"""Copies to a real GPU, for properties that the stand-in cannot show."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from rollout_envs import ImageEnv

from remuda import Pool, _core
from remuda._tensors.cuda import copies_to

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")

CYCLES = 200_000_000  # about a tenth of a second on the GPU


class Images(ImageEnv):
    """An env with images. Each pixel is the last action."""

    def observe(self) -> Any:
        return np.full((64, 64, 3), max(self.last_action, 0), np.uint8)


@pytest.fixture
def slow_copies() -> Any:
    """Returns a function that makes the copy stream sleep before its next copy."""
    copies = copies_to(torch.device("cuda"))

    def sleep() -> None:
        with torch.cuda.stream(copies._stream):
            torch.cuda._sleep(CYCLES)

    return sleep


def test_a_frame_is_leased_until_its_copy_is_complete(slow_copies: Any) -> None:
    with Pool([Images] * 8, num_workers=2, frames=2) as pool:
        pool.reset().to("cuda")
        for action in range(1, 6):
            pool.step(np.zeros(8, int)).to("cuda")  # releases frames with finished copies
            slow_copies()
            tensors = pool.step(np.full(8, action)).to("cuda", non_blocking=True)
            assert _core.arena_of(pool.step(np.full(8, 255)).obs) is None
            assert (tensors.obs == action).all().item()  # the current stream waits for the copy
            assert (tensors.rewards == action).all().item()


def test_out_keeps_its_addresses_for_a_cuda_graph() -> None:
    with Pool([Images] * 2, backend="serial") as pool:
        static = pool.reset().to("cuda")
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            total = static.obs.sum(dtype=torch.int64)
        for action in (1, 2, 3):
            pool.step([action] * 2).to("cuda", non_blocking=True, out=static)
            graph.replay()
            assert total.item() == 2 * 64 * 64 * 3 * action
