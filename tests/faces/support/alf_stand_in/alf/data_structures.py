"""Time steps."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np
import torch

from . import nest
from .tensor_specs import BoundedTensorSpec, TensorSpec


class StepType:
    FIRST = np.int32(0)
    MID = np.int32(1)
    LAST = np.int32(2)


_NAMES = ["step_type", "reward", "discount", "observation", "prev_action", "env_id", "untransformed", "env_info"]


class TimeStep(namedtuple("TimeStep", _NAMES, defaults=[()] * 8)):
    def is_first(self) -> Any:
        return self.step_type == StepType.FIRST

    def is_mid(self) -> Any:
        return self.step_type == StepType.MID

    def is_last(self) -> Any:
        return self.step_type == StepType.LAST

    def cuda(self) -> Any:
        return self._moved("_cuda")

    def cpu(self) -> Any:
        return self._moved("_cpu")

    def _moved(self, kept: str) -> Any:
        if kept not in vars(self):
            move = kept.removeprefix("_")
            moved = nest.map_structure(lambda x: getattr(x, move)() if isinstance(x, torch.Tensor) else x, self)
            setattr(self, kept, moved)
        return getattr(self, kept)


def time_step_spec(observation_spec: Any, action_spec: Any, reward_spec: Any) -> TimeStep:
    return TimeStep(
        step_type=TensorSpec([], torch.int32),
        reward=reward_spec,
        discount=BoundedTensorSpec([], torch.float32, minimum=0.0, maximum=1.0),
        observation=observation_spec,
        prev_action=action_spec,
        env_id=TensorSpec([], torch.int32),
    )
