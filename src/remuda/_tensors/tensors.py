"""Batches and rollouts of torch tensors, for the learner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from remuda._tensors.moving import to_torch

if TYPE_CHECKING:
    import torch


@dataclass
class TensorBatch:
    """A batch of torch tensors, returned by `Batch.to`.

    On the CPU they share the batch's memory; on other devices they are copies, and do not keep the pool's memory.

    Attributes:
        env_ids, obs, rewards, terminations, truncations, extras, final_obs: Those of `Batch`, with the same dtypes.
            Objects in `obs` that are no arrays stay objects.
    """

    env_ids: torch.Tensor
    obs: Any
    rewards: torch.Tensor
    terminations: torch.Tensor
    truncations: torch.Tensor
    extras: dict[str, torch.Tensor]
    final_obs: Any = None

    @classmethod
    def _of(cls, batch: Any, device: Any, non_blocking: bool, out: TensorBatch | None) -> TensorBatch:
        """Converts a batch, or another object with the same attributes, to tensors."""
        final_obs = to_torch(batch.final_obs, device, non_blocking)  # may be None, so not into `out`
        names = ("env_ids", "obs", "rewards", "terminations", "truncations", "extras")
        return cls(**_moved(names, batch, device, non_blocking, out), final_obs=final_obs)

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.rewards)

    def __repr__(self) -> str:
        return f"<TensorBatch of {len(self)} envs on {self.rewards.device}>"


@dataclass
class TensorRollout:
    """A rollout of torch tensors, returned by `Rollout.to`.

    On the CPU they share the rollout's memory, except `valid` and `episode_starts`; on other devices they are copies,
    and do not keep the pool's memory.

    Attributes:
        obs, actions, rewards, terminations, truncations, valid, episode_starts, extras, columns, final_obs: Those of
            `Rollout`, with the same shapes and dtypes.
    """

    obs: Any
    actions: Any
    rewards: torch.Tensor
    terminations: torch.Tensor
    truncations: torch.Tensor
    valid: torch.Tensor
    episode_starts: torch.Tensor
    extras: dict[str, torch.Tensor]
    columns: dict[str, torch.Tensor]
    final_obs: Any = None

    @classmethod
    def _of(cls, rollout: Any, device: Any, non_blocking: bool, out: TensorRollout | None) -> TensorRollout:
        """Converts a rollout, or another object with the same attributes, to tensors."""
        # Arrays outside the pool's memory are copied first, because each of these copies waits for all earlier copies.
        own = ("columns", "valid", "episode_starts")
        pools = ("obs", "actions", "rewards", "terminations", "truncations", "extras", "final_obs")
        return cls(**_moved(own + pools, rollout, device, non_blocking, out))

    def __len__(self) -> int:
        """T, the number of steps."""
        return len(self.rewards)

    def __repr__(self) -> str:
        steps, envs = self.rewards.shape[:2]
        return f"<TensorRollout of {steps} steps of {envs} envs on {self.rewards.device}>"


def _moved(names: Sequence[str], source: Any, device: Any, non_blocking: bool, out: Any) -> dict[str, Any]:
    """Returns the named attributes of `source` as tensors. `out`: an object with tensors to overwrite, or None."""
    arrays = {name: getattr(source, name) for name in names}
    targets = None if out is None else {name: getattr(out, name) for name in names}
    tensors: dict[str, Any] = to_torch(arrays, device, non_blocking, targets)
    return tensors
