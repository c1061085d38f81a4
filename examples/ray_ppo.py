"""PPO on CartPole with envs on a Ray cluster: the shards run the policy and return whole rollouts.

    python examples/ray_ppo.py                     on a cluster of two nodes that it starts on this machine
    python examples/ray_ppo.py --address auto      on the cluster that `ray start` has made
    python examples/ray_ppo.py --one-machine       on this machine without Ray, for comparison
    python examples/ray_ppo.py --trial             in a trial of Ray Tune, whose placement group has room for the shards
    python examples/ray_ppo.py --recurrent         a policy with a GRU, whose state each shard keeps for its envs

Needs `pip install "remuda-rl[ray]" torch "gymnasium[classic-control]"`; `--trial` also needs "ray[tune]". Each shard
fills a rollout with the policy that the learner published last. The learner takes the rollout that was requested first,
learns from it, and publishes the policy again. With `--in-flight 2`, shards fill the next rollout meanwhile, with a
policy that is one update older: the ratio of PPO accounts for that.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

import remuda

NUM_ENVS, STEPS = 16, 128
GAMMA, LAMBDA, CLIP, LEARNING_RATE, EPOCHS, MINIBATCHES = 0.99, 0.95, 0.2, 1e-3, 4, 4


class Agent(nn.Module):
    """A policy and a value function. The shards call `act`."""

    def __init__(self, features: int = 4) -> None:
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(features, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2))
        self.critic = nn.Sequential(nn.Linear(features, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))

    def act(self, obs: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        chosen_from = Categorical(logits=self.actor(obs))
        actions = chosen_from.sample()
        return actions, {"log_prob": chosen_from.log_prob(actions), "value": self.value(obs)}

    def features(self, obs: torch.Tensor, columns: dict[str, torch.Tensor]) -> torch.Tensor:
        """Returns the input of actor and critic. `columns`: the columns of the rollout."""
        return obs

    def value(self, features: torch.Tensor) -> torch.Tensor:
        values: torch.Tensor = self.critic(features).squeeze(-1)
        return values


class RecurrentAgent(Agent):
    """An agent with a GRU. It learns from the GRU states that the shards stored, and backpropagates over one step."""

    def __init__(self) -> None:
        super().__init__(4 + 16)
        self.cell = nn.GRUCell(4, 16)

    def initial_state(self, count: int) -> torch.Tensor:
        return torch.zeros(count, 16)

    def act(self, obs: torch.Tensor, context: remuda.PolicyContext) -> Any:  # type: ignore[override]
        before = context.state
        context.state = self.cell(obs, before)
        actions, columns = super().act(torch.cat([obs, context.state], -1))
        return actions, {**columns, "state": before}

    def features(self, obs: torch.Tensor, columns: dict[str, torch.Tensor]) -> torch.Tensor:
        return torch.cat([obs, self.cell(obs, columns["state"])], -1)


def make_env() -> gymnasium.Env[Any, Any]:
    return gymnasium.make("CartPole-v1")


# -- learning ------------------------------------------------------------------------------------------------


def advantages(rollout: Any, last_value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Returns generalised advantages (T, n). The sum for a step stops at the end of its episode."""
    values = np.concatenate([rollout.columns["value"], last_value[None]])
    ends = rollout.terminations | rollout.truncations
    found, carried = np.zeros_like(rollout.rewards), np.zeros(rollout.num_envs)
    for t in reversed(range(rollout.steps)):
        # With next-step autoreset, the row after a truncation has the terminal observation, so its value counts.
        following = np.where(rollout.terminations[t], 0.0, values[t + 1])
        delta = rollout.rewards[t] + GAMMA * following - values[t]
        carried = delta + GAMMA * LAMBDA * np.where(ends[t], 0.0, carried)
        found[t] = carried
    return found


def learn(agent: Agent, optimizer: torch.optim.Optimizer, rollout: Any) -> None:
    """Runs some epochs of PPO on one rollout."""
    # The columns have no GRU state for the last observation: their last state is one step older.
    last = {name: torch.tensor(column[-1]) for name, column in rollout.columns.items()}
    with torch.no_grad():
        last_value = agent.value(agent.features(torch.tensor(rollout.obs[-1]), last)).numpy()
    gains = advantages(rollout, last_value)
    valid = rollout.valid.ravel()  # False for steps that reset an env
    obs = torch.tensor(rollout.obs[:-1].reshape(-1, 4)[valid])
    columns = {
        name: torch.tensor(column.reshape(-1, *column.shape[2:])[valid]) for name, column in rollout.columns.items()
    }
    actions, log_probs = (
        torch.tensor(array.ravel()[valid]) for array in (rollout.actions, rollout.columns["log_prob"])
    )
    gain = torch.tensor(gains.ravel()[valid], dtype=torch.float32)
    returns = gain + torch.tensor(rollout.columns["value"].ravel()[valid])
    for _ in range(EPOCHS):
        for some in torch.randperm(len(gain)).chunk(MINIBATCHES):
            features = agent.features(obs[some], {name: column[some] for name, column in columns.items()})
            chosen_from = Categorical(logits=agent.actor(features))
            ratio = (chosen_from.log_prob(actions[some]) - log_probs[some]).exp()
            scaled = (gain[some] - gain[some].mean()) / (gain[some].std() + 1e-8)
            policy_loss = -torch.min(ratio * scaled, ratio.clamp(1 - CLIP, 1 + CLIP) * scaled).mean()
            value_loss = (agent.value(features) - returns[some]).square().mean()
            optimizer.zero_grad()
            (policy_loss + 0.5 * value_loss - 0.01 * chosen_from.entropy().mean()).backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()


# -- sources of rollouts ---------------------------------------------------------------------------------------


def on_one_machine(agent: Agent, pool: remuda.Pool, seed: int) -> Iterator[Any]:
    """Returns an iterator of rollouts that this program fills, without a cluster."""
    pool.reset(seed=seed)
    return remuda.collect(pool, agent, steps=STEPS, parts=1)


@contextmanager
def two_nodes() -> Iterator[str]:
    """Starts a cluster of two nodes on this machine, and yields its address."""
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 2, "object_store_memory": 200 * 1024 * 1024}
    cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    try:
        cluster.add_node(**node)
        yield cluster.address
    finally:
        cluster.shutdown()


# -- the program ------------------------------------------------------------------------------------------------


def train(agent: Agent, rollouts: Iterator[Any], publish: Any, total_steps: int) -> list[float]:
    """Learns for a number of env steps. Returns the curve: the mean return of the last 50 episodes at each update."""
    optimizer = torch.optim.Adam(agent.parameters(), lr=LEARNING_RATE)
    lengths, running, curve = [], dict[int, float](), list[float]()
    steps, begin = 0, time.perf_counter()
    while steps < total_steps:
        rollout = next(rollouts)
        learn(agent, optimizer, rollout)
        publish(agent)
        steps += int(rollout.valid.sum())
        for column, env in enumerate(rollout.env_ids.tolist()):
            for reward, is_valid, end in zip(
                rollout.rewards[:, column],
                rollout.valid[:, column],
                rollout.terminations[:, column] | rollout.truncations[:, column],
                strict=True,
            ):
                running[env] = running.get(env, 0.0) + float(reward) * is_valid
                if end:
                    lengths.append(running.pop(env))
        curve.append(float(np.mean(lengths[-50:])) if lengths else 0.0)
        rate = steps / (time.perf_counter() - begin)
        is_of_shard = isinstance(rollout, remuda.ShardRollout)
        of = f", shard {rollout.shard}, policy {rollout.policy_version}" if is_of_shard else ""
        print(f"{steps:7,} steps, {rate:7,.0f} a second: mean return {curve[-1]:5.1f}{of}", flush=True)
    return curve


def main(arguments: list[str] | None = None) -> list[float]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--address", help="of a Ray cluster; without it, two nodes are started here")
    parser.add_argument("--one-machine", action="store_true", help="without Ray")
    parser.add_argument("--trial", action="store_true", help="in a trial of Ray Tune")
    parser.add_argument("--recurrent", action="store_true", help="a policy with a GRU")
    parser.add_argument("--shards", type=int, default=2)
    parser.add_argument("--in-flight", type=int, default=1, help="rollouts of each shard (default: 1)")
    parser.add_argument("--seed", type=int, default=1, help="of envs and networks (default: 1)")
    parser.add_argument("--steps", type=int, default=100_000, help="of envs, all together (default: 100,000)")
    options = parser.parse_args(arguments)
    torch.manual_seed(options.seed)
    torch.set_num_threads(1)  # leaves the other cores to the envs
    if options.trial:
        return in_a_trial(options)
    agent = RecurrentAgent() if options.recurrent else Agent()
    if options.one_machine:
        with remuda.Pool([make_env] * (NUM_ENVS // options.shards), num_workers=2, seeding="per_episode") as pool:
            return train(agent, on_one_machine(agent, pool, options.seed), lambda agent: None, options.steps)
    if options.address is not None:
        return on_cluster(agent, options.address, options)
    with two_nodes() as address:
        return on_cluster(agent, address, options)


def in_a_trial(options: argparse.Namespace) -> list[float]:
    """Learns in a trial of Ray Tune, on the connected cluster or on a new one on this machine."""
    from ray import tune

    def learn_in_trial(config: dict[str, Any]) -> None:
        torch.manual_seed(config["seed"])
        agent = RecurrentAgent() if options.recurrent else Agent()
        tune.report({"curve": on_cluster(agent, None, options)})

    room = tune.PlacementGroupFactory([{"CPU": 1}] * (1 + options.shards))  # one CPU is for the trial
    tuner = tune.Tuner(tune.with_resources(learn_in_trial, room), param_space={"seed": options.seed})
    (result,) = tuner.fit()
    assert result.metrics is not None
    curve: list[float] = result.metrics["curve"]
    print(f"the trial has learned: mean return {curve[-1]:.1f}")
    return curve


def on_cluster(agent: Agent, address: str | None, options: argparse.Namespace) -> list[float]:
    where = remuda.Ray(shards=options.shards, address=address, backend="serial")
    settings: dict[str, Any] = {"seeding": "per_episode", "faults": "restart"}
    settings["start_timeout"] = 600  # seconds; a cluster may have to start machines first
    with remuda.ClusterPool([make_env] * NUM_ENVS, backend=where, **settings) as pool:
        pool.reset(seed=options.seed)
        with pool.rollouts(agent, steps=STEPS, in_flight=options.in_flight) as rollouts:
            return train(agent, rollouts, pool.publish, options.steps)


if __name__ == "__main__":
    main()
