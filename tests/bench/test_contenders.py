"""Every installed contender steps, reports its workers, and leaves nothing behind."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
from bench_fakes import COUNTING, CountingEnv
from gymnasium.vector.utils import batch_space
from harness import envs
from peers import PEERS, UNEVEN_PEERS
from peers.native import EnvPool
from peers.pufferlib import PufferLib, _puffer_workers
from peers.remuda_partial import RemudaPartial
from peers.tianshou import TianshouPartial
from peers.torchrl import TorchRLAsync, TorchRLParallel

from remuda._bench import registry
from remuda._bench.contenders import Contender, PlainLoop, Plan, Remuda
from remuda._bench.loops import LoopsAtOnce
from remuda._bench.registry import UnavailableError
from remuda._bench.workloads import Workload, probe_spaces, sample_actions

NUM_ENVS = 3
CARTPOLE = envs.WORKLOADS["cartpole"]()
LOCKSTEP = (RemudaPartial, TianshouPartial, PlainLoop, LoopsAtOnce)  # these contenders return no observations
ALL: list[type[Contender]] = [
    PlainLoop,
    Remuda,
    RemudaPartial,
    *dict.fromkeys([*PEERS.values(), *UNEVEN_PEERS.values()]),
]


def plan(workload: Workload, **options: object) -> Plan:
    return Plan(workload, NUM_ENVS, num_workers=1, **options)  # type: ignore[arg-type]


@pytest.fixture(params=ALL, ids=lambda kind: kind.__name__)
def kind(request: pytest.FixtureRequest) -> type[Contender]:
    contender: type[Contender] = request.param
    if not contender.is_installed():
        pytest.skip(f"{contender.package} is not installed")
    if not contender.is_for(CARTPOLE):
        pytest.skip("has envs of its own, and no CartPole")
    return contender


@pytest.fixture
def contender(kind: type[Contender]) -> Iterator[Contender]:
    with closing(kind(plan(CARTPOLE))) as contender:
        contender.reset(seed=0)
        contender.begin_turn(seed=0)
        yield contender


def test_every_contender_can_step(contender: Contender) -> None:
    actions = sample_actions(probe_spaces(contender.workload).action_space, NUM_ENVS, count=40, seed=0)
    for batch in actions.batches:
        contender.step(contender.prepare(actions.space, batch))


def test_every_contender_returns_observations_rewards_and_dones(kind: type[Contender]) -> None:
    """The action is constant, so the pole falls in every env and episodes end."""
    if kind in LOCKSTEP:
        pytest.skip("has no policy in its loop")
    with closing(kind(plan(CARTPOLE, start_method="fork"))) as contender:
        contender.reset(seed=0)
        ended = np.zeros(NUM_ENVS, int)
        for _ in range(30):
            first = 0
            for part in contender.parts:
                rows = slice(first, first := first + len(part.observations()))
                assert np.isfinite(part.observations()).all()
                part.send(np.ones(rows.stop - rows.start, np.int64))
            first = 0
            for part in contender.parts:
                rewards = np.asarray(part.finish(), float).reshape(-1)
                rows = slice(first, first := first + len(rewards))
                assert part.dones().shape == rewards.shape
                assert set(rewards) <= {0.0, 1.0}
                ended[rows] += part.dones()
        assert (ended >= 2).all()


def test_loops_at_once_count_their_steps() -> None:
    with closing(LoopsAtOnce(plan(COUNTING, loops=2))) as loops:
        loops.reset(seed=0)
        assert loops.step(None) >= 2 * 64
        assert len(loops.worker_pids()) == 2


def test_contenders_that_cannot_race_are_left_out_by_name() -> None:
    kinds, left_out = registry.available(["gymnasium-sync", "ale-vector", "no-such"], PEERS, COUNTING)
    assert [kind.name for kind in kinds] == ["gymnasium-sync"]
    assert len(left_out) == 2
    assert "unknown peer 'no-such'" in left_out[1]


def test_workers_live_until_the_contender_is_closed(kind: type[Contender]) -> None:
    contender = kind(plan(CARTPOLE, start_method="fork"))
    with closing(contender):
        contender.reset(seed=0)
        pids = contender.worker_pids()
        assert all(map(is_running, pids))
    assert os.getpid() not in pids


def is_running(pid: int) -> bool:
    os.kill(pid, 0)
    return True


@pytest.mark.parametrize(
    ("name", "workers"),
    [
        ("remuda", 1),
        ("remuda-per-env", 3),
        ("remuda-sb3", 1),
        ("remuda-sb3-per-env", 3),
        ("remuda-sb3-auto", 0),  # the caller steps cheap envs
        ("remuda-gymnasium-auto", 0),
        ("gymnasium", 3),
        ("gymnasium-sync", 0),
        ("plain loop", 0),
    ],
)
def test_contenders_report_their_number_of_workers(name: str, workers: int) -> None:
    kind = next(kind for kind in ALL if kind.name == name)
    with closing(kind(plan(COUNTING))) as contender:
        contender.reset(seed=0)
        assert len(set(contender.worker_pids())) == workers


def test_the_plain_loop_resets_instead_of_stepping() -> None:
    envs: list[CountingEnv] = []

    def make_env() -> CountingEnv:
        envs.append(CountingEnv())
        return envs[-1]

    loop = PlainLoop(plan(Workload("counting", make_env)))
    loop.reset(seed=0)
    for actions in ([0, 0, 0], [0, 0]):
        loop.step(actions)
    assert envs[0].calls == ["reset", "step", "step", "step", "reset", "step"]


def test_the_plain_loop_takes_whole_periods_and_counts_no_resets() -> None:
    workload = replace(COUNTING, period=4)  # an episode has three steps and a reset
    loop = PlainLoop(plan(workload))
    loop.reset(seed=0)
    actions = loop.prepare(batch_space(CountingEnv.action_space, 5), np.arange(5) % 3)
    assert actions == [0, 1, 2, 0, 1, 0, 1, 2]
    assert loop.step(actions) == 6


def test_the_info_key_is_read_from_every_contender(kind: type[Contender]) -> None:
    workload = Workload("counting", CountingEnv, info_key="phase")
    if kind in (PufferLib, TorchRLParallel, TorchRLAsync, EnvPool):
        pytest.skip("passes on numbers only, or none")
    # `test_every_contender_can_step` covers the default start method
    with closing(kind(plan(workload, start_method="fork"))) as contender:
        contender.reset(seed=0)
        contender.begin_turn(seed=0)
        actions = sample_actions(CountingEnv.action_space, NUM_ENVS, count=8, seed=0)
        for batch in actions.batches:
            contender.step(contender.prepare(actions.space, batch))


@pytest.mark.parametrize(
    ("num_envs", "num_workers", "cores", "expected"), [(8, 2, 2, 1), (8, 4, 4, 2), (9, 4, 8, 3), (7, 2, 1, 1)]
)
def test_pufferlib_gets_workers_that_share_evenly_and_leave_its_parent_a_core(
    num_envs: int, num_workers: int, cores: int, expected: int
) -> None:
    assert _puffer_workers(Plan(COUNTING, num_envs, num_workers), cores) == expected


def test_the_line_up_has_each_contender_once() -> None:
    kinds = registry.line_up(["gymnasium-sync", "gymnasium", "gymnasium-sync"])
    assert [kind.name for kind in kinds] == ["plain loop", "remuda", "gymnasium-sync", "gymnasium"]


def test_the_error_for_an_unknown_peer_lists_the_known_ones() -> None:
    with pytest.raises(UnavailableError, match=r"unknown peer 'gym': expected one of .*gymnasium"):
        registry.line_up(["gym"])


def test_a_peer_that_is_not_installed_names_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PEERS["sb3"], "module", "no_such_module.at_all")
    with pytest.raises(UnavailableError, match='pip install "stable-baselines3"'):
        registry.line_up(["sb3"])
