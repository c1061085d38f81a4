"""PPO in PyTorch, in one file and one loop like CleanRL's.

It learns from any contender (`remuda._bench.contenders`), in lockstep or in turns of its halves, and measures the time
that the learning takes. Observations are vectors or stacks of images, actions are choices or vectors.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torch import nn
from torch.distributions import Categorical, Independent, Normal

from remuda._bench.contenders import Contender, Plan
from remuda._bench.workloads import probe_spaces

from .parts import Part, dones, parts_of


@dataclass(frozen=True)
class Settings:
    """The hyperparameters; the defaults are CleanRL's for CartPole."""

    num_steps: int = 128
    """Steps of each env between two updates."""
    learning_rate: float = 2.5e-4
    gamma: float = 0.99
    gae_lambda: float = 0.95
    num_minibatches: int = 4
    num_epochs: int = 4
    clip: float = 0.2
    entropy_coefficient: float = 0.01
    value_coefficient: float = 0.5
    max_gradient_norm: float = 0.5
    hidden: int = 64


ATARI = Settings(clip=0.1)
MUJOCO = Settings(num_steps=256, num_minibatches=8, entropy_coefficient=0.0)


class Agent(nn.Module):
    """A policy and a value function: two networks for vectors, one with two heads for images."""

    def __init__(self, observations: gymnasium.Space[Any], actions: gymnasium.Space[Any], hidden: int = 64) -> None:
        super().__init__()
        if not isinstance(observations, spaces.Box) or not isinstance(actions, (spaces.Discrete, spaces.Box)):
            raise TypeError(f"expected observations of a Box and actions of a Discrete or a Box, got {actions}")
        self.is_discrete = isinstance(actions, spaces.Discrete)
        self.is_image = len(observations.shape) == 3
        width = int(actions.n) if isinstance(actions, spaces.Discrete) else int(np.prod(actions.shape))
        if self.is_image:
            self.body: nn.Module = _convolutions(observations.shape[0])
            self.actor: nn.Module = _linear(512, width, 0.01)
            self.critic: nn.Module = _linear(512, 1, 1.0)
        else:
            size = int(np.prod(observations.shape))
            self.body = nn.Flatten()
            self.actor, self.critic = _layers(size, hidden, width, 0.01), _layers(size, hidden, 1, 1.0)
        self.log_std = nn.Parameter(torch.zeros(width), requires_grad=not self.is_discrete)

    def forward(self, obs: torch.Tensor) -> tuple[Any, torch.Tensor]:
        """Returns the distribution of actions and the values, of shape (n,), for n observations."""
        features = self.body(obs.float() / 255.0 if self.is_image else obs.float())
        means = self.actor(features)
        chosen_from: Any = Categorical(logits=means)
        if not self.is_discrete:
            chosen_from = Independent(Normal(means, self.log_std.exp().expand_as(means)), 1)
        return chosen_from, self.critic(features).squeeze(-1)

    @torch.no_grad()
    def act(self, obs: Any) -> tuple[Any, torch.Tensor, torch.Tensor]:
        """Returns actions (an array), their log probabilities and the values for a batch of observations."""
        chosen_from, values = self(torch.as_tensor(obs))
        actions = chosen_from.sample()
        return actions.numpy(), chosen_from.log_prob(actions), values


def _convolutions(channels: int) -> nn.Module:
    """Returns the layers that turn stacks of 84 x 84 images into 512 features."""
    return nn.Sequential(
        *(nn.Conv2d(channels, 32, 8, stride=4), nn.ReLU()),
        *(nn.Conv2d(32, 64, 4, stride=2), nn.ReLU()),
        *(nn.Conv2d(64, 64, 3, stride=1), nn.ReLU(), nn.Flatten()),
        *(_linear(64 * 7 * 7, 512, 2**0.5), nn.ReLU()),
    )


def _layers(inputs: int, hidden: int, outputs: int, gain: float) -> nn.Module:
    first, second = _linear(inputs, hidden, 2**0.5), _linear(hidden, hidden, 2**0.5)
    return nn.Sequential(first, nn.Tanh(), second, nn.Tanh(), _linear(hidden, outputs, gain))


def _linear(inputs: int, outputs: int, gain: float) -> nn.Linear:
    layer = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


class Rollout:
    """The collected steps, as arrays of (num_steps, num_envs, ...). The envs of a part are neighbouring columns."""

    def __init__(self, num_steps: int, num_envs: int, spaces_: Any) -> None:
        shape, actions = (num_steps, num_envs), spaces_.action_space
        self.obs = np.zeros((*shape, *spaces_.observation_space.shape), spaces_.observation_space.dtype)
        self.actions = np.zeros((*shape, *actions.shape), np.int64 if not actions.shape else np.float32)
        self.log_probs, self.values = torch.zeros(shape), torch.zeros(shape)
        self.rewards, self.dones = np.zeros(shape, np.float32), np.zeros((num_steps + 1, num_envs), bool)
        self.next_values = torch.zeros(num_envs)


class Ppo:
    """Collects from a contender and learns from the collected steps.

    Attributes:
        agent: The networks.
        learning_seconds: Time spent on updates so far.
        mean_episode_return: Mean over the episodes that ended in the latest iteration. None if none did.
    """

    def __init__(self, envs: Contender, plan: Plan, settings: Settings) -> None:
        torch.manual_seed(plan.seed)
        self._envs, self._settings, found = envs, settings, probe_spaces(plan.workload)
        self.agent = Agent(found.observation_space, found.action_space, settings.hidden)
        self._optimizer = torch.optim.Adam(self.agent.parameters(), settings.learning_rate, eps=1e-5)
        self._rollout = Rollout(settings.num_steps, plan.num_envs, found)
        self._dones, self._returns = np.zeros(plan.num_envs, bool), np.zeros(plan.num_envs)
        self.learning_seconds, self.mean_episode_return = 0.0, None

    def iterate(self) -> int:
        """Collects once and learns once. Returns the number of env steps."""
        self._collect()
        begin = time.perf_counter()
        self._learn()
        self.learning_seconds += time.perf_counter() - begin
        return int(self._rollout.rewards.size)

    # -- collecting ----------------------------------------------------------------------------------------

    def _collect(self) -> None:
        """Fills the rollout from the contender's parts in turns. While the policy serves one part, the others step."""
        self._ended: list[float] = []
        first, parts = 0, []
        for part in parts_of(self._envs):
            rows = slice(first, first + len(part.obs))
            parts.append((part, rows))
            first = rows.stop
        for step in range(self._settings.num_steps):
            for part, rows in parts:
                if step:
                    self._finish(step, part, rows)
                self._act(step, part, rows)
        for part, rows in parts:
            self._finish(self._settings.num_steps, part, rows)
            with torch.no_grad():
                self._rollout.next_values[rows] = self.agent(torch.as_tensor(part.obs))[1]
        self.mean_episode_return = float(np.mean(self._ended)) if self._ended else None

    def _act(self, step: int, part: Part, rows: slice) -> None:
        rollout, obs = self._rollout, part.obs
        rollout.obs[step, rows], rollout.dones[step, rows] = obs, self._dones[rows]
        actions, rollout.log_probs[step, rows], rollout.values[step, rows] = self.agent.act(obs)
        rollout.actions[step, rows] = actions
        part.send(actions)

    def _finish(self, step: int, part: Part, rows: slice) -> None:
        part.finish()
        rewards = np.asarray(part.rewards, np.float32).reshape(-1)
        self._dones[rows] = dones(part)
        self._rollout.rewards[step - 1, rows], self._rollout.dones[step, rows] = rewards, self._dones[rows]
        self._returns[rows] += rewards
        if (ended := np.flatnonzero(self._dones[rows])).size:
            ended += rows.start
            self._ended += self._returns[ended].tolist()
            self._returns[ended] = 0.0

    # -- learning ------------------------------------------------------------------------------------------

    def _learn(self) -> None:
        settings, rollout = self._settings, self._rollout
        advantages, returns = self._advantages()
        flat = [torch.as_tensor(array).flatten(0, 1) for array in (rollout.obs, rollout.actions)]
        flat += [tensor.flatten() for tensor in (rollout.log_probs, advantages, returns)]
        for _ in range(settings.num_epochs):
            for rows in torch.randperm(len(flat[0])).chunk(settings.num_minibatches):
                loss = self._loss(*(tensor[rows] for tensor in flat))
                self._optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.agent.parameters(), settings.max_gradient_norm)
                self._optimizer.step()

    def _advantages(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns generalised advantage estimates, and the returns (advantages plus values)."""
        settings, rollout = self._settings, self._rollout
        goes_on, rewards = 1.0 - torch.as_tensor(rollout.dones).float(), torch.as_tensor(rollout.rewards)
        advantages, last, next_values = torch.zeros_like(rewards), 0.0, rollout.next_values
        for step in reversed(range(settings.num_steps)):
            error = rewards[step] + settings.gamma * next_values * goes_on[step + 1] - rollout.values[step]
            last = error + settings.gamma * settings.gae_lambda * goes_on[step + 1] * last
            advantages[step], next_values = last, rollout.values[step]
        return advantages, advantages + rollout.values

    def _loss(
        self, obs: Any, actions: Any, log_probs: torch.Tensor, advantages: torch.Tensor, returns: torch.Tensor
    ) -> torch.Tensor:
        settings = self._settings
        chosen_from, values = self.agent(obs)
        ratio = (chosen_from.log_prob(actions) - log_probs).exp()
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        clipped = ratio.clamp(1 - settings.clip, 1 + settings.clip)
        policy_loss = -torch.min(ratio * advantages, clipped * advantages).mean()
        value_loss = 0.5 * (values - returns).pow(2).mean()
        entropy: torch.Tensor = chosen_from.entropy().mean()
        return policy_loss - settings.entropy_coefficient * entropy + settings.value_coefficient * value_loss
