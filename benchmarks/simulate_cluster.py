"""A simulation of rollouts on a large cluster: what cannot be measured on one machine.

    python benchmarks/simulate_cluster.py                      the table of docs/scaling.md
    python benchmarks/simulate_cluster.py --nodes 300 --tree   one cluster of another size, with a tree of drivers

Nothing here is measured. Each shard fills rollouts of T steps of n envs; a driver takes them one by one, as
`Pool.rollouts` does, and asks for the next. A shard's time varies: steps have a spread, and now and then there is a
straggler. Nodes fail at random, their rollouts under way are lost, and their shards come back elsewhere. What a driver
does for each rollout takes it some time, and its link has so much bandwidth: these two are what saturates. With --tree
drivers have drivers: each takes the rollouts of some shards, and hands their learner one message for many, by
reference.

The costs are arguments; those that stand here are of the order of what
`ray_shards.py` has measured on two busy cores.
"""

from __future__ import annotations

import argparse
import heapq
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tables import head, row


@dataclass(frozen=True)
class Setting:
    """A cluster, and what things take there. Times in seconds, sizes in bytes.

    Attributes:
        nodes, envs_per_node: One shard a node.
        steps: T of a rollout.
        step: Of all envs of a shard once, policy included.
        spread: Of that, as a share; the standard deviation of a rollout.
        straggler: How often a rollout takes ten times as long.
        row_bytes: Of one env and step: observation, action, reward, flags.
        driver: Its time for a rollout: taking it, asking for the next, accounting.
        bandwidth: Into the driver's machine, a second; 0: rollouts stay where they are, and learners read there.
        latency: Of a message.
        in_flight: Rollouts of each shard.
        failures: Of a node, a second.
        rebuild: From its failure until its shard fills rollouts again, the time to notice it counted.
        branches: Shards that a driver below the top takes care of; None: there is one driver for all.
    """

    nodes: int = 1000
    envs_per_node: int = 100
    steps: int = 128
    step: float = 0.005
    spread: float = 0.1
    straggler: float = 0.001
    row_bytes: int = 100
    driver: float = 0.002
    bandwidth: float = 1.25e9
    latency: float = 0.0005
    in_flight: int = 2
    failures: float = 1 / (30 * 86400)
    rebuild: float = 30.0
    branches: int | None = None

    @property
    def ideal(self) -> float:
        """Env steps a second, if all envs did nothing but step."""
        return self.nodes * self.envs_per_node / self.step


@dataclass(frozen=True)
class Outcome:
    """What came of it.

    Attributes:
        rate: Env steps a second that reached the learner.
        of_ideal: The same as a share of what the envs could do.
        driver_busy: The share of its time in which the busiest driver worked.
        age: Seconds from a rollout's end until the learner had it: the median, and 99 of 100.
        lost: The share of steps that failures have cost.
    """

    rate: float
    of_ideal: float
    driver_busy: float
    age: tuple[float, float]
    lost: float


class Server:
    """Serves one after another: a driver, or a link."""

    def __init__(self) -> None:
        self.free_at = self.busy = 0.0

    def serve(self, now: float, seconds: float) -> float:
        """When it is done with what comes now."""
        self.free_at = max(now, self.free_at) + seconds
        self.busy += seconds
        return self.free_at


class Simulation:
    """Events in the order of their times: a rollout is done, a node has failed."""

    def __init__(self, setting: Setting, seed: int = 0) -> None:
        self.setting, self._random = setting, random.Random(seed)
        count = 1 if setting.branches is None else -(-setting.nodes // setting.branches)
        self._drivers, self._top, self._link = [Server() for _ in range(count)], Server(), Server()
        self._events: list[tuple[float, int, int, int]] = []  # when, number, node, its life
        self._number = 0
        self._life = [0] * setting.nodes
        self._waiting = [setting.in_flight] * setting.nodes  # rollouts that a node was asked for, and has not begun
        self._runs = [False] * setting.nodes
        self._ages: list[float] = []
        self._taken: list[float] = []  # when rollouts were
        self._lost = 0.0

    def run(self, seconds: float) -> Outcome:
        setting = self.setting
        for node in range(setting.nodes):
            self._begin(0.0, node)
        failing = self._failure_times(seconds)
        while self._events and self._events[0][0] < seconds:
            now, _, node, life = heapq.heappop(self._events)
            while failing and failing[-1][0] <= now:
                self._fail(*failing.pop())
            if life < 0:
                self._freed(now, node, -life - 1)
            elif life == self._life[node]:
                self._done(now, node)
        return self._outcome(seconds)

    def _failure_times(self, seconds: float) -> list[tuple[float, int]]:
        """The next one last."""
        setting = self.setting
        times = [
            (self._random.uniform(0, seconds), node)
            for node in range(setting.nodes)
            if self._random.random() < setting.failures * seconds
        ]
        return sorted(times, reverse=True)

    def _begin(self, now: float, node: int) -> None:
        if self._runs[node] or self._waiting[node] == 0:
            return  # it is at work, or the driver has not asked for another
        self._runs[node], self._waiting[node] = True, self._waiting[node] - 1
        setting = self.setting
        takes = setting.steps * setting.step * max(0.1, self._random.gauss(1.0, setting.spread))
        if self._random.random() < setting.straggler:
            takes *= 10
        self._push(now + takes, node, self._life[node])

    def _push(self, when: float, node: int, life: int) -> None:
        self._number += 1
        heapq.heappush(self._events, (when, self._number, node, life))

    def _done(self, now: float, node: int) -> None:
        """A rollout is there: it goes to its driver, and the node begins the next one that it was asked for."""
        setting = self.setting
        arrived = now + setting.latency
        driver = self._drivers[node // setting.branches if setting.branches else 0]
        taken = driver.serve(arrived, setting.driver)
        if setting.branches is not None:  # one message of its driver for many
            taken = self._top.serve(taken + setting.latency, setting.driver / 16)
        if setting.bandwidth:
            size = setting.steps * setting.envs_per_node * setting.row_bytes
            taken = max(taken, self._link.serve(arrived, size / setting.bandwidth))
        self._ages.append(taken - now)
        self._taken.append(taken)
        self._push(taken + setting.latency, node, -self._life[node] - 1)  # it is asked for another
        self._runs[node] = False
        self._begin(now, node)

    def _freed(self, now: float, node: int, life: int) -> None:
        if life == self._life[node]:
            self._waiting[node] += 1
            self._begin(now, node)

    def _fail(self, when: float, node: int) -> None:
        self._life[node] += 1
        self._waiting[node] = self.setting.in_flight
        self._lost += self.setting.rebuild / self.setting.step * self.setting.envs_per_node
        self._lost += self.setting.steps * self.setting.envs_per_node / 2  # of what was under way
        self._runs[node] = True
        self._waiting[node] -= 1
        takes = self.setting.rebuild + self.setting.steps * self.setting.step
        self._push(when + takes, node, self._life[node])

    def _outcome(self, seconds: float) -> Outcome:
        setting, ages = self.setting, sorted(self._ages)
        rate = sum(when <= seconds for when in self._taken) * setting.steps * setting.envs_per_node / seconds
        busy = max([self._top.busy, *(driver.busy for driver in self._drivers)]) / seconds
        return Outcome(
            rate,
            rate / setting.ideal,
            min(1.0, busy),
            (ages[len(ages) // 2], ages[int(len(ages) * 0.99)]),
            self._lost / (setting.ideal * seconds),
        )


# -- the table ----------------------------------------------------------------------------------------------


def table(base: Setting, seconds: float) -> Iterator[str]:
    """What saturates, and what helps."""
    yield from head(
        [
            "nodes",
            "envs",
            "a step of a shard",
            "drivers",
            "of all steps",
            "busiest driver",
            "age p50",
            "age p99",
            "lost",
        ]
    )
    far, near = base.bandwidth, 0.0
    settings = [
        *(replace(base, nodes=nodes, bandwidth=far) for nodes in (10, 100, 300, 1000)),
        replace(base, bandwidth=near),
        replace(base, bandwidth=near, branches=100),
        replace(base, bandwidth=near, branches=100, step=0.02),
        replace(base, bandwidth=near, branches=100, straggler=0.02),
        replace(base, bandwidth=near, branches=100, failures=1 / 3600),
    ]
    for setting in settings:
        yield row(_cells(setting, Simulation(setting).run(seconds)))


def _cells(setting: Setting, outcome: Outcome) -> Iterator[str]:
    yield f"{setting.nodes:,}"
    yield f"{setting.nodes * setting.envs_per_node:,}"
    yield f"{setting.step * 1e3:g} ms"
    drivers = 1 if setting.branches is None else -(-setting.nodes // setting.branches)
    link = "" if setting.bandwidth else ", rollouts stay"
    notes = ", stragglers 2 %" if setting.straggler >= 0.02 else ""
    notes += ", a node fails each hour" if setting.failures >= 1 / 3600 else ""
    yield ("one" if setting.branches is None else f"a tree of {drivers}") + link + notes
    yield f"{outcome.of_ideal:.2f}"
    yield f"{outcome.driver_busy:.2f}"
    yield from (f"{age * 1e3:.3g} ms" for age in outcome.age)
    yield f"{outcome.lost:.2%}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="that are simulated (default: 60)")
    parser.add_argument("--nodes", type=int, help="one cluster of so many, instead of the table")
    parser.add_argument("--tree", action="store_true", help="with --nodes: drivers of 100 shards each, below another")
    parser.add_argument("--driver-ms", type=float, default=2.0, help="what a rollout takes a driver (default: 2)")
    options = parser.parse_args()
    base = Setting(driver=options.driver_ms / 1e3)
    if options.nodes is None:
        print("\n".join(table(base, options.seconds)))
        return
    one = replace(base, nodes=options.nodes, branches=100 if options.tree else None)
    print(Simulation(one).run(options.seconds))


if __name__ == "__main__":
    main()
