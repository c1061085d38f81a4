"""Every accident in every phase, with its outcome by the tables of crash_matrix.py, shown in docs/faults.md."""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import accidents
import pytest
from accidents import once
from crash_matrix import DOCUMENT, OUTCOMES, ROWS, Outcome, Phase, Policy, Row, with_tables
from drawn import MINUTES
from failing import LIMIT, fault_in
from pairs import covering
from pool_envs import TextEnv, begun, counting, hooked
from programs import Script, collect, holdings
from wild_envs import WildTextEnv, overwrite_memory, write_to_socket

from remuda import (
    Batch,
    BrokenPoolError,
    CorruptReplyError,
    EnvError,
    EnvTimeoutError,
    Fault,
    FaultPolicy,
    Pool,
    StartTimeoutError,
    WorkerDiedError,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="worker processes need Linux")

ERRORS: dict[Outcome, type[Exception]] = {
    Outcome.DIED: WorkerDiedError,
    Outcome.RAISED: EnvError,
    Outcome.LATE: EnvTimeoutError,
    Outcome.NOT_BUILT: StartTimeoutError,
    Outcome.TRUNCATED_LATER_DIED: WorkerDiedError,
    Outcome.TRUNCATED_LATER_LATE: EnvTimeoutError,
    Outcome.EPISODE_GOES_ON: EnvError,
}

# For each phase: the hook, the operation in reports, the option that limits it, and the length of episodes.
DETAILS: dict[Phase, tuple[str, str, str, int]] = {
    Phase.BUILD: ("build", "build", "", 9),
    Phase.REBUILD: ("build", "build", "", 9),
    Phase.REBUILD_IN_PLACE: ("build", "build", "", 9),
    Phase.RESET: ("reset", "reset", "reset_timeout", 9),
    Phase.STEP: ("step", "step", "step_timeout", 9),
    Phase.AUTORESET: ("autoreset", "reset", "reset_timeout", 1),
    Phase.SAME_STEP: ("autoreset", "reset", "reset_timeout", 1),
    Phase.CALL: ("call", "call", "call_timeout", 9),
    Phase.RENDER: ("render", "call", "call_timeout", 9),
    Phase.CLOSE: ("close", "close", "", 9),
}
CALLS = (Phase.CALL, Phase.RENDER)
FRESH = [1, 1, 0, -1]  # env 1 after its first reset


# -- the accident ----------------------------------------------------------------------------------------


def build(row: Row, phase: Phase, policy: Policy, directory: Path) -> Pool:
    """Returns a pool of two envs. The accident happens once, in env 1."""
    hook, _, limit, length = DETAILS[phase]
    rebuilds = phase in (Phase.REBUILD, Phase.REBUILD_IN_PLACE)
    hooks = {hook: once(directory / "accident", row.act, skip=int(rebuilds))}
    if rebuilds:
        reason = accidents.kill_myself if phase is Phase.REBUILD else accidents.raise_value_error
        hooks["step"] = once(directory / "reason", reason)
    limits = {limit: LIMIT} if row.kind == "hang" and limit else {}
    build_limits = {Phase.BUILD: LIMIT, Phase.REBUILD: 2.0, Phase.REBUILD_IN_PLACE: 2.0}
    return Pool(
        hooked(2, length=length, **hooks),
        num_workers=2,
        autoreset="same_step" if phase is Phase.SAME_STEP else "next_step",
        faults=FaultPolicy(on_fault=policy, backoff=0, **limits),
        start_timeout=build_limits.get(phase) if row.kind == "hang" else None,
        log_advice=False,
    )


def run_into_accident(pool: Pool, phase: Phase) -> Any:
    batch = pool.reset()
    if phase is Phase.CALL:
        return pool.call("poke")
    if phase is Phase.RENDER:
        return pool.render()
    steps = {Phase.RESET: 0, Phase.STEP: 1, Phase.SAME_STEP: 1}.get(phase, 2)
    for _ in range(steps):
        batch = pool.step([5, 5])
    return batch


# -- its outcome -----------------------------------------------------------------------------------------


def check_report(error: Any, row: Row, phase: Phase) -> None:
    _, operation, limit, _ = DETAILS[phase]
    if row.kind == "exception":
        (failure,) = error.failures
        assert (failure.env_id, failure.worker, failure.operation) == (1, 1, operation)
        assert "accidents.py" in failure.traceback
    elif phase is not Phase.BUILD or row.kind != "hang":
        assert (error.worker, error.env_ids, error.operation) == (1, (1,), operation)
        assert error.exitcode not in (None, 0)
    if isinstance(error, EnvTimeoutError):
        assert (error.deadline, error.limit, error.exitcode) == (limit, LIMIT, -signal.SIGKILL)
    if not isinstance(error, StartTimeoutError):
        assert row.says in str(error)


def check_text(fault: str, row: Row, phase: Phase) -> None:
    """Checks the text of the fault in the log."""
    if phase is Phase.REBUILD and row.kind == "hang":
        assert fault == "worker 1 did not build its envs within 2.0 s; it is restarted at once"
    else:
        assert row.says in fault
        assert f"in {DETAILS[phase][1]}" in fault


def assert_env_0_works(pool: Pool) -> None:
    """Asserts that env 0 still works, in whatever state env 1 is."""
    if pool.pending:
        assert pool.recv().env_ids.tolist() == [0]
    assert pool.call("echo", 7, env_ids=[0]) == [((7,), {})]


def after_a_loss(pool: Pool) -> None:
    assert_env_0_works(pool)
    with pytest.raises(BrokenPoolError, match="env 1 was lost"):
        pool.step([1, 1])
    pool.reset(env_ids=[0])
    assert pool.step([2], env_ids=[0]).env_ids.tolist() == [0]


def after_an_exception(pool: Pool, phase: Phase) -> None:
    assert_env_0_works(pool)
    if phase in CALLS:  # the exception did not end the episode
        assert pool.step([5, 5]).obs[1].tolist() == [1, 1, 1, 5]
    assert pool.reset(env_ids=[1]).obs[0, 2:].tolist() == [0, -1]
    assert pool.call("poke", env_ids=[1]) == ["poked"]


def check_error(outcome: Outcome, row: Row, phase: Phase, act: Callable[[], Any]) -> None:
    with pytest.raises(ERRORS[outcome]) as raised:
        act()
    assert type(raised.value) is ERRORS[outcome]
    check_report(raised.value, row, phase)


def check_closing(row: Row, policy: Policy, directory: Path) -> None:
    pool = build(row, Phase.CLOSE, policy, directory)
    pool.reset()
    outcome = OUTCOMES[policy][row.kind][Phase.CLOSE]
    if outcome is Outcome.KILLED:
        pool.close(timeout=0.3)
        assert pool.workers[1].exitcode in (-signal.SIGTERM, -signal.SIGKILL)
    else:
        check_error(outcome, row, Phase.CLOSE, pool.close)
    assert pool.closed


def check_raising(pool: Pool, row: Row, phase: Phase) -> None:
    outcome = OUTCOMES["raise"][row.kind][phase]
    check_error(outcome, row, phase, lambda: run_into_accident(pool, phase))
    if outcome is Outcome.RAISED:
        after_an_exception(pool, phase)
    else:
        after_a_loss(pool)


def check_restarting(pool: Pool, row: Row, phase: Phase, caplog: pytest.LogCaptureFixture) -> None:
    outcome = OUTCOMES["restart"][row.kind][phase]
    if phase in CALLS:
        check_error(outcome, row, phase, lambda: run_into_accident(pool, phase))
        batch = pool.step([5, 5])
    else:
        batch = run_into_accident(pool, phase)
    if outcome is Outcome.EPISODE_GOES_ON:
        assert batch.obs.tolist() == [[0, 1, 1, 5], [1, 1, 1, 5]]
    elif outcome in (Outcome.REPEATED, Outcome.BUILT_AGAIN):
        assert batch.obs[1].tolist() == FRESH
        assert (batch.rewards[1], batch.truncations.any()) == (0, False)
    else:
        check_truncation(batch, row, phase)
        if phase is not Phase.SAME_STEP:
            batch = pool.step([6, 6])
            assert batch.obs[1].tolist() == FRESH
            assert (batch.rewards[1], batch.truncations.any()) == (0, False)
    # faults are logged as warnings; errors may be Python's own, about a simulator
    faults = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(faults) == {Outcome.EPISODE_GOES_ON: 0, Outcome.BUILT_AGAIN: 2}.get(outcome, 1)
    if faults:
        check_text(faults[-1], row, phase)
    assert pool.call("poke") == ["poked", "poked"]
    assert (pool.call("total_steps", env_ids=[0])[0] > 0) == (phase is not Phase.RESET)


def check_truncation(batch: Batch, row: Row, phase: Phase) -> None:
    assert (batch.rewards[1], batch.terminations[1], batch.truncations.tolist()) == (0, False, [False, True])
    last, info = batch.obs[1], batch.infos[1]
    if batch.final_obs is not None:
        assert last.tolist() == FRESH
        last, info = batch.final_obs[1], info["final_info"]
    assert list(last) == FRESH  # once more
    fault, kind = info["fault"], {"hang": "timeout"}.get(row.kind, row.kind)
    assert isinstance(fault, Fault)
    assert (fault.env_id, fault.kind, fault.operation, fault.shared) == (1, kind, DETAILS[phase][1], False)
    check_report(fault.error, row, phase)


# -- the tests -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fork_server() -> None:
    """Starts the fork server and leaves it running."""
    Pool(counting(1), num_workers=None).close()
    collect()


@pytest.fixture
def nothing_is_held(fork_server: None) -> Iterator[None]:
    before = holdings()
    yield
    collect()
    assert holdings() == before


# The tests cover each accident under each policy, and each cell of the document's tables. All other combinations are
# equivalent, because the pool's reaction depends only on the kind of accident. `make soak` has each accident in each
# phase.
CELLS = covering(
    [cell for cell in product(ROWS, Phase, OUTCOMES) if OUTCOMES[cell[2]][cell[0].kind][cell[1]] is not Outcome.NEVER],
    lambda cell: cell[:2] if MINUTES else (),
    lambda cell: (cell[0].kind, *cell[1:]),
    lambda cell: cell[::2],
)


@pytest.mark.parametrize(
    ("row", "phase", "policy"),
    [pytest.param(*cell, id=f"{cell[2]}-{cell[1].value}-{cell[0].act.__name__}".replace(" ", "_")) for cell in CELLS],
)
def test_an_accident_has_its_documented_outcome(
    row: Row,
    phase: Phase,
    policy: Policy,
    tmp_path: Path,
    nothing_is_held: None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    if phase is Phase.BUILD:
        outcome = OUTCOMES[policy][row.kind][phase]
        check_error(outcome, row, phase, lambda: build(row, phase, policy, tmp_path))
    elif phase is Phase.CLOSE:
        check_closing(row, policy, tmp_path)
    else:
        with build(row, phase, policy, tmp_path) as pool:
            if policy == "raise":
                check_raising(pool, row, phase)
            else:
                check_restarting(pool, row, phase, caplog)


def test_nothing_outlives_a_pool_whose_process_is_killed(script: Callable[..., Script]) -> None:
    """The watcher ends all workers and simulators in every phase, although the envs hang with the GIL."""
    program = script(ORPHANS)
    phases = program.read_line()
    assert {program.read_line() for _ in phases} == set(phases)
    assert len(program.family()) > 4 * len(phases)
    program.process.kill()
    assert program.await_end()[0] == -signal.SIGKILL


# A program with a pool for each phase in its own thread. Env 1 starts simulators, reports it, and hangs with the GIL.
ORPHANS = """
import accidents, simulators

def hang(phase):
    def hook(*_):
        simulators.in_a_session(), simulators.as_a_daemon()
        say(phase)
        accidents.hold_the_gil()
    return hook

def run(phase):
    pool = begun(hooked(2, **{phase: hang(phase)}), faults="restart")
    pool.step([1, 1])
    pool.close(timeout=1e6)

Pool(counting(1)).close()  # starts the fork server
phases = ["build", "reset", "step", "close"]
say(phases)
for phase in phases:
    threading.Thread(target=run, args=[phase]).start()
"""


def test_the_document_has_this_table() -> None:
    text = DOCUMENT.read_text()
    assert with_tables(text) == text, "run tests/crash_matrix.py"


# -- native code that overwrites the pool's shared memory, or writes to the worker's socket --------------


def test_a_worker_that_overwrote_memory_is_replaced(tmp_path: Path) -> None:
    wild = once(tmp_path / "wild", overwrite_memory, when=lambda env: env.steps == 2)
    with begun(hooked(2, step=wild), num_workers=1, faults="restart") as pool:
        pool.step([1, 1])
        batch = pool.step([2, 2])
        fault = fault_in(batch, 1)
        assert (fault.kind, type(fault.error), fault.error.env_ids) == ("corrupt", CorruptReplyError, (0, 1))
        assert "it wrote invalid data, and was killed" in str(fault)
        pool.reset()
        for i in range(1, 4):
            assert pool.step([i, i]).obs[:, 2:].tolist() == [[i, i]] * 2


def test_a_worker_with_a_corrupted_socket_is_replaced(tmp_path: Path) -> None:
    marker, text = str(tmp_path / "wild"), "x" * 3_000_000
    with begun([TextEnv, lambda: WildTextEnv(marker)], faults="restart") as pool:
        batch = pool.step(("a", text))
        fault = fault_in(batch, 1)
        assert (fault.kind, type(fault.error), fault.error.env_ids) == ("corrupt", CorruptReplyError, (1,))
        pool.step(("a", text))
        assert [len(obs) for obs in pool.step(("a", text)).obs] == [1, 3_000_000]


def test_a_socket_that_is_corrupted_while_envs_are_built() -> None:
    with pytest.raises(CorruptReplyError, match=r"^worker 1 .* in build"):
        Pool(hooked(2, build=write_to_socket), num_workers=None)
