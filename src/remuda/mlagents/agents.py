"""The agents of an env that are in the middle of an episode. If the env fails, their episodes are cut off."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
from mlagents_envs.base_env import BehaviorSpec, DecisionStep, DecisionSteps, TerminalSteps


class Agents:
    """The agents of one env, by behaviour and id. Each has the latest decision steps that contain it."""

    def __init__(self) -> None:
        self._seen: dict[str, dict[int, DecisionSteps]] = {}

    def follow(self, results: Mapping[str, tuple[DecisionSteps, TerminalSteps]]) -> None:
        """Adds and removes agents after a step. An agent may end an episode and begin another one in the same step."""
        for behavior, (decisions, ends) in results.items():
            seen = self._seen.setdefault(behavior, {})
            for agent_id in ends.agent_id if len(ends) else ():
                seen.pop(int(agent_id), None)
            seen.update(zip(np.asarray(decisions.agent_id).tolist(), itertools.repeat(decisions)))

    def cut_off(self, specs: Mapping[str, BehaviorSpec]) -> dict[str, tuple[DecisionSteps, TerminalSteps]]:
        """Returns a step that ends the episodes of all agents as interrupted, as a time limit does."""
        return {
            behavior: (
                DecisionSteps.empty(specs[behavior]),
                _interrupted([decisions[agent_id] for agent_id, decisions in seen.items()]),
            )
            for behavior, seen in self._seen.items()
            if seen
        }


def _interrupted(agents: list[DecisionStep]) -> TerminalSteps:
    """Returns terminal steps with reward 0 and the last observation of each agent."""
    nothing = np.zeros(len(agents), np.float32)
    obs: list[Any] = [np.stack(parts) for parts in zip(*(agent.obs for agent in agents), strict=True)]
    return TerminalSteps(
        obs,
        nothing,
        np.ones(len(agents), np.bool_),
        np.array([agent.agent_id for agent in agents], np.int32),
        np.array([agent.group_id for agent in agents], np.int32),
        nothing.copy(),
    )
