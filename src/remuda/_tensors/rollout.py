"""What a rollout hands to the learner, as torch tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from remuda._spellings import InSingular
from remuda._tensors.moving import to_torch

if TYPE_CHECKING:
    import torch


@dataclass
class TensorRollout(InSingular):
    """A rollout whose arrays are torch tensors: what `Rollout.to` returns.

    On the CPU they share the rollout's memory, but for `valid` and `episode_starts`; elsewhere they are copies, and
    keep nothing of the pool. Names in the singular, as batches have them, work too.

    Attributes:
        obs: (T + 1, n, ...), or a dict or tuple of such.
        actions: (T, n, ...), or a dict or tuple of such.
        rewards: (T, n) float64.
        terminations, truncations: (T, n) bool.
        valid: (T, n) bool, which rows are steps.
        episode_starts: (T + 1, n) bool.
        extras: dict of (T + 1, n, ...): what `extras=` has computed.
        columns: dict of (T, n, ...): what was given to `act` besides.
        final_obs: (T, n, ...) with same-step autoreset; or None, see `Rollout`.
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
        """`rollout`: anything that has these attributes, as arrays."""
        arrays = {name: getattr(rollout, name) for name in _IN_EACH}
        targets = None if out is None else {name: getattr(out, name) for name in _IN_EACH}
        return cls(**to_torch(arrays, device, non_blocking, targets))

    def __len__(self) -> int:
        """T, the number of steps."""
        return len(self.rewards)

    def __repr__(self) -> str:
        steps, envs = self.rewards.shape
        return f"<TensorRollout of {steps} steps of {envs} envs on {self.rewards.device}>"


# First what is no memory of the pool: while it is copied, the call waits for what was copied before it.
_IN_EACH = (
    *("columns", "valid", "episode_starts"),
    *("obs", "actions", "rewards", "terminations", "truncations", "extras", "final_obs"),
)
