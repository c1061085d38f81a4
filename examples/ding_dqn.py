"""DI-engine's DQN on CartPole, with the envs in remuda's workers. Prints a learning curve; takes a minute or two.

Needs DI-engine. The one line that differs from DI-engine's own example is the import of the manager.
"""

from __future__ import annotations

import os
import tempfile
from typing import Any

import gymnasium
import torch
from ding.config import compile_config
from ding.data import DequeBuffer
from ding.envs import DingEnvWrapper
from ding.framework import task
from ding.framework.context import OnlineRLContext
from ding.framework.middleware import (
    OffPolicyLearner,
    StepCollector,
    data_pusher,
    eps_greedy_handler,
    interaction_evaluator,
)
from ding.model import DQN
from ding.policy import DQNPolicy
from ding.utils import set_pkg_seed
from dizoo.classic_control.cartpole.config.cartpole_dqn_config import create_config, main_config

from remuda.ding import SubprocessEnvManagerV2  # was: from ding.envs import SubprocessEnvManagerV2

COLLECTORS, EVALUATORS = 8, 5
MAX_STEPS = 30_000  # env steps; it stops earlier where the mean return of an evaluation reaches 195


def make_env() -> Any:
    return DingEnvWrapper(gymnasium.make("CartPole-v0"))


def make_manager(cfg: Any, num_envs: int) -> SubprocessEnvManagerV2:
    # CartPoles step in microseconds: two workers are enough for all of them.
    return SubprocessEnvManagerV2([make_env] * num_envs, {**cfg.env.manager, "remuda": {"num_workers": 2}})


class Curve:
    """Prints a point of the learning curve after each evaluation.

    Attributes:
        points: env steps, and the mean return.
    """

    def __init__(self) -> None:
        self.points: list[tuple[int, float]] = []
        self._shown: int | None = None

    def __call__(self, ctx: Any) -> None:
        if ctx.last_eval_iter != self._shown:
            self._shown = ctx.last_eval_iter
            self.points.append((ctx.env_step, float(ctx.eval_value)))
            print(f"{ctx.env_step:6d} env steps: mean return {ctx.eval_value:6.1f}", flush=True)


def main() -> list[tuple[int, float]]:
    """Trains, and returns the learning curve."""
    curve = Curve()
    torch.set_num_threads(1)  # so small a network is no work for several
    create_config.env_manager.type = "remuda_subprocess_v2"
    main_config.policy.eval.evaluator.eval_freq = 100  # updates
    cfg = compile_config(main_config, create_cfg=create_config, auto=True, save_cfg=False)
    set_pkg_seed(0, use_cuda=False)
    with task.start(async_mode=False, ctx=OnlineRLContext()):
        collector_env, evaluator_env = make_manager(cfg, COLLECTORS), make_manager(cfg, EVALUATORS)
        model = DQN(**cfg.policy.model)
        policy = DQNPolicy(cfg.policy, model=model)
        buffer = DequeBuffer(size=cfg.policy.other.replay_buffer.replay_buffer_size)
        task.use(interaction_evaluator(cfg, policy.eval_mode, evaluator_env))
        task.use(curve)
        task.use(eps_greedy_handler(cfg))
        task.use(StepCollector(cfg, policy.collect_mode, collector_env))
        task.use(data_pusher(cfg, buffer))
        task.use(OffPolicyLearner(cfg, policy.learn_mode, buffer))
        task.run(max_step=MAX_STEPS // COLLECTORS)
        collector_env.close()
        evaluator_env.close()
    return curve.points


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)  # DI-engine leaves logs where it runs
        main()
