"""Evaluates a LeRobot policy on all tasks of an env, in parallel, with LeRobot's own processors:

    python examples/lerobot_eval.py lerobot/act_aloha_sim_transfer_cube_human aloha --episodes 50 --num-envs 8
    python examples/lerobot_eval.py lerobot/pi05_libero_finetuned libero --task libero_10 --num-envs 8

For policies that see one observation at a time, such as ACT, pi0, SmolVLA and GR00T, from LeRobot 0.6 on.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import torch
from lerobot.configs import PreTrainedConfig
from lerobot.envs import make_env, make_env_config, make_env_pre_post_processors, preprocess_observation
from lerobot.policies import make_policy, make_pre_post_processors
from lerobot.utils.constants import ACTION

import remuda


class FromInitState(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Begins episode k of LIBERO from its init state k, and not from one that depends on earlier resets."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        if options is not None:
            self.unwrapped.init_state_id = options["init_state"]
        return self.env.reset(seed=seed)


def make_one(config: Any, suite: str, task: int) -> FromInitState:
    return FromInitState(make_env(config, n_envs=1)[suite][task].envs[0])


def make_tasks(config: Any) -> list[remuda.Task]:
    tasks = []
    for suite, envs in make_env(config, n_envs=1).items():
        for number, vector_env in envs.items():
            env = vector_env.envs[0].unwrapped
            states = range(len(env._init_states)) if getattr(env, "_init_states", None) is not None else None
            instruction = getattr(env, "task_description", "")
            make = partial(make_one, config, suite, number)
            tasks.append(remuda.Task(f"{suite} {number}", make, instruction=instruction, init_states=states))
            vector_env.close()
    return tasks


def adapt(config: Any, policy: Any) -> Any:
    """Returns LeRobot's policy with its processors as a function for remuda, which returns chunks of actions."""
    if policy.config.n_obs_steps > 1:
        raise ValueError(f"expected a policy of one observation, got one with n_obs_steps={policy.config.n_obs_steps}")
    before, after = make_pre_post_processors(policy.config, policy.config.pretrained_path)
    env_before, env_after = make_env_pre_post_processors(config, policy.config)

    @torch.inference_mode()
    def act(obs: Any, context: remuda.PolicyContext) -> np.ndarray[Any, Any]:
        batch = preprocess_observation(obs) | {"task": [unit.instruction for unit in context.units]}
        torch.manual_seed(int(context.units[0].rng.integers(2**31)))  # for policies that sample; exact with min_envs=1
        chunk = policy.predict_action_chunk(before(env_before(batch)))[:, : policy.config.n_action_steps]
        steps = [env_after({ACTION: after(action)})[ACTION] for action in chunk.unbind(1)]
        return torch.stack(steps, 1).float().cpu().numpy()

    return act


def main(arguments: list[str] | None = None) -> remuda.TaskResults:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("policy", help="a folder, or a name on the Hub")
    parser.add_argument("env", help="LeRobot's type of env, such as libero, metaworld, aloha or pusht")
    parser.add_argument("--task", help="the task or suite; default: that of the env's configuration")
    for name, default in (("--episodes", 10), ("--num-envs", 4), ("--seed", 1000)):
        parser.add_argument(name, type=int, default=default)
    parser.add_argument("--results", help="a file for the rows; a second call continues the run")
    given = parser.parse_args(arguments)
    config = make_env_config(given.env, **({"task": given.task} if given.task else {}))
    policy_config = PreTrainedConfig.from_pretrained(given.policy)
    policy_config.pretrained_path = given.policy
    policy = make_policy(policy_config, env_cfg=config).eval()
    settings = {"seed": given.seed, "results": given.results, "chunk": policy.config.n_action_steps}
    act, tasks = adapt(config, policy), make_tasks(config)
    results = remuda.evaluate_tasks(act, tasks, episodes=given.episodes, num_envs=given.num_envs, **settings)
    print(results)
    return results


if __name__ == "__main__":
    main()
