"""The base class of envs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from ..data_structures import time_step_spec
from ..tensor_specs import TensorSpec


class AlfEnvironment(ABC):
    def __init__(self) -> None:
        self._current_time_step: Any = None

    @property
    def num_tasks(self) -> Any:
        return 1

    @property
    def is_tensor_based(self) -> Any:
        return False

    @property
    def batched(self) -> Any:
        return False

    @property
    def batch_size(self) -> Any:
        if self.batched:
            raise RuntimeError("expected an env that is batched to tell its batch_size")
        return 1

    @property
    def task_names(self) -> list[str]:
        return [str(i) for i in range(self.num_tasks)]

    @abstractmethod
    def env_info_spec(self) -> Any: ...

    @abstractmethod
    def observation_spec(self) -> Any: ...

    @abstractmethod
    def action_spec(self) -> Any: ...

    def reward_spec(self) -> Any:
        return TensorSpec(())

    def time_step_spec(self) -> Any:
        return time_step_spec(self.observation_spec(), self.action_spec(), self.reward_spec())

    def current_time_step(self) -> Any:
        return self._current_time_step

    def reset(self) -> Any:
        self._current_time_step = self._reset()
        return self._current_time_step

    def step(self, action: Any) -> Any:
        if self._current_time_step is None:
            return self.reset()
        self._current_time_step = self._step(action)
        return self._current_time_step

    def sync_progress(self) -> None:  # noqa: B027 - envs may leave it out
        pass

    def close(self) -> None:  # noqa: B027
        pass

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def render(self, mode: str = "rgb_array") -> Any:
        raise NotImplementedError

    def seed(self, seed: Any) -> Any:
        raise NotImplementedError

    def get_info(self) -> Any:
        raise NotImplementedError

    @abstractmethod
    def _step(self, action: Any) -> Any: ...

    @abstractmethod
    def _reset(self) -> Any: ...
