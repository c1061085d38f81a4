"""The pool: many envs, two calls."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from enum import Enum
from types import TracebackType
from typing import Any, Literal

from gymnasium import Space

from remuda._backends.base import Backend, Worker
from remuda._backends.deadline import Deadline
from remuda._engine.pool.arguments import check_common, check_timeout
from remuda._engine.pool.batch import Batch
from remuda._engine.pool.calls import Call, call_attribute, get_attribute, set_attribute
from remuda._engine.pool.engine import Engine
from remuda._engine.pool.naming import owns_methods
from remuda._engine.pool.part import Part
from remuda._engine.pool.partition import divide
from remuda._engine.pool.progress import OperationOf
from remuda._engine.pool.resets import Options
from remuda._engine.pool.seeds import Seed, Seeding
from remuda._engine.pool.stats import PoolStats
from remuda._engine.startup.advice import advice, best_num_workers, measure_steps, observed_cost
from remuda._engine.startup.space_checks import autoreset_name
from remuda._engine.startup.start import (
    AutoresetMode,
    BackendName,
    EnvFn,
    Settings,
    StartMethod,
    check_env_fns,
    check_preload,
    check_vector_size,
    start,
)
from remuda._engine.supervision.fault_policy import FaultPolicy, OnFault, policy_for
from remuda._engine.supervision.recording import Recording, recording_for
from remuda._keywords import names_keywords
from remuda._relay.log import logger
from remuda._relay.output import WorkerOutput
from remuda._relay.receiver import ShownWarnings
from remuda._system.cores import usable_cores
from remuda._wire.pickling import dump_for_worker
from remuda._worker.host import Request
from remuda.errors import EnvError, InvalidEnvError, RemudaError, StateError

_ADVISE_AFTER = 256  # batches


@names_keywords
@owns_methods
class Pool(Part):
    """Runs many envs in parallel workers.

        with remuda.Pool([lambda: gymnasium.make("CartPole-v1")] * 64, num_workers=8) as pool:
            batch = pool.reset(seed=0)
            while learning:
                batch = pool.step(policy(batch.obs))

    Everything is made of two calls: `send` hands envs their next action, `recv` takes the results of those that
    are done. A pool belongs to the process that made it and is used by one thread at a time.

    Args:
        env_fns: One factory for each env, spares included. They are called in the workers, never here.
        num_workers: Workers to share the envs; neighbours share a worker. None: one worker for each env, so that
            none suffers from another's crash. "auto": as many as a short measurement finds best. Of vector envs, each
            counts as one.
        backend: "process" (Linux), "thread" (envs that release the GIL), or "serial" (the caller steps them: for
            debugging).
        start_method: How worker processes start: "forkserver" (the default), "spawn", or "fork".
        autoreset: What happens when an episode ends. "next_step": the next step ignores its action and resets;
            "same_step": the env is reset at once, the terminal observation is in `Batch.final_obs`; "disabled":
            nothing, call `reset(env_ids=...)`. The meanings are Gymnasium's, whose `AutoresetMode` will do, too.
            "background": it resets by itself while you go on with the others, and its first observation comes with a
            later `recv`; until then it is in flight, and must not be sent anything.
        vector_size: Each factory returns a vector env of so many envs (`gymnasium.vector.VectorEnv`, or what has its
            `num_envs`, `single_observation_space`, `single_action_space`, `reset`, `step` and `close`), which takes so
            many neighbouring slots of the batch and is stepped once for all of them. `autoreset` must be its own. None:
            it returns a single env. Not with `spares`, `record`, per-episode seeds, renewals and background autoreset.
        resets_ahead: With "next_step": a worker resets an env whose episode is over as soon as it has nothing else to
            do, instead of when the next step asks for it, so that slow resets run while you train. What steps and
            resets return is the same.
        spares: So many of `env_fns` are spare envs, reset in advance: a slot whose episode is over goes on with one
            of them at once, and its own becomes a spare and resets in the background. They must be interchangeable.
            With one worker for each env only.
        seeding: What a seed is good for. "gymnasium": for one reset; the episodes that follow go on with the env's
            random numbers. "per_episode": for all that follow too: each has a seed of its own, derived from the seed,
            the env and the episode's number, and told as `info["episode_seed"]`; see `reset`.
        frames: How many batches you can hold, as views of shared memory, before further ones are copied out.
        object_bytes: Room in shared memory, of each worker and in each direction, for what travels pickled: objects of
            spaces without a fixed size, irregular infos, answers to calls. What is larger goes over a socket, in
            several times the time.
        observation_space: Lay rows out for this single-env space, instead of the one that env 0 reports.
        preload: Modules that the fork server imports once, for all workers to share. Once one is edited or reloaded, it
            is imported anew for pools that are made from then on.
        threads_per_worker: Threads that numeric libraries (OpenMP, OpenBLAS, MKL) may start in a worker; None
            leaves them alone.
        start_timeout: Seconds for all envs to be built; None for no limit.
        starts_serially: Start a worker only when the one before has built its envs, in the order of `env_fns`: for envs
            that must not be built side by side. It takes the sum of their times.
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
        operation_of: Where steps or calls stand for other operations, as in a face: gets the operation ("step") and the
            `EnvProgress` that a report of a fault would have, and returns those that it is to have.

    Attributes:
        num_envs: Without the spares. Envs 0, ..., num_envs - 1 are the slots of a batch. Of vector envs, those in them.
        num_workers, vector_size, backend, start_method, autoreset, seeding: As above, resolved.
        single_observation_space, single_action_space: Of one env.
        observation_spaces, action_spaces: Of each env; they may differ in bounds.
        metadata, render_mode, spec: Env 0's.
        workers: Each has `index`, `name`, `pid`, `env_ids`, `exitcode`, `is_alive()` and `output(limit=65536)`. With
            spares worker i has env_fns[i], whichever slot that backs now; so do reports of faults.

    Raises:
        ValueError, TypeError: An argument that cannot be.
        OSError: The directory for `worker_output` or `record` cannot be made or written to.
        InvalidEnvError: A factory that cannot be pickled, or returned no env of its own; num_workers="auto" for an env
            that cannot be stepped with random actions.
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
        autoreset: AutoresetMode | Enum = "next_step",
        vector_size: int | None = None,
        resets_ahead: bool = False,
        spares: int = 0,
        seeding: Seeding = "gymnasium",
        frames: int = 4,
        object_bytes: int = 1 << 16,
        observation_space: Space[Any] | None = None,
        preload: Sequence[str] = (),
        threads_per_worker: int | None = 1,
        start_timeout: float | None = 60.0,
        starts_serially: bool = False,
        max_concurrency: int | None = None,
        pin_workers: bool = False,
        worker_output: WorkerOutput = "inherit",
        faults: FaultPolicy | OnFault = "raise",
        record: str | os.PathLike[str] | Recording | None = None,
        advise: bool = True,
        name: str = "remuda",
        operation_of: OperationOf | None = None,
    ) -> None:
        factories, width = check_env_fns(env_fns), check_vector_size(vector_size) or 1
        mode: AutoresetMode = autoreset_name(autoreset)
        options: dict[str, Any] = {
            "backend": backend,
            "start_method": start_method or "forkserver",
            "observation_space": observation_space,
            "preload": check_preload(preload),
            "threads_per_worker": threads_per_worker,
            "start_timeout": start_timeout,
            "starts_serially": starts_serially,
            "worker_output": worker_output,
            "name": name,
        }
        self._cores = usable_cores()
        shown_warnings: ShownWarnings = {}
        if num_workers == "auto":
            own = {} if vector_size is None else {"vector_size": vector_size, "autoreset": mode}
            num_workers, shown_warnings = _measured_num_workers(factories, {**options, **own}, self._cores)
        settings = Settings(
            num_envs=len(factories) * width,
            num_workers=len(factories) if num_workers is None else num_workers,
            autoreset=mode,
            vector_size=vector_size,
            resets_ahead=resets_ahead,
            spares=spares,
            seeding=seeding,
            frames=frames,
            object_bytes=object_bytes,
            max_concurrency=max_concurrency,
            pin_workers=pin_workers,
            faults=policy_for(faults, backend),
            record=recording_for(record),
            operation_of=operation_of,
            shown_warnings=shown_warnings,
            **options,
        )
        parts = start(settings, factories, self._cores)
        # Also at garbage collection and interpreter exit; it must not refer to the pool.
        self._finalizer = weakref.finalize(self, _stop_abandoned, parts.backend, os.getpid())
        super().__init__(Engine(settings, parts), 0, range(parts.layout.num_slots))

        self.num_workers, self.backend, self.start_method = settings.num_workers, backend, settings.start_method
        self.autoreset, self.vector_size = mode, vector_size
        self.spares, self.seeding = spares, seeding
        self.single_observation_space = parts.layout.observation_space
        self.single_action_space = self._engine.action_spaces.single
        self.observation_spaces = tuple(report.observation_space for report in parts.reports[: self.num_envs])
        self.action_spaces = self._engine.action_spaces.each
        self.metadata = dict(parts.reports[0].metadata)
        self.render_mode, self.spec = parts.reports[0].render_mode, parts.reports[0].spec
        self._advise = advise and not spares  # with spares there is no choice
        self._num_parts = 1
        _pools.add(self)

    @property
    def closed(self) -> bool:
        """Whether `close` has been called."""
        return self._engine.closed

    # -- parts -----------------------------------------------------------------------------------------

    def split(self, parts: int) -> tuple[Part, ...]:
        """Divides the envs, to step some while a policy deals with the others ("double buffering").

        Each part gets an equal share of every worker's envs, so that all workers are busy with each part. From then on
        envs are sent and received through the parts; calls and `close` are the pool's as before. `split(1)` makes the
        pool whole again.

        Raises:
            ValueError: Not from 1 to `num_envs`, or to the number of vector envs, which are never divided.
            StateError: An env is in flight.
        """
        engine = self._engine
        engine.check_open()
        most, what = self.num_envs // engine.layout.width, "envs" if self.vector_size is None else "vector envs"
        if not isinstance(parts, int) or isinstance(parts, bool) or not 1 <= parts <= most:
            raise ValueError(f"expected parts to be an int from 1 to {most} (the number of {what}), got {parts!r}")
        if any(engine.hub.pending(part) for part in range(self._num_parts)):
            raise StateError("expected no env in flight when a pool is split; call recv or discard first")
        shares = divide([engine.hub.worker_of(slot) for slot in range(self.num_envs)], parts, engine.layout.width)
        engine.divide(shares)
        self._num_parts = parts
        if parts > 1:
            return tuple(Part(engine, part, share, self) for part, share in enumerate(shares))
        self._division = engine.division
        return (self,)

    def send_reset(self, *, seed: Seed = None, options: Options = None, env_ids: Iterable[int] | None = None) -> None:
        if not self.spares or env_ids is not None:
            return super().send_reset(seed=seed, options=options, env_ids=env_ids)
        self._check_open()
        self._check_quiet()
        self._engine.resets.send_with_spares(self._ids, seed, options)

    def set_reset_options(self, options: Options, env_ids: Iterable[int] | None = None) -> None:
        """Sets the options of all resets to come that name none, autoresets included, until it is called again.

        They hold for resets that begin after what the envs have been sent so far, and outlive restarts of workers and
        envs. An env that has been reset in advance, and not been asked for it yet, is reset once more. What is passed
        is copied at once, and each reset gets a copy.

        Args:
            options: For every env alike; a sequence with one mapping (or None) for each env; None: no more options.
            env_ids: Which envs; None for all. With spares there is but one mapping, for all.

        Raises:
            ValueError, TypeError: Options of another form, or that cannot be pickled. Those before stay in force.
                With `vector_size` always: vector envs reset theirs by themselves.
            BrokenPoolError, ClosedError: It can never be done.
        """
        self._engine.check_open()
        self._engine.resets.remember(None if env_ids is None else self._named(env_ids), options)

    # -- calls -----------------------------------------------------------------------------------------

    def call(self, name: str, /, *args: Any, env_ids: Iterable[int] | None = None, **kwargs: Any) -> list[Any]:
        """`env.name(*args, **kwargs)` for each env, or the attribute itself where it cannot be called.

        Wrappers are looked through. An env that is in flight answers when it is done. A vector env is asked once, and
        its answer stands for each of its envs.

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
        with_spares: bool = False,
        about: Hashable = None,
        again: Callable[..., Any] | None = None,
    ) -> Call:
        """As `apply`, but returns at once.

        Args:
            per_env_args: Arguments for each env, instead of `args` for all. Those of a vector env's must be equal.
            with_spares: The same in every spare, whose answers are not returned.
            about: What the envs are told by it: envs that are built anew are told it again, in the order in which they
                were told of different things, until they are told otherwise about the same. None: nothing lasting.
            again: Told to them in the place of `fn`: `again(env, derive, ...)`. `derive(seed)` is another seed, which
                follows from that one (from 0 up), the env and how often it was built anew; of 31 bits.
        """
        self._engine.check_open()
        targets = self._named(env_ids)
        if per_env_args is None:
            messages = [dump_for_worker(Request(fn, args, kwargs, about, again))] * len(targets)
        elif len(per_env_args) != len(targets):
            raise ValueError(f"expected {len(targets)} tuples of arguments, one for each env, got {len(per_env_args)}")
        else:
            if self._engine.layout.width > 1:
                check_common("arguments", per_env_args, targets, self._engine.layout.width)
            messages = [dump_for_worker(Request(fn, one, kwargs, about, again)) for one in per_env_args]
        call = self._exchange.call(targets, messages, about)
        if with_spares and self.spares:
            self._exchange.tell_spares(call, dump_for_worker(Request(fn, args, kwargs, about, again)), about)
        return call

    def get_attr(self, name: str, env_ids: Iterable[int] | None = None) -> list[Any]:
        """The attribute of each env, found through its wrappers."""
        return self.apply(get_attribute, name, env_ids=env_ids)

    def set_attr(self, name: str, value: Any, env_ids: Iterable[int] | None = None, *, lasting: bool = False) -> None:
        """Sets the attribute of each env to the same value; with `env_ids` None of the spares, too.

        `lasting`: also of envs that are built anew, until it is set to something else in this way.
        """
        self.apply_async(
            set_attribute,
            (name, value),
            env_ids=env_ids,
            with_spares=env_ids is None,
            about=("attribute", name) if lasting else None,
        ).result()

    def set_attrs(
        self, name: str, values: Sequence[Any], env_ids: Iterable[int] | None = None, *, lasting: bool = False
    ) -> None:
        """Sets the attribute of each env to a value of its own. `lasting` as in `set_attr`."""
        each = [(name, value) for value in values]
        about = ("attribute", name) if lasting else None
        self.apply_async(set_attribute, env_ids=env_ids, per_env_args=each, about=about).result()

    def render(self) -> list[Any]:
        """`env.render()` of each env. What a vector env returns stands for each of its envs, whole."""
        return self.call("render")

    # -- life ------------------------------------------------------------------------------------------

    @property
    def workers(self) -> tuple[Worker, ...]:
        return tuple(self._engine.backend.workers)

    def stats(self) -> PoolStats:
        """What the pool has done so far."""
        self._engine.check_open()
        hub, supervisor = self._engine.hub, self._exchange.supervisor
        meters = hub.meters()
        return PoolStats(
            steps=sum(steps for steps, _, _ in meters),
            batches=self._engine.batches.made,
            env_seconds=sum(busy for _, busy, _ in meters) / 1e9,
            cpu_seconds=sum(cpu for _, _, cpu in meters) / 1e9,
            waited_seconds=hub.waited_ns / 1e9,
            steps_by_worker=tuple(steps for steps, _, _ in meters),
            restarts=supervisor.restarts,
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
        engine = self._engine
        check_timeout(timeout)
        if not self._finalizer.alive:  # it is done, or the interpreter is exiting and has stopped the workers already
            return engine.close()
        if engine.closed:  # the first time was interrupted
            terminate = True
        else:
            engine.check_open()
            engine.close()
        deadline = Deadline(10.0 if timeout is None else timeout)
        close_errors = None
        try:
            if not terminate:
                close_errors = self._exchange.close_envs(deadline)
        except BaseException:  # Ctrl-C: nobody gets more time
            deadline = Deadline(0)
            raise
        finally:
            self._stop(0 if terminate else deadline.left())
        if close_errors is not None:
            self._exchange.raise_close_errors(close_errors)

    def _stop(self, timeout: float) -> None:
        """Where it is interrupted, closing again, or else the garbage collection, ends what is left."""
        try:
            self._engine.backend.stop(timeout)
        except RemudaError:  # some would not die; all else is freed
            self._release()
            raise
        self._release()

    def _release(self) -> None:
        self._finalizer.detach()
        self._engine.release()

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

    def _batch(self, taken: tuple[Any, ...]) -> Batch:
        batch = super()._batch(taken)
        if self._advise and self._engine.batches.made == _ADVISE_AFTER:
            self._say_advice()
        return batch

    def _say_advice(self) -> None:
        if self.backend == "serial":
            return
        stats = self.stats()
        if stats.steps == 0:
            return
        width = self._engine.layout.width  # of a vector env they are stepped at once
        stats = replace(stats, steps=stats.steps // width)
        cost = observed_cost(stats, self._engine.backend.queued_seconds(), self.num_workers, self._cores)
        what = "envs" if self.vector_size is None else "vector envs"
        if text := advice(cost, self.num_envs // width, self.num_workers, self._cores, what):
            logger.warning("%s", text)


_pools: weakref.WeakSet[Pool] = weakref.WeakSet()


def _disown_copies() -> None:
    for pool in _pools:
        pool._engine.disown()


if hasattr(os, "register_at_fork"):  # not where there is no fork
    os.register_at_fork(after_in_child=_disown_copies)


def _stop_abandoned(backend: Backend, owner: int) -> None:
    if os.getpid() == owner:  # in a forked copy the workers are somebody else's
        backend.abandon()


def _measured_num_workers(env_fns: Sequence[EnvFn], options: dict[str, Any], cores: int) -> tuple[int, ShownWarnings]:
    """Steps one env in a worker made for this alone. Returns also what that has warned of already."""
    if not env_fns:
        return 1, {}  # the settings say what is wrong with that
    with Pool(env_fns[:1], num_workers=1, advise=False, **options) as probe:
        try:
            cost = probe.apply(measure_steps, env_ids=[0])[0]
        except EnvError as error:
            raise InvalidEnvError(
                "expected an env that can be reset and stepped with random actions, to measure it for "
                f"num_workers='auto', got: {error}; say how many workers instead"
            ) from error
    return best_num_workers(cost, len(env_fns), cores), probe._engine.settings.shown_warnings
