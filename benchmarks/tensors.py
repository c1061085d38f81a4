"""Measures the cost of getting a batch to the learner: CPU time, tensors on the CPU, and copies to a GPU.

    driver  CPU seconds of this process for each env step
    share   making torch tensors of a batch on the CPU
    cuda    bytes a second of `batch.to` and `rollout.to`, beside a bare copy from page-locked memory

Without a CUDA device "cuda" is left out. `rollouts.py` measures how a rollout becomes one array. Needs torch.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from statistics import median
from typing import Any

import numpy as np
from harness.envs import NullEnv
from harness.options import parse_options
from harness.session import Session
from harness.tables import Block, conditions, figure, table
from rollouts import ImageEnv

import remuda

try:
    import torch
except ModuleNotFoundError:
    sys.exit("this measures tensors: pip install torch")

AT_ONCE = 4
"""The number of copies to a GPU that are under way at the same time."""
Work = Callable[[], Any]
Rows = Iterator[list[str]]
Clock = Callable[[], float]
Seconds = dict[str, float]


def seconds_of(what: str, ways: Mapping[str, Work], session: Session, clock: Clock = time.perf_counter) -> Seconds:
    """Returns the seconds that ``clock`` measures for one call of each of ``ways``: medians of interleaved rounds."""
    seconds = session.options.seconds / session.options.rounds
    for work in ways.values():
        mean_seconds(work, seconds, clock)  # warms up
    found = session.rounds(what, {name: partial(mean_seconds, work, seconds, clock) for name, work in ways.items()})
    return {name: median(each) for name, each in found.items()}


def mean_seconds(work: Work, seconds: float, clock: Clock) -> float:
    begin, calls, until = clock(), 0, time.perf_counter() + seconds
    while not calls or time.perf_counter() < until:
        work()
        calls += 1
    return (clock() - begin) / calls


# -- the CPU time of this process ------------------------------------------------------------------------


def driver(session: Session) -> Rows:
    yield ["stepping envs that do nothing", "us of CPU an env step"]
    for name, envs, way in (
        ("8 envs, `step`", 8, in_lockstep),
        ("64 envs, `step`", 64, in_lockstep),
        ("8 envs, `recv(min_envs=1)` and `send`", 8, as_they_come),
        ('8 envs with images, `step` and `batch.to("cpu")`', 8, with_images),
    ):
        make_env = ImageEnv if way is with_images else NullEnv
        with remuda.Pool([make_env] * envs, num_workers=session.options.num_workers, log_advice=False) as pool:
            pool.reset()
            work, steps = way(pool)
            seconds = seconds_of(name, {name: work}, session, time.process_time)[name]
            yield [name, figure(1e6 * seconds / steps)]
            pool.discard()


def in_lockstep(pool: remuda.Pool) -> tuple[Work, int]:
    actions = np.zeros(pool.num_envs, np.int64)
    return lambda: pool.step(actions).obs, pool.num_envs


def with_images(pool: remuda.Pool) -> tuple[Work, int]:
    actions = np.zeros(pool.num_envs, np.int64)
    return lambda: pool.step(actions).to("cpu"), pool.num_envs


def as_they_come(pool: remuda.Pool) -> tuple[Work, int]:
    """Returns a function with 1024 env steps, like TorchRL's `test_async_env_pool_dispatch`, and the number 1024."""
    actions = np.zeros(pool.num_envs, np.int64)
    pool.send(actions)

    def work() -> None:
        done = 0
        while done < 1024:
            batch = pool.recv(min_envs=1)
            batch.obs  # noqa: B018 - a policy would read it
            pool.send(actions[: len(batch)], batch.env_ids)
            done += len(batch)

    return work, 1024


# -- tensors on the CPU ----------------------------------------------------------------------------------


def share(session: Session) -> Rows:
    yield ["a batch of 64 images as tensors on the CPU", "us", "GB/s"]
    with remuda.Pool([ImageEnv] * 64, num_workers=session.options.num_workers, log_advice=False) as pool:
        batch = pool.reset()
        ways: dict[str, Work] = {
            "`torch.from_numpy(batch.obs)`: shared": lambda: torch.from_numpy(batch.obs),
            '`batch.to("cpu")`: seven columns, shared': lambda: batch.to("cpu"),
            "`torch.tensor(batch.obs)`: copied": lambda: torch.tensor(batch.obs),
            "`torch.as_tensor(np.stack(list of rows))`: copied": lambda: torch.as_tensor(np.stack(list(batch.obs))),
        }
        for name, seconds in seconds_of("share", ways, session).items():
            is_copied = "copied" in name
            yield [name, figure(1e6 * seconds), figure(batch.obs.nbytes / seconds / 1e9) if is_copied else ""]


# -- copies to a GPU -------------------------------------------------------------------------------------


def cuda(session: Session) -> Rows:
    yield [f"to {torch.cuda.get_device_name()}", "GB/s", "of the bare copy"]
    with remuda.Pool([ImageEnv] * 256, num_workers=session.options.num_workers, log_advice=False) as pool:
        batch = pool.reset()
        plain, device = torch.tensor(batch.obs), torch.empty(batch.obs.shape, dtype=torch.uint8, device="cuda")
        pinned, rollout = plain.pin_memory(), pool.rollout(16)
        for step in rollout:
            step.act(np.zeros(256, np.int64))
        bare = "a bare copy from page-locked memory"
        ways: dict[str, tuple[Work, int]] = {
            bare: (lambda: device.copy_(pinned, non_blocking=True), plain.nbytes),
            "`batch.to`": (lambda: batch.to("cuda", non_blocking=True), plain.nbytes),
            "`rollout.to`": (lambda: rollout.to("cuda", non_blocking=True), rollout.obs.nbytes),
            "a copy from plain memory": (lambda: device.copy_(plain, non_blocking=True), plain.nbytes),
            "`pin_memory()`, and a copy": (lambda: plain.pin_memory().to("cuda", non_blocking=True), plain.nbytes),
        }
        seconds = seconds_of("cuda", {name: partial(several, way) for name, (way, _) in ways.items()}, session)
    found = {name: AT_ONCE * size / seconds[name] / 1e9 for name, (_, size) in ways.items()}
    for name, rate in found.items():
        yield [name, figure(rate), f"{rate / found[bare]:.2f}"]


def several(way: Work) -> None:
    """Starts `AT_ONCE` copies, as a running loop does, and waits until the GPU has finished them."""
    for _ in range(AT_ONCE):
        way()
    torch.cuda.synchronize()


# -- the program -----------------------------------------------------------------------------------------

SECTIONS: dict[str, Callable[[Session], Rows]] = {
    "driver": driver,
    "share": share,
    "cuda": cuda,
}


def markdown(session: Session) -> Iterator[Block]:
    options = session.options
    for _, (first, *rows) in session.measured(sections(session), lambda name: list(SECTIONS[name](session))):
        yield table(first, rows)
    yield (
        f"{conditions(options.rounds, options.seconds)} {options.num_workers} workers, torch {torch.__version__}. "
        "CPU time includes the spinning of this process, and none of the workers."
    )


def sections(session: Session) -> Iterator[str]:
    for name in session.options.only:
        if name == "cuda" and not torch.cuda.is_available():
            session.leave_out(["cuda: there is no CUDA device here, so copies to one were not measured"])
        else:
            yield name


def add_workers(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--num-workers", type=int, default=2)


def main() -> None:
    options = parse_options(__doc__, workloads=SECTIONS, seconds=5.0, quick=0.5, rounds=5, json=False, more=add_workers)
    torch.set_num_threads(1)
    session = Session(options)
    session.publish("tensors", markdown(session))


if __name__ == "__main__":
    main()
