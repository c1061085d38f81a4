"""remuda.evaluate_async evaluates a copy of the policy in a thread, while the program continues."""

from __future__ import annotations

import subprocess
import sys
import threading
from functools import partial
from typing import Any

import numpy as np
import pytest
from pool_envs import counting

from remuda import EnvError, Pool, StateError, evaluate, evaluate_async


class Gated:
    """A policy that waits for `gate` before each action. The actions are `action`. Copies have the same gate."""

    def __init__(self, gate: threading.Event, action: int) -> None:
        self.gate, self.action = gate, action

    def __deepcopy__(self, _: Any) -> Gated:
        return Gated(self.gate, self.action)

    def act(self, obs: Any) -> Any:
        assert self.gate.wait(60)
        return np.full(len(obs), self.action)


def test_a_copy_of_the_policy_is_evaluated_while_the_program_continues() -> None:
    policy = Gated(threading.Event(), 1)
    with Pool(counting(2, 3), num_workers=1) as training:
        evaluation = evaluate_async(policy, counting(2, 3), episodes=4, seed=0, num_workers=1)
        policy.action = 2
        training.reset()
        training.step([1, 1])
        assert evaluation.running() and not evaluation.done()
        policy.gate.set()
        result = evaluation.result(60)
    assert result.returns.tolist() == [3, 3, 3, 3]
    policy.action = 1
    assert result.seeds.tolist() == evaluate(policy, counting(2, 3), episodes=4, seed=0).seeds.tolist()


def test_seeds_options_and_successes_are_those_of_evaluate() -> None:
    def policy(obs: Any) -> Any:
        return np.ones(len(obs), int)

    arguments: Any = {"episodes": 2, "seeds": [4, 5], "reset_options": [None, {"level": 1}], "success": lambda _: True}
    result = evaluate_async(policy, counting(2, 3), backend="serial", **arguments).result(60)
    assert result.seeds.tolist() == [4, 5] and result.success_rate == 1
    with pytest.raises(ValueError, match="expected seeds to have an entry for each of 2 episodes, got 1"):
        evaluate_async(policy, counting(2, 3), episodes=2, seeds=[4])


def test_torch_modules_are_copied() -> None:
    torch = pytest.importorskip("torch")
    gate = threading.Event()

    class Constant(torch.nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.action = torch.nn.Parameter(torch.tensor(1.0))

        def forward(self, obs: Any) -> Any:
            assert gate.wait(60)
            return self.action.long().expand(len(obs))

        def ask(self, obs: Any) -> Any:
            return self.forward(obs).numpy()

    module = Constant()
    policies = [module, module.ask, partial(Constant.ask, module)]
    evaluations = [evaluate_async(one, counting(1, 3), episodes=1, backend="serial") for one in policies]
    with torch.no_grad():
        module.action.fill_(5)
    gate.set()
    assert [one.result(60).mean for one in evaluations] == [3, 3, 3]
    assert evaluate(module, counting(1, 3), episodes=1).mean == 15


def test_a_pool_serves_one_evaluation_after_another() -> None:
    policy = Gated(threading.Event(), 1)
    with Pool(counting(2, 3), num_workers=1) as pool:
        first = evaluate_async(policy, pool, episodes=2)
        with pytest.raises(StateError, match=r"no other evaluation uses, got one in use: wait for its result\(\)"):
            evaluate_async(policy, pool, episodes=2)
        policy.gate.set()
        first.result(60)
        assert evaluate_async(policy, pool, episodes=3).result(60).returns.tolist() == [3, 3, 3]


def test_errors() -> None:
    with pytest.raises(ValueError, match="episodes"):
        evaluate_async(np.sign, counting(1), episodes=0)
    with pytest.raises(TypeError, match="expected policy to be a function"):
        evaluate_async(None, counting(1), episodes=1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"expected a policy that copy.deepcopy can copy, got partial \(.*pickle"):
        evaluate_async(partial(np.sign, threading.Lock()), counting(1), episodes=1)
    assert isinstance(evaluate_async(lambda obs: 1 / 0, counting(1), episodes=1).exception(60), ZeroDivisionError)
    broken = evaluate_async(lambda obs: [0], [Broken], episodes=1).exception(60)
    assert isinstance(broken, EnvError)


class Broken:
    def __init__(self) -> None:
        raise ValueError("broken")


def test_a_program_may_end_before_its_evaluation() -> None:
    program = """
import threading, numpy as np, remuda, gymnasium
acting, never = threading.Event(), threading.Event()
def policy(obs):
    acting.set()
    never.wait()
if __name__ == "__main__":
    remuda.evaluate_async(policy, [lambda: gymnasium.make("CartPole-v1")] * 2, episodes=2)
    assert acting.wait(60)
    print("ends")
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert (run.returncode, run.stdout) == (0, "ends\n"), run.stderr
    assert not run.stderr
