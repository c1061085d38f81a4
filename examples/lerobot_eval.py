"""Evaluates a LeRobot policy with its processors: python examples/lerobot_eval.py POLICY libero --task libero_10

For policies that see one observation at a time, such as ACT, pi0 and SmolVLA. It ran with LeRobot 0.6.1.
"""

import argparse
from functools import partial

import gymnasium
import torch
from lerobot.configs import PreTrainedConfig
from lerobot.envs import make_env, make_env_config, make_env_pre_post_processors, preprocess_observation
from lerobot.policies import make_policy, make_pre_post_processors
from lerobot.utils.constants import ACTION

import remuda


class FromInitState(gymnasium.Wrapper):
    """Begins episode k of LIBERO from its init state k, and not from one that depends on earlier resets."""

    def reset(self, *, seed=None, options=None):
        if options is not None:
            self.unwrapped.init_state_id = options["init_state"]
        return self.env.reset(seed=seed)


def make_one(config, suite, number):
    return FromInitState(make_env(config, n_envs=1)[suite][number].envs[0])


def make_tasks(config):
    for suite, envs in make_env(config, n_envs=1).items():
        for number, vector_env in envs.items():
            env = vector_env.envs[0].unwrapped
            states = getattr(env, "_init_states", None)
            yield remuda.Task(
                f"{suite} {number}",
                partial(make_one, config, suite, number),
                instruction=getattr(env, "task_description", ""),
                init_states=None if states is None else range(len(states)),
            )
            vector_env.close()


def adapt(config, policy):
    """Returns LeRobot's policy, with its processors, as a function for remuda that returns chunks of actions."""
    if policy.config.n_obs_steps > 1:
        raise ValueError(f"expected a policy that sees one observation, got n_obs_steps={policy.config.n_obs_steps}")
    before, after = make_pre_post_processors(policy.config, policy.config.pretrained_path)
    env_before, env_after = make_env_pre_post_processors(config, policy.config)

    @torch.inference_mode()
    def act(obs, context):
        batch = preprocess_observation(obs) | {"task": [unit.instruction for unit in context.units]}
        torch.manual_seed(context.units[0].rng.integers(2**31))  # for policies that sample: exact for one row
        chunk = policy.predict_action_chunk(before(env_before(batch)))[:, : policy.config.n_action_steps]
        steps = [env_after({ACTION: after(action)})[ACTION] for action in chunk.unbind(1)]
        return torch.stack(steps, 1).float().cpu().numpy()

    return act


def main(arguments=None):
    parser = argparse.ArgumentParser()
    for name in ("policy", "env", "--task", "--results"):
        parser.add_argument(name)
    for name, default in (("--episodes", 10), ("--num-envs", 4), ("--seed", 1000)):
        parser.add_argument(name, type=int, default=default)
    given = vars(parser.parse_args(arguments))
    path, task, config = given.pop("policy"), given.pop("task"), make_env_config(given.pop("env"))
    config.task = task or config.task
    policy_config = PreTrainedConfig.from_pretrained(path, cli_overrides=[f"--pretrained_path={path}"])
    policy = make_policy(policy_config, env_cfg=config).eval()
    given |= {"label": path, "chunk": policy.config.n_action_steps, "preload": ["lerobot.envs"], "start_timeout": 600.0}
    print(remuda.evaluate_tasks(adapt(config, policy), make_tasks(config), **given))


if __name__ == "__main__":
    main()
