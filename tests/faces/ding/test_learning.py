"""DI-engine's pipelines train on the managers of the DI-engine face."""

from __future__ import annotations

import copy
import importlib
import os
import random
import signal
import warnings
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from accidents import kill_myself, raise_value_error
from ding_face_envs import ours, reap
from drawn import nightly
from easydict import EasyDict

from remuda import FaultPolicy

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from ding.config import compile_config
    from ding.data import DequeBuffer
    from ding.entry import serial_pipeline
    from ding.envs import create_env_manager
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
    from dizoo.classic_control.cartpole.envs.cartpole_env import CartPoleEnv

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.watchdog(600)]

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


@pytest.fixture(autouse=True)
def directory_for_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


class FragileCartPole(CartPoleEnv):
    """A CartPole env that calls its action if the action is a function."""

    def step(self, action: Any) -> Any:
        return action() if callable(action) else super().step(action)


class Storm:
    """Makes workers die and envs raise at random steps: each kind twice in collection and twice in evaluation.

    Attributes:
        hits: the number of faults, by the manager's purpose and the kind of fault.
        losses: the losses of the policy's updates.
    """

    _ways: ClassVar[dict[str, Any]] = {"idle": None, "in a step": kill_myself, "raises": raise_value_error}

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.hits: Counter[tuple[str, str]] = Counter()
        self.losses: list[float] = []
        self._random = random.Random(0)
        self._step, self._learn = ours.AsyncSubprocessEnvManager.step, DQNPolicy._forward_learn
        monkeypatch.setattr(ours.AsyncSubprocessEnvManager, "step", lambda *args: self._hit(*args))
        monkeypatch.setattr(DQNPolicy, "_forward_learn", lambda *args: self._note_loss(*args))

    def _hit(self, manager: Any, actions: dict[int, Any]) -> Any:
        purpose = "evaluation" if manager._env_dynamic_seed is False else "collection"
        left = [way for way in self._ways if self.hits[purpose, way] < 2]
        if actions and left and self._random.random() < 0.3:
            victim, way = self._random.choice(sorted(actions)), self._random.choice(left)
            self.hits[purpose, way] += 1
            if way == "idle":
                os.kill(manager.workers[victim].pid, signal.SIGKILL)
            else:
                actions = {**actions, victim: self._ways[way]}
        return self._step(manager, actions)

    def _note_loss(self, policy: Any, data: Any) -> Any:
        learned = self._learn(policy, data)
        self.losses.append(learned["total_loss"])
        return learned

    def check(self) -> None:
        assert self.hits == {(purpose, way): 2 for purpose in ("collection", "evaluation") for way in self._ways}
        assert np.isfinite(self.losses).all()


def small_config(kind: str) -> tuple[Any, Any]:
    """Returns the config of a DQN that learns from few samples and is evaluated often."""
    config, create = copy.deepcopy((main_config, create_config))
    create.env_manager.type = kind
    faults = FaultPolicy("restart", max_restarts=1000, backoff=0.0)
    config.env.manager = EasyDict(remuda={"faults": faults})
    config.env.collector_env_num, config.env.evaluator_env_num, config.env.n_evaluator_episode = 3, 2, 2
    config.policy.learn.update_per_collect, config.policy.learn.batch_size = 1, 8
    config.policy.eval.evaluator.eval_freq = 4
    return config, create


@pytest.mark.parametrize("kind", [pytest.param("remuda_subprocess", marks=nightly), "remuda_async_subprocess"])
def test_a_serial_pipeline_keeps_learning_after_faults(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    storm = Storm(monkeypatch)
    config, create = small_config(kind)
    policy = serial_pipeline(
        [config, create], seed=0, env_setting=[FragileCartPole, [{}] * 3, [{}] * 2], max_train_iter=8
    )
    assert policy is not None
    assert len(storm.losses) >= 8
    storm.check()


def test_middleware_keeps_learning_after_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    storm = Storm(monkeypatch)
    config, create = small_config("remuda_subprocess_v2")
    cfg = compile_config(config, create_cfg=create, auto=True, save_cfg=False)
    set_pkg_seed(0, use_cuda=False)
    returns: dict[int, float] = {}

    def note_return(ctx: Any) -> None:
        returns.setdefault(ctx.last_eval_iter, ctx.eval_value)

    with task.start(async_mode=False, ctx=OnlineRLContext()):
        collecting, evaluating = (
            create_env_manager(cfg.env.manager, [partial(FragileCartPole, {})] * number) for number in (3, 2)
        )
        policy = DQNPolicy(cfg.policy, model=DQN(**cfg.policy.model))
        buffer = DequeBuffer(size=1000)
        task.use(interaction_evaluator(cfg, policy.eval_mode, evaluating))
        task.use(note_return)
        task.use(eps_greedy_handler(cfg))
        task.use(StepCollector(cfg, policy.collect_mode, collecting))
        task.use(data_pusher(cfg, buffer))
        task.use(OffPolicyLearner(cfg, policy.learn_mode, buffer))
        task.run(max_step=8)
        collecting.close()
        evaluating.close()
    assert len(storm.losses) == 8
    assert list(returns) == [0, 4]
    # An episode of CartPole always has at least eight steps. A shorter one would be an error.
    assert min(returns.values()) >= 8, returns
    storm.check()


def test_the_example_learns_the_same_on_dings_envs_and_ours(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The learning curve is the same on our envs and on DI-engine's."""
    monkeypatch.syspath_prepend(EXAMPLES)
    example = importlib.import_module("ding_dqn")
    monkeypatch.setattr(example, "MAX_STEPS", 300)
    curves = example.main(tmp_path / "curves.png")
    reap()
    ours, original = ([point[1:] for point in curve] for curve in curves.values())
    assert ours == original
    assert len(ours) > 1
    assert "the same curve: True" in capsys.readouterr().out
    assert (tmp_path / "curves.png").stat().st_size > 0
