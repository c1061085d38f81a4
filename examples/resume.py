"""Trains SB3's PPO twice, the second time while workers are killed and hang. The weights are equal to the last bit.

    python examples/resume.py        # a minute on two cores

A thread kills a random worker (`kill -9`), or stops one, so that its step misses its deadline. With "resume" each env
is built again and plays its episode again up to the step that was interrupted, so PPO learns from the same data.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import random
import signal
import threading
from collections.abc import Iterator

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env

from remuda import FaultPolicy
from remuda.sb3 import SubprocVecEnv

NUM_ENVS = 4
STEPS = 20_000
ACCIDENT_EVERY = 1.0  # seconds
HANG_EVERY = 5  # accidents: this one stops a worker, the others kill one


@contextlib.contextmanager
def accidents(envs: SubprocVecEnv) -> Iterator[list[str]]:
    """Kills or stops a random worker at intervals. Yields the list of what was done."""
    done, ended = list[str](), threading.Event()

    def strike() -> None:
        while not ended.is_set():
            is_hang = len(done) % HANG_EVERY == HANG_EVERY - 1
            with contextlib.suppress(ProcessLookupError):  # the process has just ended, and is replaced
                os.kill(random.choice(envs.processes).pid, signal.SIGSTOP if is_hang else signal.SIGKILL)
                done.append("hang" if is_hang else "kill")
            ended.wait(ACCIDENT_EVERY)

    thread = threading.Thread(target=strike)
    thread.start()
    try:
        yield done
    finally:
        ended.set()
        thread.join()


def train(*, is_disturbed: bool) -> str:
    """Returns a digest of the weights that PPO has learned."""
    faults = FaultPolicy("resume", step_timeout=1.0, reset_timeout=1.0, max_restarts=1000, backoff=0)
    options = {"num_workers": None, "faults": faults}  # a worker for each env
    with contextlib.closing(
        make_vec_env("CartPole-v1", NUM_ENVS, seed=0, vec_env_cls=SubprocVecEnv, vec_env_kwargs=options)
    ) as envs:
        model = PPO("MlpPolicy", envs, seed=0, n_steps=128, device="cpu")
        with accidents(envs) if is_disturbed else contextlib.nullcontext([]) as done:
            model.learn(STEPS)
        print(f"{done.count('kill')} kills, {done.count('hang')} hangs, {envs.stats().restarts} restarts")
    weights = hashlib.sha256()
    for tensor in model.policy.state_dict().values():
        weights.update(tensor.numpy().tobytes())
    return weights.hexdigest()


def main() -> None:
    logging.getLogger("remuda").setLevel(logging.ERROR)  # suppresses the warning about each fault
    torch.set_num_threads(1)
    undisturbed, disturbed = train(is_disturbed=False), train(is_disturbed=True)
    print(f"undisturbed: {undisturbed}\ndisturbed:   {disturbed}\nequal weights: {undisturbed == disturbed}")


if __name__ == "__main__":
    main()
