"""Says what holds a pool's throughput back, and what to change: a function of a snapshot, and of nothing else.

The time of a batch is divided: into your program's own code, the pool's, and the wait for envs. Where the wait is the
longest, each thing that may lengthen it is asked how many seconds of it would be saved without it, and the one that
costs most is named.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from remuda._engine.stats.batch_time import BatchTime, alone, step_cost, steps_seconds, stolen_share
from remuda._engine.stats.choice import WAKE_SECONDS, batch_seconds, best_num_workers, in_turns
from remuda._engine.stats.durations import span
from remuda._engine.stats.finding import Cause, Verdict, verdict_of
from remuda._engine.stats.setup import Setup, made, partial, with_spares, without_info
from remuda._engine.stats.snapshot import Snapshot
from remuda._worker.memory import in_words

__all__ = ["Cause", "Verdict", "judge", "workers_verdict"]

_LEAST_BATCHES = 8  # below, chance has the word
_WORTH_NAMING = 0.15  # of a batch's time
_MOST = 0.5
_SLOW = 1.5  # times as slow as the others
_BUSY = 0.25  # cores that others have
_MORE_THAN_A_CORE = 1.2  # by one thread and what else runs beside it
# Of what could be saved, so much is, as partial batches and halves are more batches.
_PARTIAL, _OVERLAPPED = 0.7, 0.8

_PROFILE = (
    "import cProfile; env = env_fns[0](); env.reset()\n"
    'cProfile.run("for _ in range(1000):\\n if any(env.step(env.action_space.sample())[2:4]): env.reset()", '
    'sort="cumtime")'
)


def judge(stats: Snapshot) -> Verdict:
    """What holds back the throughput of what a snapshot, or a difference of two, tells of."""
    if stats.batches < _LEAST_BATCHES or stats.seconds <= 0 or not stats.step.count:
        few = f"{stats.batches} batch{'' if stats.batches == 1 else 'es'}"
        return Verdict("unknown", f"nothing to be said of {few} yet; ask again after more")
    batch = BatchTime.of(stats)
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
    """What there is to be said of the number of workers alone."""
    if stats.batches <= 0 or not stats.steps or stats.seconds <= 0:
        return None
    return _workers(stats, BatchTime.of(stats))


# -- where the envs are not what is waited for ---------------------------------------------------------------


def _policy(stats: Snapshot, batch: BatchTime) -> Verdict:
    if (found := _spinning_threads(stats, batch)) is not None:
        return found
    spent = f"your own code takes {span(batch.own)} of {span(batch.whole)} a batch ({batch.share(batch.own)})"
    factor, envs = 2, stats.setup.num_envs
    # Halves would not do: who takes as long for half of the envs would take twice as long in all.
    return verdict_of(
        "policy",
        f"{spent}, and for envs you wait {span(batch.waited)}: faster envs would change little",
        f"; try more envs a batch ({factor * envs}, say), which pays if your policy takes less than {factor} times as "
        "long then",
        made(stats.setup, f"env_fns * {factor}", **_as_many_workers(stats.setup, factor)),
        0.5 * batch.own / batch.whole,
    )


def _as_many_workers(setup: Setup, factor: int) -> dict[str, str]:
    """The option for so many times as many envs, where fewer workers an env would undo what was asked for."""
    asked = dict(setup.options).get("num_workers", "")
    return {"num_workers": str(factor * int(asked))} if setup.keeps_apart and asked.isdecimal() else {}


def _spinning_threads(stats: Snapshot, batch: BatchTime) -> Verdict | None:
    """A policy whose threads wait for each other on the cores of the workers: those of OpenMP spin meanwhile."""
    caller, threads = stats.caller, stats.caller.torch_threads or 1
    elsewhere = caller.waiting + caller.gathering + caller.unpickling
    if threads == 1 or stats.setup.backend == "serial" or caller.cpu < elsewhere + _MORE_THAN_A_CORE * caller.own:
        return None
    return verdict_of(
        "policy",
        f"your own code takes {span(batch.own)} of {span(batch.whole)} a batch ({batch.share(batch.own)}), and your "
        f"program {caller.cpu / caller.seconds:.1f} of {_cores(stats)}: PyTorch has {threads} threads, which spin on "
        "the cores of the workers while they wait for each other",
        "; a small network is faster with one",
        "import torch\n\ntorch.set_num_threads(1)",
        0.5 * batch.own / batch.whole,
    )


def _pool(stats: Snapshot, batch: BatchTime) -> Verdict:
    setup = stats.setup
    then = "; hold fewer old batches, so that none has to be copied"
    if not setup.needs_processes:
        then += ", or let the pool step such cheap envs without workers"
    return verdict_of(
        "pool",
        f"making batches takes {span(batch.gathering)} of {span(batch.whole)} ({batch.share(batch.gathering)}), your "
        f"envs {span(stats.step.mean)} a step",
        then,
        None if setup.needs_processes else _left_to_auto(setup),
        0.5 * batch.gathering / batch.whole,
    )


def _left_to_auto(setup: Setup) -> str:
    return made(setup, num_workers='"auto"', backend='"auto"')


def _env_step(stats: Snapshot, batch: BatchTime) -> Verdict:
    what = "as it should be; see what a step spends its time on"
    return verdict_of("env step", _wait(stats, batch), f": {what}", _PROFILE, 0.0)


def _wait(stats: Snapshot, batch: BatchTime) -> str:
    cost = step_cost(stats)
    return (
        f"you wait {span(batch.waited)} of {span(batch.whole)} a batch ({batch.share(batch.waited)}) for "
        f"{stats.setup.num_envs} envs, a step of which takes {span(cost.cpu)} of CPU and "
        f"{span(cost.wall - cost.cpu)} of waiting, in {_count(stats)} on {_cores(stats)}"
    )


# -- what is no step -----------------------------------------------------------------------------------------


def _beside_steps(stats: Snapshot, batch: BatchTime) -> list[Verdict]:
    return [_faults(stats, batch), _infos(stats, batch)]


def _faults(stats: Snapshot, batch: BatchTime) -> Verdict:
    """Envs that hang, die or raise, and are built again meanwhile."""
    failing = max(stats.envs, key=lambda env: env.faults)
    away = max(stats.workers, key=lambda worker: worker.lost)
    rest = stats.setup.num_envs - len(away.env_ids)
    return verdict_of(
        "faults",
        f"{stats.faults} faults and {stats.restarts} restarts of workers take {span(batch.lost)} of "
        f"{span(batch.whole)} a batch, from what an env failed in until it is built again; env {failing.env_id} fails "
        f"most often ({failing.faults} times)",
        "; find out why (`record=` keeps what is needed to see it again), and go on with the others meanwhile",
        partial(stats.setup, rest) if rest > 0 else None,
        batch.lost / batch.whole,
    )


def _infos(stats: Snapshot, batch: BatchTime) -> Verdict:
    """What of infos has no column: it is pickled, sent, and unpickled where the caller looks at it."""
    largest = max(stats.workers, key=lambda worker: worker.pickling)
    key = largest.info_key or ""
    read = f", and {span(batch.unpickling)} to unpickling it" if batch.unpickling else ""
    return verdict_of(
        "infos",
        f"of {span(batch.whole)} a batch, {span(batch.pickling)} go to pickling and sending what infos have beside "
        f"columns{read}; most of it is info[{key!r}], {in_words(largest.info_bytes)} a step",
        "; leave it out, or put it into a column (`extras=`): numbers and arrays of 128 bytes at most have one anyway",
        without_info(stats.setup, key),
        min(batch.whole, batch.pickling + batch.unpickling) / batch.whole,
    )


# -- what may lengthen the wait ------------------------------------------------------------------------------


def _findings(stats: Snapshot, batch: BatchTime) -> Iterator[Verdict]:
    for look in (_busy_machine, _busy_host, _slow_resets, _slow_env, _stragglers, _workers, _wake_ups, _lockstep):
        if (finding := look(stats, batch)) is not None:
            yield finding


def _busy_machine(stats: Snapshot, batch: BatchTime) -> Verdict | None:
    """Workers that were queued for cores, which others had."""
    setup, cores, others = stats.setup, stats.machine.cores, stats.machine.others(stats.seconds)
    if setup.backend != "process" or others < _BUSY:
        return None
    queued = max(worker.queued for worker in stats.workers) / batch.count
    left = max(1, min(cores - round(others), setup.num_workers))
    code = None
    if left < setup.num_workers and not (setup.is_chosen or setup.spares or setup.keeps_apart):
        code = made(setup, num_workers=str(left))
    return verdict_of(
        "busy machine",
        f"other programs keep {others:.1f} of {_cores(stats)} busy, and workers stand in line for "
        f"{span(queued)} of {span(batch.whole)} a batch",
        "; end those programs (`top` shows them), or give them other cores (`taskset`)",
        code,
        batch.saved(_queued_for_others(stats, batch)),
    )


def _queued_for_others(stats: Snapshot, batch: BatchTime) -> float:
    """Seconds of a batch in which a worker stood in line for a core that another program had."""
    setup, cores, others = stats.setup, stats.machine.cores, stats.machine.others(stats.seconds)
    if setup.backend != "process" or others < _BUSY:
        return 0.0
    ours = stats.machine.own / (stats.machine.seconds or stats.seconds)
    is_crowd = setup.num_workers > cores and ours > 0.7 * cores  # they queue for each other's cores, too
    its = others / (others + ours) if is_crowd else 1.0
    return its * max(worker.queued for worker in stats.workers) / batch.count


def _busy_host(stats: Snapshot, batch: BatchTime) -> Verdict:
    """A virtual machine whose host runs something else on its cores: nothing stands in line, and nothing goes on."""
    lost = stolen_share(stats) * max(worker.cpu for worker in stats.workers) / batch.count
    taken = stats.machine.stolen / (stats.machine.seconds or stats.seconds)
    return verdict_of(
        "busy machine",
        f"the host of this virtual machine takes {taken:.1f} of {_cores(stats)} away (`st` in `top`), "
        f"and envs stand still for {span(lost)} of {span(batch.whole)} a batch",
        "; nothing here can change that: measure at another hour, or on a machine that you have to yourself",
        None,
        batch.saved(lost),
    )


def _slow_resets(stats: Snapshot, batch: BatchTime) -> Verdict | None:
    """Batches that had to wait for an env's reset."""
    setup = stats.setup
    ended = min(stats.reset.count, stats.episodes) / batch.count  # the first resets are nobody's wait
    if setup.spares or setup.autoreset in {"background"} or not ended:
        return None
    reset = stats.reset.mean
    costs = min(1.0, ended) * max(0.0, reset - stats.step.mean)
    saved = min(costs, batch.waited - steps_seconds(stats, batch))
    spares = _spares(stats, batch)
    if setup.vector_size is not None:
        code = None
        then = "vector envs reset within their step: let the pool have the envs themselves, with spares"
    else:
        code = with_spares(setup, spares)
        then = f"have {spares} spare env{'' if spares == 1 else 's'} that reset{'s' if spares == 1 else ''} in advance"
    return verdict_of(
        "slow resets",
        f"one takes {span(reset)}, a step {span(stats.step.mean)}, and {ended:.2g} episodes end a batch, which takes "
        f"{span(batch.whole)}",
        f"; {then}",
        code,
        batch.saved(saved),
    )


def _spares(stats: Snapshot, batch: BatchTime) -> int:
    """So many that one is always fresh: as many as reset at a time, with one more for chance."""
    fast = max(batch.whole - batch.waited, 0.0) + steps_seconds(stats, batch)  # a batch without resets
    at_a_time = stats.episodes / batch.count * stats.reset.mean / max(fast, 1e-9)
    return max(1, min(stats.setup.num_envs, round(at_a_time + 0.5) + 1))


def _slow_env(stats: Snapshot, batch: BatchTime) -> Verdict | None:
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
    return verdict_of(
        "slow env",
        f"env{'s' if len(slow) > 1 else ''} {names} take{'' if len(slow) > 1 else 's'} "
        f"{span(slowest.step.mean)} a step, the others {span(usual)}, and every batch of {span(batch.whole)} "
        "waits for that",
        "; take the others' results without it",
        partial(setup, rest),
        batch.saved(extra),
    )


def _stragglers(stats: Snapshot, batch: BatchTime) -> Verdict | None:
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
    return verdict_of(
        "stragglers",
        f"a step takes {span(typical.p50)} at the median, and one in a hundred {span(typical.p99)} or "
        f"more, so the slowest of {num_envs} takes {span(typical.slowest_of(num_envs))}, and every batch of "
        f"{span(batch.whole)} waits for that",
        "; take what is there first",
        partial(stats.setup, enough),
        batch.saved(_PARTIAL * extra),
    )


def _workers(stats: Snapshot, batch: BatchTime) -> Verdict | None:
    """Another number of workers, by the same estimates as "auto" chooses by."""
    setup, cores = stats.setup, stats.machine.cores
    if setup.is_chosen or setup.spares:  # there is no choice, or it was made well
        return None
    num_envs, now = setup.num_envs // (setup.vector_size or 1), setup.num_workers
    cost = alone(step_cost(stats), now, cores)
    best = best_num_workers(cost, num_envs, cores)
    slowest = max(env.step.mean for env in stats.envs)  # one worker for each env would still wait for that one
    estimate = max(batch_seconds(cost, num_envs, best, cores, WAKE_SECONDS), slowest)
    # What resets, stragglers and the like add is added by them in any number of workers.
    added = max(0.0, batch.waited - steps_seconds(stats, batch)) if now <= cores else 0.0
    saved = batch.waited - added - estimate
    if best == now or (best < now and setup.keeps_apart) or (setup.backend == "serial" and saved < batch.waited / 2):
        return None
    seen = step_cost(stats)
    what = "envs" if setup.vector_size is None else "vector envs"
    return verdict_of(
        "too few workers" if best > now else "too many workers",
        f"of {span(batch.whole)} a batch, your program waits {span(batch.waited)} for "
        f"{num_envs} {what} in {_count(stats)} on {_cores(stats)}, a step of which takes {span(seen.cpu)} of CPU and "
        f"{span(seen.wall - seen.cpu)} of waiting",
        f"; num_workers={best} should be faster",
        made(setup, num_workers=str(best)),
        batch.saved(saved),
    )


def _wake_ups(stats: Snapshot, batch: BatchTime) -> Verdict | None:
    """Workers whose waking takes longer than what they do: the caller would have done it meanwhile."""
    setup, num_envs = stats.setup, stats.setup.num_envs // (stats.setup.vector_size or 1)
    in_one = in_turns(num_envs * alone(step_cost(stats), setup.num_workers, stats.machine.cores).wall)
    # Your program would stand in line, and still, as they do.
    queued = _queued_for_others(stats, batch) + stolen_share(stats) * in_one
    if setup.is_chosen or setup.spares or setup.backend == "serial" or setup.needs_processes:
        return None
    if in_one > (batch.waited - queued) / 2:
        return None
    return verdict_of(
        "pool",
        f"you wait {span(batch.waited)} of {span(batch.whole)} a batch for {_count(stats)}, and all "
        f"{num_envs} steps of it take {span(in_one)}",
        '; let "auto" see whether your program had better step them itself',
        _left_to_auto(setup),
        batch.saved(batch.waited - queued - in_one),
    )


def _lockstep(stats: Snapshot, batch: BatchTime) -> Verdict | None:
    """A policy and envs that take about as long, one after the other: each could work while the other does.

    The wait for one half is half as long where workers have more than one env each; else it is the same, and hides the
    policy's time with the other half.
    """
    setup, num_envs = stats.setup, stats.setup.num_envs // (stats.setup.vector_size or 1)
    if setup.backend == "serial" or setup.parts > 1 or num_envs < 2:
        return None
    saved = min(batch.own if setup.num_workers < num_envs else batch.own / 2, batch.waited)
    return verdict_of(
        "env step",
        _wait(stats, batch),
        "; step one half of them while your policy deals with the other",
        setup.split or None,
        batch.saved(_OVERLAPPED * saved),
    )


def _count(stats: Snapshot) -> str:
    number = stats.setup.num_workers
    return "1 worker" if number == 1 else f"{number} workers"


def _cores(stats: Snapshot) -> str:
    cores = stats.machine.cores
    return "1 core" if cores == 1 else f"{cores} cores"
