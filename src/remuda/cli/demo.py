"""``remuda demo``: a race with Gymnasium, and a worker that is killed in the middle of a run."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import time
from typing import TYPE_CHECKING

from remuda._bench import workloads
from remuda._bench.contenders import Plan, line_up
from remuda._system.cores import usable_cores
from remuda._system.machine import backend_here

from .bench import race_and_show
from .options import add_subcommand, at_least

if TYPE_CHECKING:
    from .options import Subcommands

_ENV = "CartPole-v1"
_BACKEND = backend_here(warns=False)


def add_to(subcommands: Subcommands) -> None:
    """Describe the subcommand's options."""
    parser = add_subcommand(subcommands, demo, "demo")
    add = parser.add_argument
    add("--seconds", type=at_least(0.01, float), default=3.0, metavar="S", help="seconds for a contender (default: 3)")
    add("--num-envs", "-n", type=at_least(2), default=64, metavar="N", help="CartPoles to step (default: 64)")


def demo(options: argparse.Namespace) -> int:
    """Show remuda at work: CartPoles beside Gymnasium's AsyncVectorEnv, and a worker that is killed."""
    workers = min(options.num_envs, usable_cores())
    plan = Plan(workloads.resolve(_ENV), options.num_envs, workers, _BACKEND)
    result = race_and_show(line_up(["gymnasium"]), plan, options.seconds)
    if _BACKEND == "process" and result.remuda.error is None:
        print('\nNow a worker is killed with SIGKILL while its envs are stepped (faults="restart"):', flush=True)
        print(survive_a_kill())
    print("\nYour own env: remuda bench mymodule:make_env --num-envs 64")
    return 0 if result.remuda.error is None else 1


def survive_a_kill(num_envs: int = 8, num_workers: int = 4) -> str:
    """Kill a worker in the middle of a run, step on until its envs are back, and describe what happened."""
    import gymnasium

    import remuda

    with remuda.Pool([lambda: gymnasium.make(_ENV)] * num_envs, num_workers=num_workers, faults="restart") as pool:
        batch = pool.reset(seed=0)
        victim = pool.workers[0]
        pid, lost = victim.pid, list(victim.env_ids)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        killed_at, steps, truncated = time.monotonic(), 0, set[int]()
        logging.getLogger("remuda").disabled = True  # a warning about the death that this program causes
        while victim.pid in (pid, None) or truncated < set(lost):
            batch = pool.step((batch.obs[:, 2] > 0).astype(int))
            truncated |= {i for i in lost if isinstance(batch.infos[i].get("fault"), remuda.Fault)}
            steps += 1
        logging.getLogger("remuda").disabled = False
        seconds = time.monotonic() - killed_at
        return (
            f"  worker 0 (pid {pid}) died, and with it the episodes of envs {lost}: they ended truncated.\n"
            f"  After {seconds:.2f} s and {steps} steps a new worker (pid {victim.pid}) "
            f"steps these envs again; the episodes of the other {num_envs - len(lost)} continued."
        )
