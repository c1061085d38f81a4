"""Which agents of an env are in the middle of an episode, in case that it is cut off."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
from mlagents_envs.base_env import DecisionStep, DecisionSteps, TerminalSteps


class Agents:
    """Those of one env, by behaviour and id, with the decision steps in which they were last seen."""

    def __init__(self) -> None:
        self._seen: dict[str, dict[int, DecisionSteps]] = {}

    def follow(self, results: Mapping[str, tuple[DecisionSteps, TerminalSteps]]) -> None:
        """Take note of a step: an id that ends may begin anew in the same one."""
        for behavior, (decisions, ends) in results.items():
            seen = self._seen.setdefault(behavior, {})
            for agent_id in ends.agent_id if len(ends) else ():
                seen.pop(int(agent_id), None)
            seen.update(zip(np.asarray(decisions.agent_id).tolist(), itertools.repeat(decisions)))

    def cut_off(self) -> dict[str, tuple[DecisionSteps, TerminalSteps]]:
        """The step that ends all their episodes, as interrupted ones: a time limit ends them alike."""
        return {
            behavior: (_nobody(latest), _interrupted([decisions[agent_id] for agent_id, decisions in seen.items()]))
            for behavior, seen in self._seen.items()
            if (latest := next(reversed(seen.values()), None)) is not None
        }


def _nobody(like: DecisionSteps) -> DecisionSteps:
    nobody = np.zeros(0, np.int32)
    none = np.zeros(0, np.float32)
    return DecisionSteps([obs[:0] for obs in like.obs], none, nobody, None, nobody, none)


def _interrupted(agents: list[DecisionStep]) -> TerminalSteps:
    """Reward 0, and the last observation once more."""
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
