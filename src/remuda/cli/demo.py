"""``remuda demo``: a race with Gymnasium, and a killed worker of both."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import textwrap
from typing import TYPE_CHECKING, Literal

from remuda._bench import workloads
from remuda._bench.contenders import Plan, line_up
from remuda._system.cores import usable_cores
from remuda._system.machine import backend_here

from .bench import race_and_show
from .options import add_subcommand, at_least

if TYPE_CHECKING:
    from .options import Subcommands

_ENV = "CartPole-v1"
_MORE_STEPS = 100
_BACKEND = backend_here(warns=False)


def add_to(subcommands: Subcommands) -> None:
    """Describe the subcommand's options."""
    parser = add_subcommand(subcommands, demo, "demo")
    add = parser.add_argument
    add("--seconds", type=at_least(0.01, float), default=3.0, metavar="S", help="seconds for a contender (default: 3)")
    add("--num-envs", "-n", type=at_least(2), default=64, metavar="N", help="CartPoles to step (default: 64)")


def demo(options: argparse.Namespace) -> int:
    """Show remuda at work: CartPoles beside Gymnasium's AsyncVectorEnv, and a killed worker of both."""
    workers = min(options.num_envs, usable_cores())
    plan = Plan(workloads.resolve(_ENV), options.num_envs, workers, _BACKEND)
    result = race_and_show(line_up(["gymnasium"]), plan, options.seconds)
    if _BACKEND == "process" and result.remuda.error is None:
        print("\nFour CartPoles have a worker each. Worker 2 is killed with SIGKILL; the next step:")
        kill_a_worker()
    print("\nYour own env: remuda bench mymodule:make_env --num-envs 64")
    return 0 if result.remuda.error is None else 1


def kill_a_worker(killed: int = 2) -> None:
    """Kill a worker of Gymnasium and of remuda, and print the outcome of the next step."""
    import gymnasium
    import numpy as np
    from gymnasium.vector import AsyncVectorEnv

    import remuda

    def show(name: str, outcome: str) -> None:
        print(textwrap.fill(f"{name:<18}{outcome}", 78, subsequent_indent=" " * 18), flush=True)

    env_fns, actions = [lambda: gymnasium.make(_ENV)] * 4, np.zeros(4, np.int64)
    envs = AsyncVectorEnv(env_fns)
    envs.reset(seed=0)
    process = envs.processes[killed]
    process.kill()
    process.join()
    try:
        show("gymnasium", f"truncations {envs.step(actions)[3].tolist()}")
    except (OSError, EOFError) as error:
        show("gymnasium", f"{type(error).__name__}: {error}")
    envs.close(terminate=True)

    faults: tuple[Literal["raise", "restart"], ...] = ("raise", "restart")
    for policy in faults:
        name = "remuda" if policy == "raise" else f'remuda "{policy}"'
        with remuda.Pool(env_fns, num_workers=None, faults=policy) as pool:
            pool.reset(seed=0)
            pid = pool.workers[killed].pid
            assert pid is not None
            logging.getLogger("remuda").disabled = True  # a warning about the death that this program causes
            os.kill(pid, signal.SIGKILL)
            try:
                truncations = pool.step(actions).truncations.tolist()
                for _ in range(_MORE_STEPS):
                    pool.step(actions)
                show(name, f"truncations {truncations}; {_MORE_STEPS} more steps")
            except remuda.WorkerDiedError as error:
                show(name, f"{type(error).__name__}: {str(error).partition('SIGKILL')[0]}SIGKILL ...")
            finally:
                logging.getLogger("remuda").disabled = False
