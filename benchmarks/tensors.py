"""What a batch's way to the learner costs: as tensors on the CPU, to a GPU, and in CPU time of this process.

    driver      CPU seconds of this process for each env step
    share       making torch tensors of a batch on the CPU
    assemble    having a rollout of images as one tensor on the CPU, by who assembles it
    cuda        bytes a second of `batch.to` and `rollout.to`, beside a bare copy from page-locked memory

The last is left out, and said to be, where there is no CUDA device. Needs torch.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from statistics import median
from typing import Any, ClassVar

import gymnasium
import numpy as np
from rollouts import ImageEnv
from script import publish_lines
from tables import figure, head, row

import remuda
from remuda._system import machine

try:
    import torch
except ModuleNotFoundError:
    sys.exit("this measures tensors: pip install torch")

AT_ONCE = 4  # copies to a GPU that are under way
Work = Callable[[], Any]
Rows = Iterator[list[str]]
Clock = Callable[[], float]
Seconds = dict[str, float]


class NullEnv(gymnasium.Env[Any, Any]):
    """Its steps take no time."""

    metadata: ClassVar[dict[str, Any]] = {}
    observation_space = gymnasium.spaces.Box(-1, 1, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    obs = np.zeros(4, np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        return self.obs, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.obs, 1.0, False, False, {}


def measured(work: Work, options: argparse.Namespace, clock: Clock = time.perf_counter) -> float:
    """Seconds of a call by this clock: the median of some rounds, after one that warms up."""
    return interleaved({"": work}, options, clock)[""]


def interleaved(ways: Mapping[str, Work], options: argparse.Namespace, clock: Clock = time.perf_counter) -> Seconds:
    """The same of several, which take turns: a machine that is slow for a while is slow for all of them."""
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(options.rounds + 1):
        for name, work in ways.items():
            begin, calls, until = clock(), 0, time.perf_counter() + options.seconds
            while not calls or time.perf_counter() < until:
                work()
                calls += 1
            found[name].append((clock() - begin) / calls)
    return {name: median(rounds[1:]) for name, rounds in found.items()}


# -- the CPU time of this process ------------------------------------------------------------------------


def driver(options: argparse.Namespace) -> Rows:
    yield ["stepping envs that do nothing", "us of CPU an env step"]
    for name, envs, way in (
        ("8 envs, `step`", 8, in_lockstep),
        ("64 envs, `step`", 64, in_lockstep),
        ("8 envs, `recv(min_envs=1)` and `send`", 8, as_they_come),
        ('8 envs with images, `step` and `batch.to("cpu")`', 8, with_images),
    ):
        seconds, steps = way(envs, options)
        yield [name, figure(1e6 * seconds / steps)]


def in_lockstep(envs: int, options: argparse.Namespace) -> tuple[float, int]:
    with remuda.Pool([NullEnv] * envs, num_workers=options.num_workers, advise=False) as pool:
        pool.reset()
        actions = np.zeros(envs, np.int64)
        return measured(lambda: pool.step(actions).obs, options, time.process_time), envs


def as_they_come(envs: int, options: argparse.Namespace) -> tuple[float, int]:
    """1024 env steps, as a round of TorchRL's `test_async_env_pool_dispatch` has them."""
    with remuda.Pool([NullEnv] * envs, num_workers=options.num_workers, advise=False) as pool:
        pool.reset()
        actions = np.zeros(envs, np.int64)
        pool.send(actions)

        def some() -> None:
            done = 0
            while done < 1024:
                batch = pool.recv(min_envs=1)
                batch.obs  # noqa: B018 - what a policy would read
                pool.send(actions[: len(batch)], batch.env_ids)
                done += len(batch)

        seconds = measured(some, options, time.process_time)
        pool.recv()
        return seconds, 1024


def with_images(envs: int, options: argparse.Namespace) -> tuple[float, int]:
    with remuda.Pool([ImageEnv] * envs, num_workers=options.num_workers, advise=False) as pool:
        pool.reset()
        actions = np.zeros(envs, np.int64)
        return measured(lambda: pool.step(actions).to("cpu"), options, time.process_time), envs


# -- on the CPU ------------------------------------------------------------------------------------------


def share(options: argparse.Namespace) -> Rows:
    yield ["a batch of 64 images as tensors on the CPU", "us", "GB/s"]
    with remuda.Pool([ImageEnv] * 64, num_workers=options.num_workers, advise=False) as pool:
        batch = pool.reset()
        ways: dict[str, Work] = {
            "`torch.from_numpy(batch.obs)`: shared": lambda: torch.from_numpy(batch.obs),
            '`batch.to("cpu")`: seven columns, shared': lambda: batch.to("cpu"),
            "`torch.tensor(batch.obs)`: copied": lambda: torch.tensor(batch.obs),
            "`torch.as_tensor(np.stack(list of rows))`: copied": lambda: torch.as_tensor(np.stack(list(batch.obs))),
        }
        for name, seconds in interleaved(ways, options).items():
            is_copied = "copied" in name
            yield [name, figure(1e6 * seconds), figure(batch.obs.nbytes / seconds / 1e9) if is_copied else ""]


def assemble(options: argparse.Namespace) -> Rows:
    yield [f"a rollout of {options.steps} steps of 64 images as one tensor", "ms", "ms more than steps alone"]
    with remuda.Pool([ImageEnv] * 64, num_workers=options.num_workers, advise=False) as pool:
        pool.reset()
        steps, actions = options.steps, np.zeros(64, np.int64)
        place = torch.empty((steps, 64, 84, 84, 4), dtype=torch.uint8)

        def rollout() -> Any:
            filled = pool.rollout(steps)
            for step in filled:
                step.act(actions)
            return filled.to("cpu").obs[:-1]

        def stack() -> Any:
            return torch.stack([torch.from_numpy(pool.step(actions).obs.copy()) for _ in range(steps)])

        def assign() -> Any:
            for t in range(steps):
                place[t] = torch.from_numpy(pool.step(actions).obs)
            return place

        ways: dict[str, Work] = {
            "steps alone, nothing kept": lambda: [pool.step(actions) for _ in range(steps)][-1:],
            '`pool.rollout` and `.to("cpu")`': rollout,
            "assigned to a tensor, row by row": assign,
            "a list of copies, and `torch.stack`": stack,
        }
        found = interleaved(ways, options)
    alone = found["steps alone, nothing kept"]
    for name, seconds in found.items():
        yield [name, figure(1e3 * seconds), figure(1e3 * (seconds - alone))]


# -- to a GPU --------------------------------------------------------------------------------------------


def cuda(options: argparse.Namespace) -> Rows:
    yield [f"to {torch.cuda.get_device_name()}", "GB/s", "of the bare copy"]
    with remuda.Pool([ImageEnv] * 256, num_workers=options.num_workers, advise=False) as pool:
        batch = pool.reset()
        plain, device = torch.tensor(batch.obs), torch.empty(batch.obs.shape, dtype=torch.uint8, device="cuda")
        pinned, rollout = plain.pin_memory(), pool.rollout(16)
        for step in rollout:
            step.act(np.zeros(256, np.int64))
        ways: dict[str, tuple[Work, int]] = {
            "a bare copy from page-locked memory": (lambda: device.copy_(pinned, non_blocking=True), plain.nbytes),
            "`batch.to`": (lambda: batch.to("cuda", non_blocking=True), plain.nbytes),
            "`rollout.to`": (lambda: rollout.to("cuda", non_blocking=True), rollout.obs.nbytes),
            "a copy from plain memory": (lambda: device.copy_(plain, non_blocking=True), plain.nbytes),
            "`pin_memory()`, and a copy": (lambda: plain.pin_memory().to("cuda", non_blocking=True), plain.nbytes),
        }
        seconds = interleaved({name: awaited(way) for name, (way, _) in ways.items()}, options)
    found = {name: AT_ONCE * size / seconds[name] / 1e9 for name, (_, size) in ways.items()}
    bare = found["a bare copy from page-locked memory"]
    for name, rate in found.items():
        yield [name, figure(rate), f"{rate / bare:.2f}"]


def awaited(way: Work) -> Work:
    """Some copies under way at once, as in a loop that goes on; then the GPU is through with them."""

    def work() -> None:
        for _ in range(AT_ONCE):
            way()
        torch.cuda.synchronize()

    return work


# -- the program -----------------------------------------------------------------------------------------

SECTIONS: dict[str, Callable[[argparse.Namespace], Rows]] = {
    "driver": driver,
    "share": share,
    "assemble": assemble,
    "cuda": cuda,
}


def markdown(options: argparse.Namespace) -> Iterator[str]:
    for name in options.only:
        if name == "cuda" and not torch.cuda.is_available():
            yield "There is no CUDA device here: copies to one were not measured.\n"
            continue
        print(f"{name} ...", file=sys.stderr, flush=True)
        first, *rest = SECTIONS[name](options)
        yield from head(first)
        yield from map(row, rest)
        yield ""
    yield (
        f"{machine.describe()}; {options.num_workers} workers, torch {torch.__version__}. Medians of {options.rounds} "
        f"rounds of {options.seconds:g} s. CPU time has what this process spins, and of no worker."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(SECTIONS), help=",".join(SECTIONS))
    parser.add_argument("--num-workers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=128, help="of a rollout (default: 128)")
    parser.add_argument("--seconds", type=float, default=1.0, help="of a round (default: 1)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--readme", action="store_true", help="put the tables into README.md beside this file")
    options = parser.parse_args()
    if unknown := set(options.only) - set(SECTIONS):
        parser.error(f"expected --only to name {', '.join(SECTIONS)}, got {', '.join(sorted(unknown))}")
    torch.set_num_threads(1)
    publish_lines("tensors", markdown(options), options)


if __name__ == "__main__":
    main()
