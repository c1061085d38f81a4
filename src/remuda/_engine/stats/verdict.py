"""Finds the bottleneck of a pool from a snapshot of its figures, and suggests a change.

The time of a batch is divided into your program's own code, the pool's, and the wait for envs. If the wait is the
longest, the seconds that would be saved without it are estimated for each cause of waiting. The verdict names the cause
that costs most.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import Literal, TypeAlias

from remuda._engine.stats.batch_time import BatchTime, alone, step_cost, steps_seconds, stolen_share
from remuda._engine.stats.choice import WAKE_SECONDS, batch_seconds, best_num_workers, counted, in_turns
from remuda._engine.stats.durations import span
from remuda._engine.stats.setup import Setup
from remuda._engine.stats.snapshot import Snapshot
from remuda._wire.autoreset import AUTORESET_MODES
from remuda._worker.memory import in_words

_LEAST_BATCHES = 8  # the figures of fewer batches depend on chance.
_WORTH_NAMING = 0.15  # the least share of a batch's time that a finding must save
_MOST = 0.5
_SLOW = 1.5  # an env is slow if its steps take this many times as long as the others'.
_BUSY = 0.25  # the machine is busy if other programs use this many cores.
_MORE_THAN_A_CORE = 1.2  # the cores that one busy thread and its helpers use at most.
_PARTIAL, _OVERLAPPED = 0.7, 0.8  # the shares of estimated savings that remain in practice

Cause: TypeAlias = Literal[
    "unknown",
    "policy",
    "pool",
    "env step",
    "infos",
    "faults",
    "slow resets",
    "slow env",
    "stragglers",
    "too few workers",
    "too many workers",
    "busy machine",
]


@dataclass(frozen=True)
class Verdict:
    """The bottleneck of a pool. Its `str` is one line with the figures.

    Attributes:
        cause: One of "policy" (your program's own code), "env step", "slow resets", "slow env" (one or a few are slower
            than the others), "stragglers" (any env now and then), "too few workers", "too many workers", "busy machine"
            (other programs, or the host of a virtual machine, use the cores), "pool" (the pool's own work: making
            batches, waking workers), "infos" (pickling them), "faults" and "unknown" (too few batches yet).
        text: The cause, its figures and the suggestion in a sentence, which names the option of the pool to change.
        saves: The share of the time that the change is expected to save, from 0 to 1: a rough estimate.
        found: The text without the suggestion.
    """

    cause: Cause
    text: str
    saves: float = 0.0
    found: str = ""

    def __str__(self) -> str:
        return self.text


def judge(stats: Snapshot) -> Verdict:
    """Returns the verdict on a snapshot, or on the difference of two snapshots."""
    if stats.batches < _LEAST_BATCHES or stats.seconds <= 0 or not stats.step.count:
        few = f"{stats.batches} batch{'' if stats.batches == 1 else 'es'}"
        return Verdict("unknown", f"nothing to be said of {few} yet; ask again after more")
    batch = BatchTime(stats)
    beside = max(_beside_steps(stats, batch), key=lambda finding: finding.saves)
    if beside.saves >= _MOST:
        return beside
    if batch.own >= _MOST * batch.whole:
        return _policy(stats, batch)
    if batch.gathering >= _MOST * batch.whole:
        return _pool(stats, batch)
    worst = max([beside, *_findings(stats, batch)], key=lambda finding: finding.saves)
    return worst if worst.saves >= _WORTH_NAMING else _env_step(stats, batch)


def workers_verdict(stats: Snapshot) -> Verdict | None:
    """Returns the verdict on the number of workers alone; None if the number is good, or cannot be judged."""
    if stats.batches <= 0 or not stats.steps or stats.seconds <= 0:
        return None
    return _workers(stats, BatchTime(stats))


def verdict_of(cause: Cause, found: str, then: str, saves: float) -> Verdict:
    """Returns a verdict with the text `found` (the finding) and `then` (the suggestion, with punctuation before it)."""
    return Verdict(cause, f"{cause}: {found}{then}", saves, f"{cause}: {found}")


# -- verdicts on the program, the pool, and normal steps ---------------------------------------------------


def _policy(stats: Snapshot, batch: BatchTime) -> Verdict:
    if (found := _spinning_threads(stats, batch)) is not None:
        return found
    factor, envs = 2, stats.setup.num_envs
    # `Pool.split` is not suggested: if the policy takes as long for half of the envs as for all of them, it would take
    # twice as long in total.
    return verdict_of(
        "policy",
        f"your own code takes {batch.part(batch.own)}, and for envs you wait {span(batch.waited)}: faster envs would "
        "change little",
        f"; try more envs a batch ({factor * envs}, say), which pays if your policy takes less than {factor} times as "
        "long then",
        0.5 * batch.own / batch.whole,
    )


def _spinning_threads(stats: Snapshot, batch: BatchTime) -> Verdict | None:
    """Finds a policy with threads that spin on the workers' cores while the threads wait, as OpenMP's threads do."""
    caller, threads = stats.caller, stats.caller.torch_threads or 1
    elsewhere = caller.waiting + caller.gathering + caller.unpickling
    if threads == 1 or stats.setup.backend == "serial" or caller.cpu < elsewhere + _MORE_THAN_A_CORE * caller.own:
        return None
    return verdict_of(
        "policy",
        f"your own code takes {batch.part(batch.own)}, and your program {caller.cpu / caller.seconds:.1f} of "
        f"{_cores_text(stats)}: PyTorch has {threads} threads, which spin on the cores of the workers while they wait "
        "for each other",
        "; a small network is faster with torch.set_num_threads(1)",
        0.5 * batch.own / batch.whole,
    )


def _pool(stats: Snapshot, batch: BatchTime) -> Verdict:
    setup = stats.setup
    then = "; hold fewer old batches, so that none has to be copied"
    if not setup.needs_processes:
        then += ', or let the pool step such cheap envs without workers: num_workers="auto", backend="auto"'
    return verdict_of(
        "pool",
        f"making batches takes {batch.part(batch.gathering)}, your envs {span(stats.step.mean)} a step",
        then,
        0.5 * batch.gathering / batch.whole,
    )


def _env_step(stats: Snapshot, batch: BatchTime) -> Verdict:
    return verdict_of("env step", _wait(stats, batch), ": as it should be; see what a step spends its time on", 0.0)


def _wait(stats: Snapshot, batch: BatchTime) -> str:
    cost = step_cost(stats)
    return (
        f"you wait {batch.part(batch.waited)} for "
        f"{stats.setup.num_envs} envs, a step of which takes {span(cost.cpu)} of CPU and "
        f"{span(cost.wall - cost.cpu)} of waiting, in {_workers_text(stats)} on {_cores_text(stats)}"
    )


# -- verdicts on faults and infos ---------------------------------------------------------------------------


def _beside_steps(stats: Snapshot, batch: BatchTime) -> list[Verdict]:
    return [_faults(stats, batch), _infos(stats, batch)]


def _faults(stats: Snapshot, batch: BatchTime) -> Verdict:
    """Judges the time that is lost because envs hang, die or raise, and are rebuilt."""
    failing = max(stats.envs, key=lambda env: env.faults)
    away = max(stats.workers, key=lambda worker: worker.lost)
    rest = stats.setup.num_envs - len(away.env_ids)
    meanwhile = f", and go on with the others meanwhile: recv(min_envs={rest})" if rest > 0 else ""
    return verdict_of(
        "faults",
        f"{stats.faults} faults and {stats.restarts} restarts of workers take "
        f"{batch.of_whole(batch.lost)}, from what an env failed in until it is built again; env {failing.env_id} fails "
        f"most often ({failing.faults} times)",
        f"; find out why (`record=` keeps what is needed to see it again){meanwhile}",
        batch.lost / batch.whole,
    )


def _infos(stats: Snapshot, batch: BatchTime) -> Verdict:
    """Judges the cost of infos without columns, which are pickled, sent, and unpickled if the caller reads them."""
    largest = max(stats.workers, key=lambda worker: worker.pickling)
    key = largest.info_key or ""
    read = f", and {span(batch.unpickling)} to unpickling it" if batch.unpickling else ""
    return verdict_of(
        "infos",
        f"of {span(batch.whole)} a batch, {span(batch.pickling)} go to pickling and sending what infos have beside "
        f"columns{read}; most of it is info[{key!r}], {in_words(largest.info_bytes)} a step",
        "; leave it out, or put it into a column (`extras=`): numbers and arrays of 128 bytes at most have one anyway",
        min(batch.whole, batch.pickling + batch.unpickling) / batch.whole,
    )


# -- verdicts on causes of a longer wait for envs -----------------------------------------------------------


def _findings(stats: Snapshot, batch: BatchTime) -> Iterator[Verdict]:
    for look in (_busy_machine, _busy_host, _slow_resets, _slow_env, _stragglers, _workers, _wake_ups, _lockstep):
        if (finding := look(stats, batch)) is not None:
            yield finding


def _busy_machine(stats: Snapshot, batch: BatchTime) -> Verdict | None:
    """Finds workers that were queued for cores that other programs used."""
    others = stats.machine.others(stats.seconds)
    if stats.setup.backend != "process" or others < _BUSY:
        return None
    queued = max(worker.queued for worker in stats.workers) / batch.count
    return verdict_of(
        "busy machine",
        f"other programs keep {others:.1f} of {_cores_text(stats)} busy, and workers stand in line for "
        f"{batch.of_whole(queued)}",
        "; end those programs (`top` shows them), or give them other cores (`taskset`)",
        batch.saved(_queued_for_others(stats, batch)),
    )


def _queued_for_others(stats: Snapshot, batch: BatchTime) -> float:
    """Returns the seconds per batch that the longest-queued worker was queued because of other programs."""
    setup, cores, others = stats.setup, stats.machine.cores, stats.machine.others(stats.seconds)
    if setup.backend != "process" or others < _BUSY:
        return 0.0
    ours = stats.machine.own / (stats.machine.seconds or stats.seconds)
    is_crowd = setup.num_workers > cores and ours > 0.7 * cores  # if so, workers also queue behind each other
    share = others / (others + ours) if is_crowd else 1.0
    return share * max(worker.queued for worker in stats.workers) / batch.count


def _busy_host(stats: Snapshot, batch: BatchTime) -> Verdict:
    """Judges the time that a virtual machine's host takes from its cores. Workers do not count as queued meanwhile."""
    lost = stolen_share(stats) * max(worker.cpu for worker in stats.workers) / batch.count
    taken = stats.machine.stolen / (stats.machine.seconds or stats.seconds)
    return verdict_of(
        "busy machine",
        f"the host of this virtual machine takes {taken:.1f} of {_cores_text(stats)} away (`st` in `top`), "
        f"and envs stand still for {batch.of_whole(lost)}",
        "; nothing here can change that: measure at another hour, or on a machine that you have to yourself",
        batch.saved(lost),
    )


def _slow_resets(stats: Snapshot, batch: BatchTime) -> Verdict | None:
    """Finds batches that had to wait for an env's reset."""
    setup = stats.setup
    ended = min(stats.reset.count, stats.episodes) / batch.count  # without first resets, which end no episode
    if setup.spares or AUTORESET_MODES[setup.autoreset].in_background or not ended:
        return None
    reset = stats.reset.mean
    costs = min(1.0, ended) * max(0.0, reset - stats.step.mean)
    saved = min(costs, batch.waited - steps_seconds(stats, batch))
    spares = _spares(stats, batch)
    if setup.vector_size is not None:
        then = "vector envs reset within their step: let the pool have the envs themselves, with spares"
    else:
        then = f"have more envs that reset in advance: spares={spares}"
    return verdict_of(
        "slow resets",
        f"one takes {span(reset)}, a step {span(stats.step.mean)}, and {ended:.2g} episodes end a batch, which takes "
        f"{span(batch.whole)}",
        f"; {then}",
        batch.saved(saved),
    )


def _spares(stats: Snapshot, batch: BatchTime) -> int:
    """Returns how many spares to have so that one is always ready: the number of simultaneous resets, plus one."""
    fast = max(batch.whole - batch.waited, 0.0) + steps_seconds(stats, batch)  # the time of a batch without resets
    at_a_time = stats.episodes / batch.count * stats.reset.mean / max(fast, 1e-9)
    return max(1, min(stats.setup.num_envs, round(at_a_time + 0.5) + 1))


def _slow_env(stats: Snapshot, batch: BatchTime) -> Verdict | None:
    """Finds one slow env, or a few, for which all other envs wait."""
    setup = stats.setup
    envs = [env for env in stats._env_objects if env.step.count]
    if len(envs) < 3:
        return None
    # Compares medians, because one stall of the machine raises the means of all envs.
    typical = median(env.step.p50 for env in envs)
    slow = [env for env in envs if env.step.p50 > _SLOW * typical]
    if not slow or len(slow) > len(envs) / 4:
        return None
    slowest, usual = max(slow, key=lambda env: env.step.mean), median(env.step.mean for env in envs)
    extra = sum(env.step.mean - usual for env in slow if env.worker == slowest.worker)
    rest = setup.num_envs - (setup.vector_size or 1) * len(slow)
    names = ", ".join(str(env.env_id) for env in slow[:4]) + (", ..." if len(slow) > 4 else "")
    return verdict_of(
        "slow env",
        f"env{'s' if len(slow) > 1 else ''} {names} take{'' if len(slow) > 1 else 's'} "
        f"{span(slowest.step.mean)} a step, the others {span(usual)}, and every batch of {span(batch.whole)} "
        "waits for that",
        f"; take the others' results without it: recv(min_envs={rest})",
        batch.saved(extra),
    )


def _stragglers(stats: Snapshot, batch: BatchTime) -> Verdict | None:
    """Finds envs that are slow now and then, so that all others wait for the slowest env of each batch."""
    num_envs = _num_objects(stats.setup)
    means = [env.step.mean for env in stats._env_objects if env.step.count]
    if num_envs < 2 or len(means) < 2 or stats.setup.num_workers < 2:
        return None
    typical = stats.step
    queued = max(worker.queued for worker in stats.workers) / batch.count  # the machine's fault
    extra = typical.slowest_of(num_envs) - max(typical.mean, *means) - queued
    if typical.p99 < 3 * max(typical.p50, 1e-6):
        return None
    enough = max(1, 3 * num_envs // 4) * (stats.setup.vector_size or 1)
    return verdict_of(
        "stragglers",
        f"a step takes {span(typical.p50)} at the median, and one in a hundred {span(typical.p99)} or "
        f"more, so the slowest of {num_envs} takes {span(typical.slowest_of(num_envs))}, and every batch of "
        f"{span(batch.whole)} waits for that",
        f"; take what is there first: recv(min_envs={enough})",
        batch.saved(_PARTIAL * extra),
    )


def _workers(stats: Snapshot, batch: BatchTime) -> Verdict | None:
    """Finds a better number of workers, by the estimates with which num_workers="auto" chooses."""
    setup, cores = stats.setup, stats.machine.cores
    if setup.is_chosen or setup.spares:  # the number of workers is fixed, or "auto" chose it
        return None
    num_envs, now = _num_objects(setup), setup.num_workers
    cost = alone(step_cost(stats), now, cores)
    best = best_num_workers(cost, num_envs, cores)
    slowest = max(env.step.mean for env in stats.envs)  # the least time of a batch, even with one worker for each env
    estimate = max(batch_seconds(cost, num_envs, best, cores, WAKE_SECONDS), slowest)
    # The time that resets, stragglers and the like add, which is the same with any number of workers.
    added = max(0.0, batch.waited - steps_seconds(stats, batch)) if now <= cores else 0.0
    saved = batch.waited - added - estimate
    if best == now or (best < now and setup.keeps_apart) or (setup.backend == "serial" and saved < batch.waited / 2):
        return None
    seen = step_cost(stats)
    what = "envs" if setup.vector_size is None else "vector envs"
    return verdict_of(
        "too few workers" if best > now else "too many workers",
        f"of {span(batch.whole)} a batch, your program waits {span(batch.waited)} for {num_envs} {what} in "
        f"{_workers_text(stats)} on {_cores_text(stats)}, a step of which takes {span(seen.cpu)} of CPU and "
        f"{span(seen.wall - seen.cpu)} of waiting",
        f"; num_workers={best} should be faster",
        batch.saved(saved),
    )


def _wake_ups(stats: Snapshot, batch: BatchTime) -> Verdict | None:
    """Finds workers that take longer to wake than to step envs, so that the caller would step the envs sooner."""
    setup, num_envs = stats.setup, _num_objects(stats.setup)
    in_one = in_turns(num_envs * alone(step_cost(stats), setup.num_workers, stats.machine.cores).wall)
    # If your program stepped the envs, it would be queued and stopped like the workers.
    queued = _queued_for_others(stats, batch) + stolen_share(stats) * in_one
    if setup.is_chosen or setup.spares or setup.backend == "serial" or setup.needs_processes:
        return None
    if in_one > (batch.waited - queued) / 2:
        return None
    return verdict_of(
        "pool",
        f"you wait {batch.of_whole(batch.waited)} for {_workers_text(stats)}, and all "
        f"{num_envs} steps of it take {span(in_one)}",
        '; let the pool see whether your program had better step them itself: num_workers="auto", backend="auto"',
        batch.saved(batch.waited - queued - in_one),
    )


def _lockstep(stats: Snapshot, batch: BatchTime) -> Verdict | None:
    """Judges the time that policy and envs spend waiting for each other. They could work at the same time.

    The wait for one half is half as long if workers have more than one env each. Otherwise it is the same, and
    overlaps with the policy's time for the other half.
    """
    setup, num_envs = stats.setup, _num_objects(stats.setup)
    if setup.backend == "serial" or setup.parts > 1 or num_envs < 2:
        return None
    saved = min(batch.own if setup.num_workers < num_envs else batch.own / 2, batch.waited)
    return verdict_of(
        "env step",
        _wait(stats, batch),
        "; step one half of them while your policy deals with the other: pool.split(2)",
        batch.saved(_OVERLAPPED * saved),
    )


def _workers_text(stats: Snapshot) -> str:
    return counted(stats.setup.num_workers, "worker")


def _cores_text(stats: Snapshot) -> str:
    return counted(stats.machine.cores, "core")


def _num_objects(setup: Setup) -> int:
    """Returns the number of env objects: of single envs, or of vector envs."""
    return setup.num_envs // (setup.vector_size or 1)
