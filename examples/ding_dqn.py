"""Trains DI-engine's DQN on CartPole with remuda's and DI-engine's `SubprocessEnvManagerV2`. The curves are equal.

    python examples/ding_dqn.py [PICTURE]       # ding_dqn.png; about two minutes on two cores

Needs DI-engine; `make ding-test` builds an environment that has it. Both runs have the same seeds. Envs reset within
the step that ends their episode (`reset_inplace`), so the order does not depend on threads, and both runs are equal.
"""

from __future__ import annotations

import copy
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import gymnasium
import matplotlib.pyplot as plt
import torch
from ding.config import compile_config
from ding.data import DequeBuffer
from ding.envs import DingEnvWrapper
from ding.envs import SubprocessEnvManagerV2 as Original
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
from easydict import EasyDict

from remuda.ding import SubprocessEnvManagerV2

COLLECTORS, EVALUATORS = 8, 5
MAX_STEPS = 30_000  # the limit of env steps; training ends earlier at a mean return of 195 in an evaluation
RUNS: dict[str, tuple[Any, dict[str, Any]]] = {
    "remuda.ding": (SubprocessEnvManagerV2, {"remuda": {"num_workers": 2}}),  # CartPole needs no more workers
    "ding": (Original, {}),
}


def make_env() -> Any:
    return DingEnvWrapper(gymnasium.make("CartPole-v0"))


class Curve:
    """Stores and prints a point of the learning curve after each evaluation.

    Attributes:
        points: (seconds, env steps, mean return) of each evaluation.
    """

    def __init__(self) -> None:
        self.points: list[tuple[float, int, float]] = []
        self._began = time.perf_counter()
        self._shown: int | None = None

    def __call__(self, ctx: Any) -> None:
        if ctx.last_eval_iter != self._shown:
            self._shown = ctx.last_eval_iter
            self.points.append((time.perf_counter() - self._began, ctx.env_step, float(ctx.eval_value)))
            print(f"{ctx.env_step:6d} env steps: mean return {ctx.eval_value:6.1f}", flush=True)


def learn(manager_cls: Any, options: dict[str, Any]) -> list[tuple[float, int, float]]:
    """Trains with one manager. Returns the points of the learning curve."""
    config, create = copy.deepcopy((main_config, create_config))
    config.policy.eval.evaluator.eval_freq = 100  # updates
    create.env_manager.type = "remuda_subprocess_v2"
    cfg = compile_config(config, create_cfg=create, auto=True, save_cfg=False)
    set_pkg_seed(0, use_cuda=False)

    def make_manager(num_envs: int) -> Any:
        return manager_cls([make_env] * num_envs, EasyDict(cfg.env.manager, reset_inplace=True, **options))

    with task.start(async_mode=False, ctx=OnlineRLContext()):
        collector_env, evaluator_env = make_manager(COLLECTORS), make_manager(EVALUATORS)
        policy = DQNPolicy(cfg.policy, model=DQN(**cfg.policy.model))
        buffer = DequeBuffer(size=cfg.policy.other.replay_buffer.replay_buffer_size)
        curve = Curve()
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


def draw(curves: dict[str, list[tuple[float, int, float]]], picture: Path) -> None:
    figure, (by_steps, by_seconds) = plt.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
    for name, points in curves.items():
        seconds, steps, returns = zip(*points, strict=True)
        by_steps.plot(steps, returns, label=name, linestyle="-" if name == "remuda.ding" else "--")
        by_seconds.plot(seconds, returns, label=name)
    by_steps.set(xlabel="env steps", ylabel="mean return of an evaluation", title="the same curve ...")
    by_seconds.set(xlabel="seconds", title="... in less time")
    by_steps.legend()
    figure.savefig(picture)


def main(picture: Path) -> dict[str, list[tuple[float, int, float]]]:
    torch.set_num_threads(1)  # more threads do not help so small a network
    curves = {}
    for name, (manager_cls, options) in RUNS.items():
        print(f"{name}:")
        curves[name] = learn(manager_cls, options)
    for name, points in curves.items():
        seconds, _, last = points[-1]
        print(f"{name + ':':14}{seconds:6.1f} s to learn; last mean return {last:.0f}")
    ours, theirs = ([point[1:] for point in curves[name]] for name in RUNS)
    print(f"the same curve: {ours == theirs}")
    draw(curves, picture)
    print(f"the picture is {picture}")
    return curves


if __name__ == "__main__":
    picture = Path(sys.argv[1] if len(sys.argv) > 1 else "ding_dqn.png").absolute()
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)  # DI-engine writes logs into the current directory
        main(picture)
