"""PPO in one file, on rollouts that the workers write directly into the learner's memory.

    python examples/torch_ppo.py                                        CartPole: half a minute
    python examples/torch_ppo.py --env HalfCheetah-v5 --steps 1000000   needs gymnasium[mujoco]
    python examples/torch_ppo.py --env ALE/Pong-v5 --steps 5000000      needs ale-py and opencv-python
    python examples/torch_ppo.py --on gymnasium                         with gymnasium.vector.AsyncVectorEnv

Needs `pip install torch "gymnasium[classic-control]" rich`. The folder of the run (`--dir`) has checkpoints,
from which `--resume` continues, and scalars for TensorBoard, if that is installed. On a GPU the policy is compiled,
with CUDA graphs. At the end the program prints the times of collecting and learning; `--profile` adds a table.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import torch
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from torch import nn
from torch.distributions import Categorical, Distribution, Independent, Normal

import remuda

GAMMA, LAMBDA, CLIP, ENTROPY = 0.99, 0.95, 0.2, 0.01
EPOCHS, MINIBATCHES, LEARNING_RATE = 4, 4, 1e-3
CHECKPOINT_EVERY = 20  # updates

Policy = Callable[[Any], tuple[Any, dict[str, Any]]]


def make_env(name: str) -> gymnasium.Env[Any, Any]:
    """Builds an env with the usual wrappers, which also put the returns of episodes into the infos."""
    if name.startswith("ALE/"):
        import ale_py

        gymnasium.register_envs(ale_py)
        env = gymnasium.wrappers.RecordEpisodeStatistics(gymnasium.make(name, frameskip=1))
        return gymnasium.wrappers.FrameStackObservation(gymnasium.wrappers.AtariPreprocessing(env), 4)
    env = gymnasium.wrappers.RecordEpisodeStatistics(gymnasium.make(name))
    if isinstance(env.action_space, gymnasium.spaces.Box):
        env = gymnasium.wrappers.NormalizeObservation(gymnasium.wrappers.ClipAction(env))
    return env


# -- the agent -----------------------------------------------------------------------------------------------


class Agent(nn.Module):
    """A policy and a value function, which share a trunk for images and are separate networks otherwise."""

    def __init__(self, observations: gymnasium.Space[Any], actions: gymnasium.Space[Any]) -> None:
        super().__init__()
        shape = observations.shape or ()
        self.is_image, self.is_continuous = len(shape) == 3, isinstance(actions, gymnasium.spaces.Box)
        outputs = int(np.prod(actions.shape or ())) if self.is_continuous else int(getattr(actions, "n"))  # noqa: B009
        if self.is_image:
            convolutions = [nn.Conv2d(shape[0], 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU()]
            convolutions += [nn.Conv2d(64, 64, 3, 1), nn.ReLU(), nn.Flatten()]
            self.trunk = nn.Sequential(*convolutions, nn.LazyLinear(512), nn.ReLU())
            self.actor, self.critic = nn.Linear(512, outputs), nn.Linear(512, 1)
        else:
            self.trunk = nn.Sequential()
            self.actor, self.critic = (perceptron(int(np.prod(shape)), n) for n in (outputs, 1))
        self.log_std = nn.Parameter(torch.zeros(outputs))

    def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        features = self.trunk(obs / 255.0 if self.is_image else obs.float())
        return self.actor(features), self.critic(features).squeeze(-1)

    def chosen_from(self, outputs: torch.Tensor) -> Distribution:
        if self.is_continuous:
            return Independent(Normal(outputs, self.log_std.exp()), 1)
        return Categorical(logits=outputs)


def perceptron(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, outputs))


def policy_of(agent: Agent, device: torch.device) -> Policy:
    """Returns the function that collectors call: from observations to actions and their columns (value, log_prob)."""
    forward: Any = agent if device.type != "cuda" else torch.compile(agent, mode="reduce-overhead")

    @torch.no_grad()
    def policy(obs: Any) -> tuple[Any, dict[str, Any]]:
        outputs, values = forward(remuda.to_torch(obs, device))
        chosen_from = agent.chosen_from(outputs)
        actions = chosen_from.sample()
        log_probs = chosen_from.log_prob(actions)
        return actions.cpu().numpy(), {"value": values.cpu().numpy(), "log_prob": log_probs.cpu().numpy()}

    return policy


# -- learning ------------------------------------------------------------------------------------------------


def advantages(rollout: Any, last_value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Returns generalised advantages (T, n). If an episode is truncated, the value of its last observation counts."""
    values = np.concatenate([rollout.columns["value"], last_value[None]])
    goes_on = ~(rollout.terminations | rollout.truncations)
    found, carried = np.zeros(rollout.rewards.shape, np.float32), np.zeros(rollout.rewards.shape[1])
    for t in reversed(range(len(found))):
        delta = rollout.rewards[t] + GAMMA * np.where(rollout.terminations[t], 0.0, values[t + 1]) - values[t]
        found[t] = carried = delta + GAMMA * LAMBDA * goes_on[t] * carried
    return found


def learn(agent: Agent, optimizer: torch.optim.Optimizer, rollout: Any, device: torch.device) -> dict[str, float]:
    """Runs some epochs of PPO on one rollout. Returns the losses."""
    obs = remuda.to_torch(rollout.obs, device)
    with torch.no_grad():
        last_value = agent(obs[-1])[1].cpu().numpy()
    gains = torch.as_tensor(advantages(rollout, last_value), device=device).flatten()
    obs, actions = obs[:-1].flatten(0, 1), remuda.to_torch(rollout.actions, device).flatten(0, 1)
    values, log_probs = (
        torch.as_tensor(rollout.columns[name], device=device).flatten() for name in ("value", "log_prob")
    )
    (rows,) = torch.as_tensor(rollout.valid, device=device).flatten().nonzero(as_tuple=True)  # drops resets
    for _ in range(EPOCHS):
        for some in rows[torch.randperm(len(rows), device=device)].chunk(MINIBATCHES):
            outputs, value = agent(obs[some])
            chosen_from = agent.chosen_from(outputs)
            ratio = (chosen_from.log_prob(actions[some]) - log_probs[some]).exp()
            gain = (gains[some] - gains[some].mean()) / (gains[some].std() + 1e-8)
            policy_loss = -torch.min(ratio * gain, ratio.clamp(1 - CLIP, 1 + CLIP) * gain).mean()
            value_loss = (value - (gains[some] + values[some])).square().mean()
            entropy = chosen_from.entropy().mean()
            optimizer.zero_grad()
            (policy_loss + 0.5 * value_loss - ENTROPY * entropy).backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()
    return {"policy_loss": policy_loss.item(), "value_loss": value_loss.item(), "entropy": entropy.item()}


# -- sources of rollouts --------------------------------------------------------------------------------------


def on_remuda(env: str, num_envs: int, seed: int) -> Any:
    pool = remuda.Pool([lambda: make_env(env)] * num_envs)
    pool.reset(seed=seed)
    return pool


def rollouts_on_gymnasium(envs: Any, policy: Policy, steps: int, seed: int) -> Iterator[Any]:
    """Yields rollouts from Gymnasium's envs, for comparison: keeps copies of all steps in lists, and stacks them."""
    obs, _ = envs.reset(seed=seed)
    over = np.zeros(envs.num_envs, bool)
    while True:
        kept: dict[str, list[Any]] = {"obs": [obs]}
        returns = []
        for _ in range(steps):
            actions, told = policy(obs)
            valid = ~over
            obs, rewards, terminations, truncations, infos = envs.step(actions)
            over = terminations | truncations
            row = {"obs": obs, "actions": actions, "rewards": rewards, "valid": valid}
            row |= {"terminations": terminations, "truncations": truncations, **told}
            for name, array in row.items():
                kept.setdefault(name, []).append(array)
            if "episode" in infos:
                returns += infos["episode"]["r"][infos["_episode"]].tolist()
        arrays = {name: np.stack(array) for name, array in kept.items()}
        columns = {name: arrays.pop(name) for name in ("value", "log_prob")}
        infos = {"episode": {"r": np.array(returns)}, "_episode": np.ones(len(returns), bool)}
        yield SimpleNamespace(**arrays, columns=columns, infos=infos)


# -- times ------------------------------------------------------------------------------------------------------


class Profile:
    """The time that the program spends in each activity.

    Attributes:
        policy: Seconds in the policy.
        collecting: Seconds of collecting rollouts: in the policy, in waiting for the envs, and in moving data.
        update: Seconds of learning.
    """

    def __init__(self) -> None:
        self.policy = self.collecting = self.update = 0.0
        self._begin = time.perf_counter()

    def timed(self, policy: Policy) -> Policy:
        def timing(obs: Any) -> tuple[Any, dict[str, Any]]:
            begin = time.perf_counter()
            told = policy(obs)
            self.policy += time.perf_counter() - begin
            return told

        return timing

    def table(self, steps: int) -> str:
        """Returns a Markdown table with the seconds, share, and microseconds per env step of each activity."""
        total = time.perf_counter() - self._begin
        parts = {"policy": self.policy, "envs": self.collecting - self.policy, "update": self.update}
        parts |= {"other": total - sum(parts.values()), "total": total}
        rows = ["| | s | share | us an env step |", "|---|---|---|---|"]
        for name, seconds in parts.items():
            rows.append(f"| {name} | {seconds:.2f} | {seconds / total:.0%} | {1e6 * seconds / steps:.1f} |")
        return "\n".join(rows)


# -- the program ---------------------------------------------------------------------------------------------


def scalars_of(folder: Path) -> Callable[[str, float, int], None]:
    """Returns a function that writes a scalar for TensorBoard, or does nothing if that is not installed."""
    if importlib.util.find_spec("tensorboard") is None:
        print("no scalars: tensorboard is not installed")
        return lambda name, value, steps: None
    from torch.utils.tensorboard import SummaryWriter

    add: Callable[[str, float, int], None] = SummaryWriter(str(folder)).add_scalar  # type: ignore[no-untyped-call]
    return add


def train(
    envs: Any, rollouts: Iterator[Any], agent: Agent, device: torch.device, options: Any, profile: Profile
) -> list[float]:
    """Learns for a number of env steps. Returns the curve: the mean return of the last 50 episodes at each update."""
    optimizer = torch.optim.Adam(agent.parameters(), lr=LEARNING_RATE)
    folder: Path = options.dir
    folder.mkdir(parents=True, exist_ok=True)
    scalar, steps = scalars_of(folder), 0
    if options.resume is not None:
        kept = torch.load(options.resume, weights_only=True)
        agent.load_state_dict(kept["agent"])
        optimizer.load_state_dict(kept["optimizer"])
        steps = kept["steps"]
    returns, curve, begun_at = list[float](), list[float](), steps
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns) as progress:
        task = progress.add_task(options.env, total=options.steps, completed=steps)
        while steps < options.steps:
            begin = time.perf_counter()
            with remuda.span("collect"):
                rollout = next(rollouts)
            collected = time.perf_counter()
            with remuda.span("learn"):
                losses = learn(agent, optimizer, rollout, device)
            learned = time.perf_counter()
            profile.collecting += collected - begin
            profile.update += learned - collected
            steps += rollout.valid.size
            if (infos := rollout.infos).get("episode"):
                returns += infos["episode"]["r"][infos["_episode"]].ravel().tolist()
            curve.append(float(np.mean(returns[-50:])) if returns else 0.0)
            rate = rollout.valid.size / (learned - begin)
            for name, value in {"return": curve[-1], "steps_per_second": rate, **losses}.items():
                scalar(name, value, steps)
            if len(curve) % CHECKPOINT_EVERY == 0 or steps >= options.steps:
                kept = {"agent": agent.state_dict(), "optimizer": optimizer.state_dict(), "steps": steps}
                torch.save(kept, folder / "checkpoint.pt")
            progress.update(task, completed=steps, description=f"return {curve[-1]:7.1f}, {rate:8,.0f} steps/s")
    took = f"collecting took {profile.collecting:.1f} s, learning {profile.update:.1f} s"
    print(f"{took}; the last return is {curve[-1]:.1f}")
    if options.profile:
        print(profile.table(steps - begun_at))
    if isinstance(envs, remuda.Pool):
        print(envs.stats().verdict)
    return curve


def main(arguments: list[str] | None = None) -> list[float]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--env", default="CartPole-v1")
    parser.add_argument("--num-envs", type=int, default=16)
    parser.add_argument("--rollout", type=int, default=128, help="steps of each env between updates (default: 128)")
    parser.add_argument("--steps", type=int, default=100_000, help="of envs, all together (default: 100,000)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--on", choices=("remuda", "gymnasium"), default="remuda")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dir", type=Path, default=Path("runs/ppo"), help="of scalars and checkpoints")
    parser.add_argument("--resume", type=Path, help="a checkpoint")
    parser.add_argument("--profile", action="store_true", help="a table of where the time went")
    options = parser.parse_args(arguments)
    torch.manual_seed(options.seed)
    device = torch.device(options.device)
    if device.type == "cpu":
        torch.set_num_threads(1)  # leaves the other cores to the envs
    if options.on == "remuda":
        envs: Any = on_remuda(options.env, options.num_envs, options.seed)
    else:
        envs = gymnasium.vector.AsyncVectorEnv([lambda: make_env(options.env)] * options.num_envs)
    try:
        agent = Agent(envs.single_observation_space, envs.single_action_space).to(device)
        with torch.no_grad():  # the first call sets the sizes of lazy layers
            agent(torch.zeros(1, *(envs.single_observation_space.shape or ()), device=device))
        profile = Profile()
        policy = profile.timed(policy_of(agent, device))
        if options.on == "remuda":
            rollouts: Iterator[Any] = remuda.collect(envs, policy, steps=options.rollout)
        else:
            rollouts = rollouts_on_gymnasium(envs, policy, options.rollout, options.seed)
        return train(envs, rollouts, agent, device, options, profile)
    finally:
        envs.close()


if __name__ == "__main__":
    main()
