"""The pool: many envs, two calls."""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal

from gymnasium import Space

from remuda import _core
from remuda._backends.base import Backend, Worker
from remuda._backends.host import Request
from remuda._backends.log import logger
from remuda._backends.output import WorkerOutput
from remuda._backends.pickling import dump_for_worker
from remuda._engine.advice import advice, best_num_workers, measure_steps, observed_cost
from remuda._engine.arguments import check_env_ids, check_limit, check_timeout, dump_objects
from remuda._engine.batch import Batch
from remuda._engine.batch_maker import BatchMaker
from remuda._engine.calls import Call, call_attribute, get_attribute, set_attribute
from remuda._engine.cores import usable_cores
from remuda._engine.exchange import Exchange
from remuda._engine.faults import Faults
from remuda._engine.infos import InfoColumns
from remuda._engine.policy import FaultPolicy, OnFault, policy_for
from remuda._engine.recording import Recording, recording_for
from remuda._engine.seeding import options_for, reset_arguments, seeds_for
from remuda._engine.start import (
    AutoresetMode,
    BackendName,
    EnvFn,
    Settings,
    StartMethod,
    check_env_fns,
    check_preload,
    start,
)
from remuda._engine.stats import PoolStats
from remuda._engine.supervisor import Supervisor
from remuda._engine.whereabouts import Tracker
from remuda.errors import ClosedError, InvalidActionError, StateError

_ADVISE_AFTER = 256  # batches


class Pool:
    """Runs many envs in parallel workers.

        with remuda.Pool([lambda: gymnasium.make("CartPole-v1")] * 64, num_workers=8) as pool:
            batch = pool.reset(seed=0)
            while learning:
                batch = pool.step(policy(batch.obs))

    Everything is made of two calls: `send` hands envs their next action, `recv` takes the results of those that
    are done. A pool belongs to the process that made it and is used by one thread at a time.

    Args:
        env_fns: One factory for each env. They are called in the workers, never here.
        num_workers: Workers to share the envs; neighbours share a worker. None: one worker for each env, so that
            none suffers from another's crash. "auto": as many as a short measurement finds best.
        backend: "process" (Linux), "thread" (envs that release the GIL), or "serial" (the caller steps them: for
            debugging).
        start_method: How worker processes start: "forkserver" (the default), "spawn", or "fork".
        autoreset: What happens when an episode ends. "next_step": the next step ignores its action and resets;
            "same_step": the env is reset at once, the terminal observation is in `Batch.final_obs`; "disabled":
            nothing, call `reset(env_ids=...)`. The meanings are Gymnasium's.
        frames: How many batches you can hold, as views of shared memory, before further ones are copied out.
        observation_space: Lay rows out for this single-env space, instead of the one that env 0 reports.
        preload: Modules that the fork server imports once, for all workers to share.
        threads_per_worker: Threads that numeric libraries (OpenMP, OpenBLAS, MKL) may start in a worker; None
            leaves them alone.
        start_timeout: Seconds for all envs to be built; None for no limit.
        max_concurrency: At most so many workers run `reset` or `step` at the same time; None for no limit.
        pin_workers: Keep each worker process to a core, in turn, once it has built its envs. It gained nothing where we
            measured it, and costs a lot where something else wants the core.
        worker_output: Where stdout and stderr of worker processes go, native code and children included. "inherit":
            where the pool's go; "capture": into memory, the last 256 KiB of it; a directory: appended to its
            `worker-<index>.log`. `workers[i].output()` reads the latter two back; reports of deaths show their end.
        faults: What happens when an env or its worker fails: "raise", "restart", or a `FaultPolicy`.
        record: A directory for crash records, one for each fault, that `remuda replay` runs again; or a `Recording`.
        advise: Log once when another number of workers would be several times faster.
        name: Of the workers, as `ps` and logs show them.

    Attributes:
        num_envs, num_workers, backend, start_method, autoreset: As above, resolved.
        single_observation_space, single_action_space: Of one env.
        observation_spaces, action_spaces: Of each env; they may differ in bounds.
        metadata, render_mode, spec: Env 0's.
        workers: Each has `index`, `name`, `pid`, `env_ids`, `exitcode`, `is_alive()` and `output(limit=65536)`.

    Raises:
        ValueError, TypeError: An argument that cannot be.
        OSError: The directory for `worker_output` or `record` cannot be made or written to.
        InvalidEnvError: A factory that cannot be pickled, or returned no env of its own.
        EnvError: A factory raised; its exception is the cause.
        WorkerDiedError, StartTimeoutError: A worker died or hung while it built its envs.
        ResourceError: The system allows too few file descriptors or processes.
        SpaceMismatchError: The envs' spaces do not fit into the same rows.
    """

    def __init__(
        self,
        env_fns: Sequence[EnvFn],
        *,
        num_workers: int | Literal["auto"] | None = None,
        backend: BackendName = "process",
        start_method: StartMethod | None = None,
        autoreset: AutoresetMode = "next_step",
        frames: int = 4,
        observation_space: Space[Any] | None = None,
        preload: Sequence[str] = (),
        threads_per_worker: int | None = 1,
        start_timeout: float | None = 60.0,
        max_concurrency: int | None = None,
        pin_workers: bool = False,
        worker_output: WorkerOutput = "inherit",
        faults: FaultPolicy | OnFault = "raise",
        record: str | os.PathLike[str] | Recording | None = None,
        advise: bool = True,
        name: str = "remuda",
    ) -> None:
        factories = check_env_fns(env_fns)
        options: dict[str, Any] = {
            "backend": backend,
            "start_method": start_method or "forkserver",
            "observation_space": observation_space,
            "preload": check_preload(preload),
            "threads_per_worker": threads_per_worker,
            "start_timeout": start_timeout,
            "worker_output": worker_output,
            "name": name,
        }
        self._cores = usable_cores()
        if num_workers == "auto":
            num_workers = _measured_num_workers(factories, options, self._cores)
        settings = Settings(
            num_envs=len(factories),
            num_workers=len(factories) if num_workers is None else num_workers,
            autoreset=autoreset,
            frames=frames,
            max_concurrency=max_concurrency,
            pin_workers=pin_workers,
            faults=policy_for(faults, backend),
            record=recording_for(record),
            **options,
        )
        parts = start(settings, factories, self._cores)
        self._backend, self._hub, self._layout = parts.backend, parts.hub, parts.layout
        self._owner = os.getpid()
        # Also at garbage collection and interpreter exit; it must not refer to the pool.
        self._finalizer = weakref.finalize(self, _stop_abandoned, parts.backend, self._owner)

        self.num_envs, self.num_workers = settings.num_envs, settings.num_workers
        self.backend, self.start_method, self.autoreset = backend, settings.start_method, autoreset
        self.single_observation_space = parts.layout.observation_space
        self.single_action_space = parts.layout.action_space
        self.observation_spaces = tuple(report.observation_space for report in parts.reports)
        self.action_spaces = tuple(report.action_space for report in parts.reports)
        self.metadata = dict(parts.reports[0].metadata)
        self.render_mode, self.spec = parts.reports[0].render_mode, parts.reports[0].spec
        self.closed = False
        self._is_copy = False
        # Not closed, no forked copy, and nothing special about it.
        self._in_order = parts.open_short_way()
        _pools.add(self)

        self._worker_of = [worker.index for worker in parts.backend.workers for _ in worker.env_ids]
        self._faults = Faults(self.num_envs, in_callers_thread=backend == "serial")
        self._tracker = Tracker(parts.hub, parts.layout, parts.arena)
        infos = InfoColumns(parts.layout.info_bytes)
        supervisor = Supervisor(settings.faults, parts, start_timeout, self._faults, self._tracker, infos)
        self._exchange = Exchange(parts.backend, parts.hub, self._faults, supervisor)
        self._batches = BatchMaker(parts, infos, self._exchange)
        self._advise = advise

    # -- the two calls ---------------------------------------------------------------------------------

    def send(self, actions: Any, env_ids: Iterable[int] | None = None) -> None:
        """Hands envs their next action and returns at once.

        Args:
            actions: An element of `batch_space(single_action_space, n)`: arrays of n rows, dicts or tuples of
                such, and for spaces without a fixed size a sequence of n. They are copied.
            env_ids: The n envs, in the order of the actions; None for all.

        Raises:
            InvalidActionError: Wrong number, shape, dtype, or out of range for a discrete choice. (The bounds of
                a Box are the env's affair.) Nothing was sent.
            StateError: An env has not been reset, or is in flight. Nothing was sent.
            BrokenPoolError, ClosedError: It can never answer.
        """
        # What almost always happens has a short way through the core: between two batches of cheap envs the
        # caches are cold, and every line of Python counts.
        if env_ids is None and self._in_order and self._exchange.send_steps(actions):
            return
        targets = self._targets(env_ids)
        arrays, objects = self._layout.action.split_batch(actions, len(targets), InvalidActionError)
        self._faults.check_reset(targets)
        blobs = None if objects is None else dump_objects(objects, targets)
        self._exchange.send(_core.Op.STEP, targets, arrays, blobs, to_all=env_ids is None)

    def send_reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: Mapping[str, Any] | Sequence[Mapping[str, Any] | None] | None = None,
        env_ids: Iterable[int] | None = None,
    ) -> None:
        """Tells envs to reset and returns at once; arguments as in `reset`."""
        targets = self._targets(env_ids)
        seeds = seeds_for(seed, targets)
        arguments = [reset_arguments(*pair) for pair in zip(seeds, options_for(options, targets), strict=True)]
        blobs = [None if a is None else dump_for_worker(a) for a in arguments] if any(arguments) else None
        numbers = self._tracker.next_resets(targets)
        self._exchange.send(_core.Op.RESET, targets, [], blobs, to_all=env_ids is None)
        self._tracker.note_seeds(targets, seeds, numbers)
        self._faults.not_reset.difference_update(targets)

    def send_observe(self, env_ids: Iterable[int] | None = None) -> None:
        """Asks envs for their current observation once more: no step is taken, reward is 0, the info empty."""
        targets = self._targets(env_ids)
        self._faults.check_reset(targets)
        self._exchange.send(_core.Op.OBSERVE, targets, [], None, to_all=env_ids is None)

    def recv(self, min_envs: int | None = None, timeout: float | None = None, max_envs: int | None = None) -> Batch:
        """Waits for results and takes those that are there.

        Args:
            min_envs: Wait until so many envs are done; None for all that are in flight.
            timeout: Seconds to wait at most. Then the batch has what is there: fewer envs, perhaps none. The rest
                stays in flight, for a later `recv`; nothing is lost.
            max_envs: Take no more than so many, the first to arrive.

        Returns:
            A batch of all envs in slot order when all were sent together, else of some in order of arrival.

        Raises:
            StateError: Nothing was sent.
            EnvError: Envs raised; the others' results are still there for the next `recv`.
            WorkerDiedError: A worker died while it had work.
        """
        if min_envs is None and timeout is None and max_envs is None and self._in_order:
            taken = self._exchange.finish()  # the short way, as in `send`
            if taken is not None:
                return self._batch(taken)
        self._check_open()
        check_limit("min_envs", min_envs)
        check_limit("max_envs", max_envs)
        check_timeout(timeout)
        if self._exchange.attend():
            self._faults.raise_any()
        there = self._exchange.pending
        if there == 0:
            self._faults.raise_any()
            raise StateError("expected envs in flight, got none: recv follows send, send_reset or send_observe")
        self._exchange.wait(there if min_envs is None else min(min_envs, there), timeout)
        self._faults.raise_any()
        return self._batch(self._exchange.take(self._exchange.ready if max_envs is None else max_envs))

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: Mapping[str, Any] | Sequence[Mapping[str, Any] | None] | None = None,
        env_ids: Iterable[int] | None = None,
    ) -> Batch:
        """Resets envs and waits for their first observations.

        Args:
            seed: An int seeds env i with `seed + i`; a sequence has a seed (or None) for each env.
            options: For every env alike, or a sequence with one mapping (or None) for each env.
            env_ids: Which envs; None for all.

        Raises: As `send_reset` and `recv` do.
        """
        self._check_quiet()
        self.send_reset(seed=seed, options=options, env_ids=env_ids)
        return self.recv()

    def step(self, actions: Any) -> Batch:
        """Steps every env once: `send`, then `recv` for all."""
        self.send(actions)
        return self.recv()

    @property
    def pending(self) -> int:
        """How many envs have been sent something whose result has not been received."""
        return 0 if self.closed else self._exchange.pending

    def discard(self) -> None:
        """Waits for whatever is in flight and drops it, faults included. Envs that failed must be reset."""
        self._check_open()
        self._exchange.discard()

    # -- calls -----------------------------------------------------------------------------------------

    def call(self, name: str, /, *args: Any, env_ids: Iterable[int] | None = None, **kwargs: Any) -> list[Any]:
        """`env.name(*args, **kwargs)` for each env, or the attribute itself where it cannot be called.

        Wrappers are looked through. An env that is in flight answers when it is done.

        Returns: One value for each env, pickled there and unpickled here.
        Raises: As `Call.result` does.
        """
        return self.call_async(name, *args, env_ids=env_ids, **kwargs).result()

    def call_async(self, name: str, /, *args: Any, env_ids: Iterable[int] | None = None, **kwargs: Any) -> Call:
        """As `call`, but returns at once; the answers are the returned object's `result()`."""
        return self.apply_async(call_attribute, (name, args, kwargs), env_ids=env_ids)

    def apply(
        self, fn: Callable[..., Any], /, *args: Any, env_ids: Iterable[int] | None = None, **kwargs: Any
    ) -> list[Any]:
        """Runs `fn(env, *args, **kwargs)` in each env's worker; `fn` is pickled (lambdas too)."""
        return self.apply_async(fn, args, kwargs, env_ids).result()

    def apply_async(
        self,
        fn: Callable[..., Any],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        env_ids: Iterable[int] | None = None,
        per_env_args: Sequence[tuple[Any, ...]] | None = None,
    ) -> Call:
        """As `apply`, but returns at once. `per_env_args`: arguments for each env, instead of `args` for all."""
        targets = self._targets(env_ids)
        if per_env_args is None:
            messages = [dump_for_worker(Request(fn, args, kwargs))] * len(targets)
        elif len(per_env_args) != len(targets):
            raise ValueError(f"expected {len(targets)} tuples of arguments, one for each env, got {len(per_env_args)}")
        else:
            messages = [dump_for_worker(Request(fn, one, kwargs)) for one in per_env_args]
        self._faults.check_alive(targets)
        return self._exchange.call([(self._worker_of[env_id], env_id) for env_id in targets], messages)

    def get_attr(self, name: str, env_ids: Iterable[int] | None = None) -> list[Any]:
        """The attribute of each env, found through its wrappers."""
        return self.apply(get_attribute, name, env_ids=env_ids)

    def set_attr(self, name: str, value: Any, env_ids: Iterable[int] | None = None) -> None:
        """Sets the attribute of each env to the same value."""
        self.apply(set_attribute, name, value, env_ids=env_ids)

    def set_attrs(self, name: str, values: Sequence[Any], env_ids: Iterable[int] | None = None) -> None:
        """Sets the attribute of each env to a value of its own."""
        self.apply_async(set_attribute, env_ids=env_ids, per_env_args=[(name, value) for value in values]).result()

    def render(self) -> list[Any]:
        """`env.render()` of each env."""
        return self.call("render")

    # -- life ------------------------------------------------------------------------------------------

    @property
    def workers(self) -> tuple[Worker, ...]:
        return tuple(self._backend.workers)

    def stats(self) -> PoolStats:
        """What the pool has done so far."""
        self._check_open()
        meters = self._hub.meters()
        return PoolStats(
            steps=sum(steps for steps, _, _ in meters),
            batches=self._batches.made,
            env_seconds=sum(busy for _, busy, _ in meters) / 1e9,
            cpu_seconds=sum(cpu for _, _, cpu in meters) / 1e9,
            waited_seconds=self._hub.waited_ns / 1e9,
            steps_by_worker=tuple(steps for steps, _, _ in meters),
            restarts=self._exchange.supervisor.restarts,
        )

    def close(self, timeout: float | None = None, terminate: bool = False) -> None:
        """Closes the envs and ends the workers. Closing again does nothing. Arrays you hold stay valid.

        Args:
            timeout: Seconds that workers get to finish what they do and to close their envs (None: 10); those
                that need longer are killed.
            terminate: Kill them at once; envs are not closed.

        Raises:
            EnvError: An env's `close` raised. Everything was released all the same.
            WorkerDiedError: A worker died instead of closing its envs.
            CloseTimeoutError: A worker would not die, ten seconds after SIGKILL.
        """
        if self.closed:
            return
        self._check_open()
        self.closed, self._in_order = True, False
        if not self._finalizer.alive:  # the interpreter is exiting, and has stopped the workers already
            return
        deadline = time.monotonic() + (10.0 if timeout is None else timeout)
        farewells = None
        try:
            if not terminate:
                farewells = self._exchange.close_envs(deadline)
        finally:
            self._finalizer.detach()
            try:
                self._backend.stop(0 if terminate else max(0.0, deadline - time.monotonic()))
            finally:
                del self._hub  # with it the memory goes, but for what arrays hold
                for part in (self._exchange, self._tracker, self._batches):
                    part.release()
        if farewells is not None:
            self._exchange.raise_farewells(farewells)

    def __enter__(self) -> Pool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(terminate=kind is not None and not issubclass(kind, Exception))

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{self.num_workers} {self.backend} workers"
        return f"<Pool of {self.num_envs} envs, {state}>"

    # -- inside ------------------------------------------------------------------------------------------

    def _targets(self, env_ids: Iterable[int] | None) -> Sequence[int]:
        self._check_open()
        return range(self.num_envs) if env_ids is None else check_env_ids(env_ids, self.num_envs)

    def _batch(self, taken: tuple[Any, ...]) -> Batch:
        batch = self._batches.make(taken)
        if self._batches.made == _ADVISE_AFTER and self._advise:
            self._say_advice()
        return batch

    def _say_advice(self) -> None:
        if self.backend == "serial":
            return
        stats = self.stats()
        if stats.steps == 0:
            return
        cost = observed_cost(stats, self._backend.queued_seconds(), self.num_workers, self._cores)
        if text := advice(cost, self.num_envs, self.num_workers, self._cores):
            logger.warning("%s", text)

    def _check_open(self) -> None:
        if self.closed:
            raise ClosedError("the pool is closed; make a new one")
        if self._is_copy:
            raise StateError(
                f"this pool belongs to process {self._owner}, got a call from its forked copy {os.getpid()}; "
                "make a pool of its own there"
            )

    def _check_quiet(self) -> None:
        if self.pending:
            raise StateError(f"expected no env in flight, got {self.pending}; call recv or discard first")


_pools: weakref.WeakSet[Pool] = weakref.WeakSet()


def _disown_copies() -> None:
    for pool in _pools:
        pool._is_copy, pool._in_order = True, False


if hasattr(os, "register_at_fork"):  # not where there is no fork
    os.register_at_fork(after_in_child=_disown_copies)


def _stop_abandoned(backend: Backend, owner: int) -> None:
    if os.getpid() == owner:  # in a forked copy the workers are somebody else's
        backend.stop(0)


def _measured_num_workers(env_fns: Sequence[EnvFn], options: dict[str, Any], cores: int) -> int:
    """Steps one env in a worker made for this alone."""
    if not env_fns:
        return 1  # the settings say what is wrong with that
    with Pool(env_fns[:1], num_workers=1, advise=False, **options) as probe:
        (cost,) = probe.apply(measure_steps)
    return best_num_workers(cost, len(env_fns), cores)
