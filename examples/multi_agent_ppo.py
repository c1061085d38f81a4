"""PPO for several agents that share one policy, on rollouts of PettingZoo's parallel envs.

    python examples/multi_agent_ppo.py      simple_spread: three agents learn to cover three landmarks, in two minutes

Needs `pip install torch pettingzoo mpe2`. The shared policy receives the observations of all agents as one batch. The
learner uses only rows of agents that were there (`rollout.valid`), so it also works for envs whose agents leave and
return. Agents need equal spaces with discrete actions.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

import numpy as np
import torch
from mpe2 import simple_spread_v3
from torch import nn
from torch.distributions import Categorical

import remuda

GAMMA, LAMBDA, CLIP, ENTROPY = 0.95, 0.95, 0.2, 0.01
EPOCHS, MINIBATCHES, LEARNING_RATE = 6, 4, 1e-3


def perceptron(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, outputs))


def joined(by_agent: dict[str, Any]) -> torch.Tensor:
    """Returns the arrays of all agents as one tensor. Its first axis is that of the agents."""
    return torch.stack([torch.as_tensor(array) for array in by_agent.values()])


class Learner:
    """PPO with one policy and one critic for all agents."""

    def __init__(self, envs: remuda.pettingzoo.ParallelVectorEnv) -> None:
        self.agents = envs.possible_agents
        observations, actions = envs.single_observation_space(self.agents[0]), envs.single_action_space(self.agents[0])
        inputs, choices = int(np.prod(observations.shape or ())), int(getattr(actions, "n"))  # noqa: B009
        self.actor, self.critic = perceptron(inputs, choices), perceptron(inputs, 1)
        self.parameters = [*self.actor.parameters(), *self.critic.parameters()]
        self.optimizer = torch.optim.Adam(self.parameters, lr=LEARNING_RATE)

    def collect(self, envs: remuda.pettingzoo.ParallelVectorEnv, steps: int) -> remuda.pettingzoo.ParallelRollout:
        """Plays `steps` steps of all envs. The columns "value" and "log_prob" are (steps, envs, agents)."""
        rollout = envs.rollout(steps)
        for step in rollout:
            with torch.no_grad():
                obs = joined(step.obs)
                chosen_from = Categorical(logits=self.actor(obs))
                actions = chosen_from.sample()
                columns = {"value": self.critic(obs).squeeze(-1), "log_prob": chosen_from.log_prob(actions)}
            own = dict(zip(self.agents, actions.numpy(), strict=True))
            step.act(own, action=actions.T.numpy(), **{name: column.T.numpy() for name, column in columns.items()})
        return rollout

    def learn(self, rollout: remuda.pettingzoo.ParallelRollout) -> None:
        obs, columns = joined(rollout.obs), rollout.columns
        with torch.no_grad():
            last = self.critic(obs[:, -1]).squeeze(-1)
        kept = {name: torch.as_tensor(column).permute(2, 0, 1) for name, column in columns.items()}
        values = torch.cat([kept["value"], last[:, None]], dim=1)  # (agents, steps + 1, envs)
        found = rollout.gae(dict(zip(self.agents, values.numpy(), strict=True)), GAMMA, LAMBDA)
        gains, returns = (joined(by_agent).float() for by_agent in found)
        rows = joined(rollout.valid).nonzero(as_tuple=True)  # without agents that are absent, and without resets
        obs, gains, returns = obs[:, :-1][rows], gains[rows], returns[rows]
        actions, log_probs = kept["action"][rows], kept["log_prob"][rows]
        for _ in range(EPOCHS):
            for some in torch.randperm(len(gains)).chunk(MINIBATCHES):
                chosen_from = Categorical(logits=self.actor(obs[some]))
                ratio = (chosen_from.log_prob(actions[some]) - log_probs[some]).exp()
                gain = (gains[some] - gains[some].mean()) / (gains[some].std() + 1e-8)
                policy_loss = -torch.min(ratio * gain, ratio.clamp(1 - CLIP, 1 + CLIP) * gain).mean()
                value_loss = (self.critic(obs[some]).squeeze(-1) - returns[some]).square().mean()
                self.optimizer.zero_grad()
                (policy_loss + 0.5 * value_loss - ENTROPY * chosen_from.entropy().mean()).backward()
                nn.utils.clip_grad_norm_(self.parameters, 0.5)
                self.optimizer.step()


def main(arguments: list[str] | None = None) -> list[float]:
    """Returns the mean reward of an agent in a step, for each update."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--num-envs", type=int, default=32)
    parser.add_argument("--rollout", type=int, default=50, help="steps of each env between updates (default: 50)")
    parser.add_argument("--updates", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    torch.manual_seed(options.seed)
    torch.set_num_threads(1)  # leaves the other cores to the envs
    env_fn = partial(simple_spread_v3.parallel_env, max_cycles=25, local_ratio=0.0)
    curve = []
    with remuda.pettingzoo.vector([env_fn] * options.num_envs, num_workers=2) as envs:
        learner = Learner(envs)
        envs.reset(seed=options.seed)
        for update in range(options.updates):
            rollout = learner.collect(envs, options.rollout)
            learner.learn(rollout)
            valid = joined(rollout.valid)
            curve.append(float(joined(rollout.rewards)[valid].mean()))
            if update % 10 == 0 or update == options.updates - 1:
                print(f"update {update + 1}: the mean reward of an agent in a step is {curve[-1]:.2f}")
        print(envs.stats().verdict)
    return curve


if __name__ == "__main__":
    main()
