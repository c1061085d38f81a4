"""What a pool hands to the learner, as torch tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from remuda._spellings import InPlural
from remuda._tensors.moving import to_torch

if TYPE_CHECKING:
    import torch


@dataclass
class TensorBatch(InPlural):
    """A batch whose arrays are torch tensors: what `Batch.to` returns.

    On the CPU they share the batch's memory; elsewhere they are copies, and keep nothing of the pool. Names in the
    plural, as rollouts have them, work too.

    Attributes:
        env_ids: (n,) int64.
        obs: The observations: an (n, ...) tensor, or a dict or tuple of such. Objects without an array stay objects.
        reward: (n,) float64.
        terminated, truncated: (n,) bool.
        valid: (n,) bool, which rows are an env's: all of them but what `recv(pad_to=...)` has added.
        extras: What `extras=` has computed, by name, as in `Batch.extras`.
        final_obs: With same-step autoreset the terminal observations, like `obs`; or None, see `Batch.final_obs`.
    """

    env_ids: torch.Tensor
    obs: Any
    reward: torch.Tensor
    terminated: torch.Tensor
    truncated: torch.Tensor
    valid: torch.Tensor
    extras: dict[str, torch.Tensor]
    final_obs: Any = None

    @classmethod
    def _of(cls, batch: Any, device: Any, non_blocking: bool, out: TensorBatch | None) -> TensorBatch:
        """`batch`: anything that has these attributes, as arrays."""
        final_obs = None
        if batch.final_obs is not None:  # not in every batch, so there is no place for it in `out`
            final_obs = to_torch(batch.final_obs, device, non_blocking)
        arrays = {name: getattr(batch, name) for name in _IN_EACH}
        targets = None if out is None else {name: getattr(out, name) for name in _IN_EACH}
        return cls(**to_torch(arrays, device, non_blocking, targets), final_obs=final_obs)

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.reward)

    def __repr__(self) -> str:
        return f"<TensorBatch of {len(self)} envs on {self.reward.device}>"


_IN_EACH = ("env_ids", "obs", "reward", "terminated", "truncated", "valid", "extras")
