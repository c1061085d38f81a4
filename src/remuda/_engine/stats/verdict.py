"""Finds the bottleneck of a pool from a snapshot of its figures, and suggests a change.

The time of a batch is divided into your program's own code, the pool's, and the wait for envs. If the wait is the
longest, the seconds that would be saved without it are estimated for each cause of waiting. The verdict names the cause
that costs most.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import median
from typing import Literal, TypeAlias

from remuda._engine.stats.choice import SWITCH_SECONDS, WAKE_SECONDS, batch_seconds, best_num_workers, counted
from remuda._engine.stats.durations import span
from remuda._engine.stats.snapshot import Snapshot
from remuda._relay.log import logger
from remuda._wire.autoreset import AUTORESET_MODES
from remuda._worker.measuring import StepCost
from remuda._worker.memory import in_words

_LEAST_BATCHES = 8  # the figures of fewer batches depend on chance.
_WORTH_NAMING = 0.15  # the least share of a batch's time that a finding must save
_WORTH_SAYING = 0.5  # advice must save this share of the total time, the caller's code included
_MOST = 0.5
_SLOW = 1.5  # an env is slow if its steps take this many times as long as the others'.
_MORE_THAN_A_CORE = 1.2  # the cores that one busy thread and its helpers use at most.
_OVERLAPPED = 0.8  # the share of the estimated saving by `Pool.split` that remains in practice
_said: list[str] = []  # the advice that this process has logged

Cause: TypeAlias = Literal[
    "unknown", "policy", "env step", "slow env", "slow resets", "infos", "faults", "worker count", "transport"
]


@dataclass(frozen=True)
class Verdict:
    """The bottleneck of a pool. Its `str` is one line with the figures.

    Attributes:
        cause: One of "policy" (your program's own code), "env step", "slow env" (one or a few are slower than the
            others), "slow resets", "infos" (pickling them), "faults", "worker count" (another number of workers would
            be faster), "transport" (messages to other machines) and "unknown" (too few batches yet).
        text: The cause, its figures and the suggestion in a sentence, which names the option of the pool to change.
        saves: The share of the time that the change is expected to save, from 0 to 1: a rough estimate.
    """

    cause: Cause
    text: str
    saves: float = 0.0

    def __str__(self) -> str:
        return self.text


class BatchTime:
    """The mean time of a batch and its parts, in seconds. `count`: the number of batches."""

    def __init__(self, stats: Snapshot) -> None:
        caller, self.count = stats.caller, stats.batches
        self.whole = stats.seconds / self.count
        self.own = caller.own / self.count
        self.unpickling = caller.unpickling / self.count
        waited = caller.waiting / self.count
        self.lost = min(waited, sum(worker.lost for worker in stats.workers) / self.count)
        pickling = max((worker.pickling for worker in stats.workers), default=0.0) / self.count
        self.pickling = min(waited - self.lost, pickling)
        self.waited = waited - self.lost - self.pickling  # the wait for envs, without faults and the pickling of infos
        self.stepping = _steps_of_slowest(stats) / self.count

    def part(self, seconds: float) -> str:
        """Returns a part of a batch's time as text, with its share, such as "2 ms of 4 ms a batch (50%)"."""
        share = min(1.0, max(0.0, seconds / self.whole))
        return f"{span(seconds)} of {span(self.whole)} a batch ({share:.0%})"

    def saved(self, seconds: float) -> float:
        """Returns the share of a batch's time that is saved if the wait for envs gets `seconds` shorter."""
        return min(max(0.0, seconds), self.waited) / self.whole


def judge(stats: Snapshot) -> Verdict:
    """Returns the verdict on a snapshot, or on the difference of two snapshots."""
    if stats.batches < _LEAST_BATCHES or stats.seconds <= 0 or not stats.step.count:
        few = f"{stats.batches} batch{'' if stats.batches == 1 else 'es'}"
        return Verdict("unknown", f"nothing to be said of {few} yet; ask again after more")
    batch = BatchTime(stats)
    beside = max(_faults(stats, batch), _infos(stats, batch), key=lambda finding: finding.saves)
    if beside.saves >= _MOST:
        return beside
    if batch.own >= _MOST * batch.whole:
        return _spinning_threads(stats, batch) or _policy(stats, batch)
    waiting = [look(stats, batch) for look in (_slow_resets, _slow_env, _worker_count, _transport, _lockstep)]
    worst = max([beside, *filter(None, waiting)], key=lambda finding: finding.saves)
    return worst if worst.saves >= _WORTH_NAMING else _env_step(stats, batch)


def workers_verdict(stats: Snapshot) -> Verdict | None:
    """Returns the verdict on the number of workers alone; None if the number is good, or cannot be judged."""
    if stats.batches <= 0 or not stats.steps or stats.seconds <= 0:
        return None
    return _worker_count(stats, BatchTime(stats))


# -- the policy ------------------------------------------------------------------------------------------------


def _policy(stats: Snapshot, batch: BatchTime) -> Verdict:
    # `Pool.split` is not suggested: if the policy takes as long for half of the envs as for all of them, it would take
    # twice as long in total.
    return Verdict(
        "policy",
        f"policy: your own code takes {batch.part(batch.own)}, and for envs you wait {span(batch.waited)}: faster "
        f"envs would change little; try more envs a batch ({2 * stats.setup.num_envs}, say), which pays if your policy "
        "takes less than 2 times as long then",
        0.5 * batch.own / batch.whole,
    )


def _spinning_threads(stats: Snapshot, batch: BatchTime) -> Verdict | None:
    """Finds a policy with threads that spin on the workers' cores while the threads wait, as OpenMP's threads do."""
    caller, threads = stats.caller, stats.caller.torch_threads or 1
    elsewhere = caller.waiting + caller.gathering + caller.unpickling
    has_workers = stats.setup.backend != "serial" and not stats.setup.is_remote
    if threads == 1 or not has_workers or caller.cpu < elsewhere + _MORE_THAN_A_CORE * caller.own:
        return None
    return Verdict(
        "policy",
        f"policy: your own code takes {batch.part(batch.own)}, and your program {caller.cpu / caller.seconds:.1f} of "
        f"{counted(stats.cores, 'core')}: PyTorch has {threads} threads, which spin on the cores of the workers while "
        "they wait for each other; a small network is faster with torch.set_num_threads(1)",
        0.5 * batch.own / batch.whole,
    )


# -- faults and infos ------------------------------------------------------------------------------------------


def _faults(stats: Snapshot, batch: BatchTime) -> Verdict:
    """Judges the time that is lost because envs hang, die or raise, and are rebuilt."""
    failing = max(stats.envs, key=lambda env: env.faults)
    away = max(stats.workers, key=lambda worker: worker.lost)
    keeps = "" if stats.setup.is_remote else " (`crash_dir=` keeps what is needed to see it again)"
    if stats.faults or stats.restarts:
        what = f"{stats.faults} faults and {stats.restarts} restarts of workers take"
        often = f"env {failing.env_id} fails most often ({failing.faults} times)"
    else:
        what, often = "earlier faults take", f"worker {away.index} is away longest"
    rest = stats.setup.num_envs - len(away.env_ids)
    meanwhile = f", and go on with the others meanwhile: recv(min_envs={rest})" if rest > 0 else ""
    return Verdict(
        "faults",
        f"faults: {what} {span(batch.lost)} of {span(batch.whole)} a batch, from what an env failed in until it is "
        f"built again; {often}; find out why{keeps}{meanwhile}",
        batch.lost / batch.whole,
    )


def _infos(stats: Snapshot, batch: BatchTime) -> Verdict:
    """Judges the cost of infos without columns, which are pickled, sent, and unpickled if the caller reads them."""
    largest = max(stats.workers, key=lambda worker: worker.pickling)
    read = f", and {span(batch.unpickling)} to unpickling it" if batch.unpickling else ""
    together, room, more = largest.info_bytes * len(largest.env_ids), stats.setup.object_bytes, ""
    if together > room > 0:
        wanted = 1 << (2 * together).bit_length()  # one batch is read while the next one is written
        more = f"; a batch of them does not fit into the shared memory for it: object_bytes={wanted} makes room"
    return Verdict(
        "infos",
        f"infos: of {span(batch.whole)} a batch, {span(batch.pickling)} go to pickling and sending what infos have "
        f"beside columns{read}; most of it is info[{largest.info_key or ''!r}], {in_words(largest.info_bytes)} a step; "
        "leave it out, or put it into a column (`extras=`): numbers and arrays of 128 bytes at most have one anyway"
        f"{more}",
        min(batch.whole, batch.pickling + batch.unpickling) / batch.whole,
    )


# -- causes of a longer wait for envs --------------------------------------------------------------------------


def _slow_resets(stats: Snapshot, batch: BatchTime) -> Verdict | None:
    """Finds batches that had to wait for an env's reset."""
    setup, reset = stats.setup, stats.reset.mean
    ended = min(stats.reset.count, stats.episodes) / batch.count  # without first resets, which end no episode
    if setup.spares or setup.is_remote or AUTORESET_MODES[setup.autoreset].in_background or not ended:
        return None
    costs = min(1.0, ended) * max(0.0, reset - stats.step.mean)
    if setup.vector_size is None:
        spares = _spares(stats, batch)
        advice = f"have envs that reset in advance: append {spares} factories to `env_fns`, and pass spares={spares}"
    else:
        advice = "vector envs reset within their step: let the pool have the envs themselves, with spares"
    return Verdict(
        "slow resets",
        f"slow resets: one takes {span(reset)}, a step {span(stats.step.mean)}, and {ended:.2g} episodes end a batch, "
        f"which takes {span(batch.whole)}; {advice}",
        batch.saved(min(costs, batch.waited - batch.stepping)),
    )


def _spares(stats: Snapshot, batch: BatchTime) -> int:
    """Returns how many spares to have so that one is always ready: the number of simultaneous resets, plus one."""
    fast = max(batch.whole - batch.waited, 0.0) + batch.stepping  # the time of a batch without resets
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
    rest = setup.num_envs - setup.width * len(slow)
    names = ", ".join(str(env.env_id) for env in slow[:4]) + (", ..." if len(slow) > 4 else "")
    subject = f"envs {names} take" if len(slow) > 1 else f"env {names} takes"
    return Verdict(
        "slow env",
        f"slow env: {subject} {span(slowest.step.mean)} a step, the others {span(usual)}, and every batch of "
        f"{span(batch.whole)} waits for that; take the others' results without it: recv(min_envs={rest})",
        batch.saved(extra),
    )


def _worker_count(stats: Snapshot, batch: BatchTime) -> Verdict | None:
    """Finds a better number of workers, by the estimates with which num_workers="auto" chooses."""
    setup, cores = stats.setup, stats.cores
    if setup.is_chosen or setup.spares or setup.is_remote:  # "auto" chose it, it is fixed, or the cores are unknown
        return None
    num_envs, now, seen = setup.num_envs // setup.width, setup.num_workers, _step_cost(stats)
    cost = _alone(seen, now, cores)
    best = best_num_workers(cost, num_envs, cores)
    slowest = max(env.step.mean for env in stats.envs)  # the least time of a batch, even with one worker for each env
    estimate = max(batch_seconds(cost, num_envs, best, cores, WAKE_SECONDS), slowest)
    # The time that resets and the like add, which is the same with any number of workers.
    added = max(0.0, batch.waited - batch.stepping) if now <= cores else 0.0
    saved = batch.waited - added - estimate
    if best == now or (best < now and setup.keeps_apart) or (setup.backend == "serial" and saved < batch.waited / 2):
        return None
    what = "envs" if setup.vector_size is None else "vector envs"
    return Verdict(
        "worker count",
        f"worker count: of {span(batch.whole)} a batch, your program waits {span(batch.waited)} for {num_envs} {what} "
        f"in {counted(now, 'worker')} on {counted(stats.cores, 'core')}, a step of which takes {span(seen.cpu)} of CPU "
        f"and {span(seen.wall - seen.cpu)} of waiting; num_workers={best} should be faster",
        batch.saved(saved),
    )


def _transport(stats: Snapshot, batch: BatchTime) -> Verdict | None:
    """Judges the time of messages to the machines that step the envs, and of the answers."""
    if not stats.setup.is_remote:
        return None
    return Verdict(
        "transport",
        f"transport: you wait {batch.part(batch.waited)} for shards, whose slowest worker steps for "
        f"{span(batch.stepping)} of that; let shards call the policy themselves: with pool.rollouts(policy), one "
        "message has the rows of many steps",
        batch.saved(batch.waited - batch.stepping - stats.reset.total / stats.setup.num_workers / batch.count),
    )


# -- envs that are as fast as they should be -------------------------------------------------------------------


def _env_step(stats: Snapshot, batch: BatchTime, advice: str = "see what a step spends its time on") -> Verdict:
    cost = _step_cost(stats)
    where = " of other machines" if stats.setup.is_remote else f" on {counted(stats.cores, 'core')}"
    return Verdict(
        "env step",
        f"env step: you wait {batch.part(batch.waited)} for {stats.setup.num_envs} envs, a step of which takes "
        f"{span(cost.cpu)} of CPU and {span(cost.wall - cost.cpu)} of waiting, in "
        f"{counted(stats.setup.num_workers, 'worker')}{where}; {advice}",
    )


def _lockstep(stats: Snapshot, batch: BatchTime) -> Verdict | None:
    """Judges the time that policy and envs spend waiting for each other. They could work at the same time.

    The wait for one half is half as long if workers have more than one env each. Otherwise it is the same, and
    overlaps with the policy's time for the other half.
    """
    setup, num_envs = stats.setup, stats.setup.num_envs // stats.setup.width
    if setup.backend == "serial" or setup.parts > 1 or num_envs < 2:
        return None
    saved = _OVERLAPPED * min(batch.own if setup.num_workers < num_envs else batch.own / 2, batch.waited)
    advice = "step one half of them while your policy deals with the other: pool.split(2)"
    return replace(_env_step(stats, batch, advice), saves=batch.saved(saved))


# -- costs of steps --------------------------------------------------------------------------------------------


def _step_cost(stats: Snapshot) -> StepCost:
    """Returns the mean cost of a step in this pool. It includes the cost of resets, divided among all steps.

    Time in a queue for cores does not count. How much of that fell into steps is unknown, so a step waits at least as
    long as the median does.
    """
    steps = stats.steps / stats.setup.width
    cpu, busy, queued = stats.cpu_seconds / steps, stats.env_seconds / steps, stats.queued_seconds / steps
    return StepCost(cpu + max(0.0, busy - cpu - queued, stats.step.p50 - cpu), cpu)


def _alone(cost: StepCost, num_workers: int, cores: int) -> StepCost:
    """Returns the cost of a step in a process that does not share its core."""
    if num_workers <= cores:
        return cost
    cpu = max(cost.cpu - SWITCH_SECONDS, cost.cpu / 4)  # without the cost of switching processes
    return StepCost(cost.wall - cost.cpu + cpu, cpu)


def _steps_of_slowest(stats: Snapshot) -> float:
    """Returns the seconds that the slowest worker has spent on steps."""
    by_worker = dict[int, float]()
    for env in stats._env_objects:
        by_worker[env.worker] = by_worker.get(env.worker, 0.0) + env.step.total
    return max(by_worker.values(), default=0.0)


def advice(stats: Snapshot) -> str | None:
    """Returns a sentence about the number of workers; None unless another number would at least double the speed."""
    verdict = workers_verdict(stats)
    if verdict is None or verdict.saves < _WORTH_SAYING:
        return None
    # With `keeps_apart` each env needs a worker, so "auto", which may choose fewer, is not advised.
    auto = "" if stats.setup.keeps_apart else "num_workers='auto' measures and chooses; "
    return f"remuda: {verdict.text}. ({auto}log_advice=False keeps this quiet, and pool.stats() has the details.)"


def say_once(text: str) -> None:
    """Logs advice, unless this process has logged any before, however many pools it has."""
    if not _said:
        _said.append(text)
        logger.warning("%s", text)
