"""Says what holds a pool's throughput back, and what to change: a function of a snapshot, and of nothing else.

The time of a batch is divided: into your program's own code, the pool's, and the wait for envs. Where the wait is the
longest, each thing that may lengthen it is asked how many seconds of it would be saved without it, and the one that
costs most is named.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import Literal, TypeAlias

from remuda._engine.startup.choice import SWITCH_SECONDS, WAKE_SECONDS, batch_seconds, best_num_workers, in_turns
from remuda._engine.stats.durations import Durations
from remuda._engine.stats.pool_stats import PoolStats
from remuda._engine.stats.units import span
from remuda._worker.measuring import StepCost

Cause: TypeAlias = Literal[
    "unknown",
    "policy",
    "pool",
    "env step",
    "slow resets",
    "slow env",
    "stragglers",
    "too few workers",
    "too many workers",
    "busy machine",
]

_LEAST_BATCHES = 8  # below, chance has the word
_WORTH_NAMING = 0.15  # of a batch's time
_MOST = 0.5
_SLOW = 1.5  # times as slow as the others
_BUSY = 0.25  # cores that others have
# Of what could be saved, so much is, as partial batches and halves are more batches.
_PARTIAL, _OVERLAPPED = 0.7, 0.8

_PROFILE = (
    "import cProfile; env = env_fns[0](); env.reset()\n"
    'cProfile.run("for _ in range(1000):\\n if any(env.step(env.action_space.sample())[2:4]): env.reset()", '
    'sort="cumtime")'
)


@dataclass(frozen=True)
class Verdict:
    """What holds the throughput back. As a text it is one line, with the figures.

    Attributes:
        cause: One of "policy" (your program's own code), "env step", "slow resets", "slow env" (one or few are slower
            than the others), "stragglers" (any env now and then), "too few workers", "too many workers", "busy machine"
            (others have the cores, be it the host of a virtual machine), "pool" (what the pool itself does: making
            batches, waking workers) and "unknown" (too little was done yet).
        text: The same in a sentence.
        code: What to change, to be pasted; None where nothing about the pool would help. `env_fns` stands for your
            factories, `pool`, `batch` and `policy` for what you have.
        saves: The share of the time that is expected to go with it, from 0 to 1: a rough estimate.
    """

    cause: Cause
    text: str
    code: str | None = None
    saves: float = 0.0

    def __str__(self) -> str:
        return self.text


def judge(stats: PoolStats) -> Verdict:
    """What holds back the throughput of what a snapshot, or a difference of two, tells of."""
    if stats.batches < _LEAST_BATCHES or stats.seconds <= 0 or not stats.step.count:
        few = f"{stats.batches} batch{'' if stats.batches == 1 else 'es'}"
        return Verdict("unknown", f"nothing to be said of {few} yet; ask again after more")
    batch = _Batch.of(stats)
    if batch.own >= _MOST * batch.whole:
        return _policy(stats, batch)
    if batch.gathering >= _MOST * batch.whole:
        return _pool(stats, batch)
    findings = sorted(_findings(stats, batch), key=lambda finding: -finding.saves)
    if findings and findings[0].saves >= _WORTH_NAMING:
        return findings[0]
    return _env_step(stats, batch)


def workers_verdict(stats: PoolStats) -> Verdict | None:
    """What there is to be said of the number of workers alone."""
    if stats.batches <= 0 or not stats.steps or stats.seconds <= 0:
        return None
    return _workers(stats, _Batch.of(stats))


@dataclass(frozen=True)
class _Batch:
    """What one batch takes, in the mean, in seconds."""

    whole: float
    own: float
    gathering: float
    waited: float
    count: int

    @classmethod
    def of(cls, stats: PoolStats) -> _Batch:
        count, caller = stats.batches, stats.caller
        return cls(stats.seconds / count, caller.own / count, caller.gathering / count, caller.waiting / count, count)

    def share(self, seconds: float) -> str:
        return f"{min(1.0, max(0.0, seconds / self.whole)):.0%}"

    def saved(self, seconds: float) -> float:
        """As a share of the whole; nobody saves more than is waited for."""
        return min(max(0.0, seconds), self.waited) / self.whole


# -- where the envs are not what is waited for ---------------------------------------------------------------


def _policy(stats: PoolStats, batch: _Batch) -> Verdict:
    spent = f"your own code takes {span(batch.own)} of {span(batch.whole)} a batch ({batch.share(batch.own)})"
    factor, envs = 2, stats.setup.num_envs
    # Halves would not do: who takes as long for half of the envs would take twice as long in all.
    return Verdict(
        "policy",
        f"policy: {spent}, and for envs you wait {span(batch.waited)}: faster envs would change little; try more "
        f"envs a batch ({factor * envs}, say), which pays if your policy takes less than {factor} times as long then",
        _make(stats, f"env_fns * {factor}", f"num_workers={stats.setup.num_workers}"),
        0.5 * batch.own / batch.whole,
    )


def _pool(stats: PoolStats, batch: _Batch) -> Verdict:
    return Verdict(
        "pool",
        f"pool: making batches takes {span(batch.gathering)} of {span(batch.whole)} "
        f"({batch.share(batch.gathering)}), your envs {span(stats.step.mean)} a step; hold fewer old batches, so "
        "that none has to be copied, or let the pool step such cheap envs without workers",
        _make(stats, "env_fns", 'num_workers="auto", backend="auto"'),
        0.5 * batch.gathering / batch.whole,
    )


def _env_step(stats: PoolStats, batch: _Batch) -> Verdict:
    what = "as it should be; see what a step spends its time on"
    return Verdict("env step", f"env step: {_wait(stats, batch)}: {what}", _PROFILE)


def _wait(stats: PoolStats, batch: _Batch) -> str:
    cost = _cost(stats)
    return (
        f"you wait {span(batch.waited)} of {span(batch.whole)} a batch ({batch.share(batch.waited)}) for "
        f"{stats.setup.num_envs} envs, a step of which takes {span(cost.cpu)} of CPU and "
        f"{span(cost.wall - cost.cpu)} of waiting, in {_count(stats)} on {_cores(stats)}"
    )


# -- what may lengthen the wait ------------------------------------------------------------------------------


def _findings(stats: PoolStats, batch: _Batch) -> Iterator[Verdict]:
    for look in (_busy_machine, _busy_host, _slow_resets, _slow_env, _stragglers, _workers, _wake_ups, _lockstep):
        if (finding := look(stats, batch)) is not None:
            yield finding


def _busy_machine(stats: PoolStats, batch: _Batch) -> Verdict | None:
    """Workers that were queued for cores, which others had."""
    setup, cores, others = stats.setup, stats.machine.cores, stats.machine.others(stats.seconds)
    if setup.backend != "process" or others < _BUSY:
        return None
    queued = max(worker.queued for worker in stats.workers) / batch.count
    left = max(1, min(cores - round(others), setup.num_workers))
    code = None
    if left < setup.num_workers and not setup.is_chosen and not setup.spares:
        code = _make(stats, "env_fns", f"num_workers={left}")
    return Verdict(
        "busy machine",
        f"busy machine: other programs keep {others:.1f} of {_cores(stats)} busy, and workers stand in line for "
        f"{span(queued)} of {span(batch.whole)} a batch; end those programs (`top` shows them), or give them other "
        "cores (`taskset`)",
        code,
        batch.saved(_queued_for_others(stats, batch)),
    )


def _queued_for_others(stats: PoolStats, batch: _Batch) -> float:
    """Seconds of a batch in which a worker stood in line for a core that another program had."""
    setup, cores, others = stats.setup, stats.machine.cores, stats.machine.others(stats.seconds)
    if setup.backend != "process" or others < _BUSY:
        return 0.0
    ours = stats.machine.own / (stats.machine.seconds or stats.seconds)
    is_crowd = setup.num_workers > cores and ours > 0.7 * cores  # they queue for each other's cores, too
    its = others / (others + ours) if is_crowd else 1.0
    return its * max(worker.queued for worker in stats.workers) / batch.count


def _busy_host(stats: PoolStats, batch: _Batch) -> Verdict:
    """A virtual machine whose host runs something else on its cores: nothing stands in line, and nothing goes on."""
    lost = _stolen_share(stats) * max(worker.cpu for worker in stats.workers) / batch.count
    taken = stats.machine.stolen / (stats.machine.seconds or stats.seconds)
    return Verdict(
        "busy machine",
        f"busy machine: the host of this virtual machine takes {taken:.1f} of {_cores(stats)} away (`st` in `top`), "
        f"and envs stand still for {span(lost)} of {span(batch.whole)} a batch; nothing here can change that: "
        "measure at another hour, or on a machine that you have to yourself",
        None,
        batch.saved(lost),
    )


def _slow_resets(stats: PoolStats, batch: _Batch) -> Verdict | None:
    """Batches that had to wait for an env's reset."""
    setup = stats.setup
    ended = min(stats.reset.count, stats.episodes) / batch.count  # the first resets are nobody's wait
    if setup.spares or setup.autoreset in {"background"} or not ended:
        return None
    reset = stats.reset.mean
    costs = min(1.0, ended) * max(0.0, reset - stats.step.mean)
    saved = min(costs, batch.waited - _steps_seconds(stats, batch))
    spares = _spares(stats, batch)
    if setup.vector_size is not None:
        code = None
        then = "vector envs reset within their step: let the pool have the envs themselves, with spares"
    else:
        code = setup.spare.replace("{spares}", str(spares)) or None
        then = f"have {spares} spare env{'' if spares == 1 else 's'} that reset{'s' if spares == 1 else ''} in advance"
    return Verdict(
        "slow resets",
        f"slow resets: one takes {span(reset)}, a step {span(stats.step.mean)}, and {ended:.2g} episodes end a "
        f"batch, which takes {span(batch.whole)}; {then}",
        code,
        batch.saved(saved),
    )


def _spares(stats: PoolStats, batch: _Batch) -> int:
    """So many that one is always fresh: as many as reset at a time, with one more for chance."""
    fast = max(batch.whole - batch.waited, 0.0) + _steps_seconds(stats, batch)  # a batch without resets
    at_a_time = stats.episodes / batch.count * stats.reset.mean / max(fast, 1e-9)
    return max(1, min(stats.setup.num_envs, round(at_a_time + 0.5) + 1))


def _slow_env(stats: PoolStats, batch: _Batch) -> Verdict | None:
    """One, or few, that all others wait for."""
    setup, width = stats.setup, stats.setup.vector_size or 1
    envs = [env for env in stats.envs[::width] if env.step.count]
    if len(envs) < 3:
        return None
    # By medians: one moment in which the machine stood still shows in the means of all.
    typical = median(env.step.p50 for env in envs)
    slow = [env for env in envs if env.step.p50 > _SLOW * typical]
    if not slow or len(slow) > len(envs) / 4:
        return None
    slowest, usual = max(slow, key=lambda env: env.step.mean), median(env.step.mean for env in envs)
    extra = sum(env.step.mean - usual for env in slow if env.worker == slowest.worker)
    rest = setup.num_envs - width * len(slow)
    names = ", ".join(str(env.env_id) for env in slow[:4]) + (", ..." if len(slow) > 4 else "")
    return Verdict(
        "slow env",
        f"slow env: env{'s' if len(slow) > 1 else ''} {names} take{'' if len(slow) > 1 else 's'} "
        f"{span(slowest.step.mean)} a step, the others {span(usual)}, and every batch of {span(batch.whole)} "
        "waits for that; take the others' results without it",
        _partial(stats, rest),
        batch.saved(extra),
    )


def _stragglers(stats: PoolStats, batch: _Batch) -> Verdict | None:
    """Any env that takes long now and then: all others wait for the slowest of the moment."""
    width = stats.setup.vector_size or 1
    num_envs = stats.setup.num_envs // width
    means = [env.step.mean for env in stats.envs[::width] if env.step.count]
    if num_envs < 2 or len(means) < 2 or stats.setup.num_workers < 2:
        return None
    typical = stats.step
    queued = max(worker.queued for worker in stats.workers) / batch.count  # that is the machine's
    extra = typical.slowest_of(num_envs) - max(typical.mean, *means) - queued
    if typical.p99 < 3 * max(typical.p50, 1e-6):
        return None
    enough = max(1, 3 * num_envs // 4) * width
    return Verdict(
        "stragglers",
        f"stragglers: a step takes {span(typical.p50)} at the median, and one in a hundred {span(typical.p99)} or "
        f"more, so the slowest of {num_envs} takes {span(typical.slowest_of(num_envs))}, and every batch of "
        f"{span(batch.whole)} waits for that; take what is there first",
        _partial(stats, enough),
        batch.saved(_PARTIAL * extra),
    )


def _make(stats: PoolStats, env_fns: str, options: str) -> str:
    """The call that makes the pool, or what stands for it, with these options instead."""
    return stats.setup.make.replace("{env_fns}", env_fns).replace("{options}", options)


def _partial(stats: PoolStats, enough: int) -> str | None:
    return stats.setup.partial.replace("{enough}", str(enough)) or None


def _workers(stats: PoolStats, batch: _Batch) -> Verdict | None:
    """Another number of workers, by the same estimates as "auto" chooses by."""
    setup, cores = stats.setup, stats.machine.cores
    if setup.is_chosen or setup.spares:  # there is no choice, or it was made well
        return None
    num_envs, now = setup.num_envs // (setup.vector_size or 1), setup.num_workers
    cost = _alone(_cost(stats), now, cores)
    best = best_num_workers(cost, num_envs, cores)
    slowest = max(env.step.mean for env in stats.envs)  # one worker for each env would still wait for that one
    estimate = max(batch_seconds(cost, num_envs, best, cores, WAKE_SECONDS), slowest)
    # What resets, stragglers and the like add is added by them in any number of workers.
    added = max(0.0, batch.waited - _steps_seconds(stats, batch)) if now <= cores else 0.0
    saved = batch.waited - added - estimate
    if best == now or (setup.backend == "serial" and saved < batch.waited / 2):
        return None
    seen = _cost(stats)
    what = "envs" if setup.vector_size is None else "vector envs"
    few = "few" if best > now else "many"
    return Verdict(
        "too few workers" if best > now else "too many workers",
        f"too {few} workers: of {span(batch.whole)} a batch, your program waits {span(batch.waited)} for "
        f"{num_envs} {what} in {_count(stats)} on {_cores(stats)}, a step of which takes {span(seen.cpu)} of CPU and "
        f"{span(seen.wall - seen.cpu)} of waiting; num_workers={best} should be faster",
        _make(stats, "env_fns", f"num_workers={best}"),
        batch.saved(saved),
    )


def _wake_ups(stats: PoolStats, batch: _Batch) -> Verdict | None:
    """Workers whose waking takes longer than what they do: the caller would have done it meanwhile."""
    setup, num_envs = stats.setup, stats.setup.num_envs // (stats.setup.vector_size or 1)
    alone = in_turns(num_envs * _alone(_cost(stats), setup.num_workers, stats.machine.cores).wall)
    # Your program would stand in line, and still, as they do.
    queued = _queued_for_others(stats, batch) + _stolen_share(stats) * alone
    if setup.is_chosen or setup.spares or setup.backend == "serial" or alone > (batch.waited - queued) / 2:
        return None
    return Verdict(
        "pool",
        f"pool: you wait {span(batch.waited)} of {span(batch.whole)} a batch for {_count(stats)}, and all "
        f'{num_envs} steps of it take {span(alone)}; let "auto" see whether your program had better step them itself',
        _make(stats, "env_fns", 'num_workers="auto", backend="auto"'),
        batch.saved(batch.waited - queued - alone),
    )


def _lockstep(stats: PoolStats, batch: _Batch) -> Verdict | None:
    """A policy and envs that take about as long, one after the other: each could work while the other does.

    The wait for one half is half as long where workers have more than one env each; else it is the same, and hides the
    policy's time with the other half.
    """
    setup, num_envs = stats.setup, stats.setup.num_envs // (stats.setup.vector_size or 1)
    if setup.backend == "serial" or setup.parts > 1 or num_envs < 2:
        return None
    saved = min(batch.own if setup.num_workers < num_envs else batch.own / 2, batch.waited)
    return Verdict(
        "env step",
        f"env step: {_wait(stats, batch)}; step one half of them while your policy deals with the other",
        setup.split or None,
        batch.saved(_OVERLAPPED * saved),
    )


# -- figures ---------------------------------------------------------------------------------------------------


def _cost(stats: PoolStats) -> StepCost:
    """Of a step as it is in this pool, its share of the resets included; not its own is time in a queue for cores, and
    what the host of a virtual machine took.

    Of that time nobody knows how much was in the midst of a step: so a step waits at least as long as the median does.
    """
    steps = stats.steps / (stats.setup.vector_size or 1)
    cpu, busy, usual = stats.cpu_seconds / steps, stats.env_seconds / steps, stats.step.p50
    ran = cpu * (1 + _stolen_share(stats))
    return StepCost(cpu + max(0.0, busy - ran - stats.queued_seconds / steps, usual - ran), cpu)


def _stolen_share(stats: PoolStats) -> float:
    """Seconds that the host of a virtual machine takes from a program for each in which it lets it run."""
    return stats.machine.stolen / stats.machine.busy if stats.machine.busy > 0 else 0.0


def _alone(cost: StepCost, num_workers: int, cores: int) -> StepCost:
    """What a step would cost in a process that need not share its core."""
    if num_workers <= cores:
        return cost
    cpu = max(cost.cpu - SWITCH_SECONDS, cost.cpu / 4)  # every step pays for a switch of processes
    return StepCost(cost.wall - cost.cpu + cpu, cpu)


def _steps_seconds(stats: PoolStats, batch: _Batch) -> float:
    """What the slowest worker spends on the steps of a batch, in the mean."""
    width, by_worker = stats.setup.vector_size or 1, dict[int, Durations]()
    for env in stats.envs[::width]:
        by_worker[env.worker] = by_worker.get(env.worker, Durations()) + env.step
    return max((durations.total for durations in by_worker.values()), default=0.0) / batch.count


def _count(stats: PoolStats) -> str:
    number = stats.setup.num_workers
    return "1 worker" if number == 1 else f"{number} workers"


def _cores(stats: PoolStats) -> str:
    cores = stats.machine.cores
    return "1 core" if cores == 1 else f"{cores} cores"
