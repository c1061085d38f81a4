"""Every installed contender steps, reports its workers, and leaves nothing behind."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pytest
from bench_fakes import COUNTING, NotedEnv
from harness import envs
from harness.parts import dones, parts_of
from peers import PEERS, UNEVEN_PEERS, available
from peers.plain import IdealLoops
from peers.remuda_pools import RemudaPartial, UnevenPlan

from remuda._bench.contenders import Contender, PlainLoop, Plan, Remuda, UnavailableError, line_up
from remuda._bench.workloads import Workload

NUM_ENVS = 3
CARTPOLE = envs.WORKLOADS["cartpole"]()
PLAN = UnevenPlan(CARTPOLE, NUM_ENVS, num_workers=1, start_method="fork", min_envs=NUM_ENVS)
PARTIAL = [UNEVEN_PEERS[name] for name in ("tianshou", "torchrl-queue", "torchrl-shm")]
WITHOUT_ROWS = (PlainLoop, IdealLoops, RemudaPartial, *PARTIAL)  # these return no rows for a policy
ALL = [PlainLoop, Remuda, RemudaPartial, *dict.fromkeys([*PEERS.values(), *UNEVEN_PEERS.values()])]


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_every_contender_steps(kind: type[Contender]) -> None:
    """The action is constant, so the pole falls in every env and episodes end."""
    if not kind.is_installed() or available([kind.name], {kind.name: kind}, CARTPOLE)[1]:
        pytest.skip(f"{kind.package} is not installed, or has no CartPole")
    with closing(kind(PLAN)) as contender:
        contender.reset(seed=0)
        contender.begin_turn()
        parts = parts_of(contender)
        ended = np.zeros(NUM_ENVS, int)
        for _ in range(30):
            if kind in WITHOUT_ROWS:
                assert contender.step(np.ones(NUM_ENVS, np.int64)) >= 1
                continue
            first = 0
            for part in parts:
                assert np.isfinite(part.obs).all()
                part.send(np.ones(len(part.obs), np.int64))
            for part in parts:
                rows = slice(first, first := first + part.finish())
                assert set(np.asarray(part.rewards, float).reshape(-1)) <= {0.0, 1.0}
                ended[rows] += dones(part)
        assert kind in WITHOUT_ROWS or (ended >= 2).all()


@pytest.mark.parametrize(
    ("name", "workers"),
    [("remuda-1-per-env", 3), ("remuda-sb3", 1), ("remuda-gymnasium-auto", 0), ("gymnasium", 3), ("ideal-loops", 1)],
)
def test_contenders_report_their_workers(name: str, workers: int) -> None:
    with closing(PEERS[name](Plan(COUNTING, NUM_ENVS, num_workers=1))) as contender:
        contender.reset(seed=0)
        assert len(set(contender.worker_pids())) == workers


def test_the_plain_loop_resets_instead_of_stepping() -> None:
    made = [NotedEnv() for _ in range(NUM_ENVS)]
    loop = PlainLoop(Plan(Workload("counting", iter(made).__next__), NUM_ENVS, num_workers=1))
    loop.reset(seed=0)
    assert [loop.step(actions) for actions in ([0, 0, 0], [0, 0])] == [3, 2]
    assert made[0].calls == ["reset", "step", "step", "step", "reset", "step"]


def test_the_line_up_has_each_contender_once_and_leaves_out_those_that_cannot_race() -> None:
    kinds = line_up(["sb3", "gymnasium", "sb3"])
    assert [kind.name for kind in kinds] == ["plain loop", "remuda", "sb3", "gymnasium"]
    kinds, left_out = available(["gymnasium-sync", "ale-vector", "no-such"], PEERS, COUNTING)
    assert [kind.name for kind in kinds] == ["gymnasium-sync"] and len(left_out) == 2


@pytest.mark.parametrize(
    ("name", "message"),
    [("gym", "unknown peer 'gym': expected one of gymnasium, sb3"), ("sb3", 'pip install "stable-baselines3"')],
)
def test_unavailable_peers_are_named(name: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PEERS["sb3"], "module", "no_such_module.at_all")
    with pytest.raises(UnavailableError, match=message):
        line_up([name])
