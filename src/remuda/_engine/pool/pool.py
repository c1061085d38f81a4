"""The pool: owns the workers of many envs."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import Space

from remuda import _core
from remuda._backends.base import Backend, Worker
from remuda._backends.waiting import Deadline
from remuda._engine.commands.resets import Options
from remuda._engine.engine import Engine, shares_of_parts, with_hub_lock
from remuda._engine.options.checks import check_timeout, is_int
from remuda._engine.options.pool_options import EnvFn, PoolOptions, RemoteBackend
from remuda._engine.options.settings import Settings, signature_of_pool
from remuda._engine.pool.part import Part
from remuda._engine.rollouts.columns import Declared
from remuda._engine.rollouts.rollout import Rollout
from remuda._engine.running import Phase, Running, Stoppable
from remuda._engine.seeds import Seed
from remuda._engine.startup.auto import name_trial, settle
from remuda._engine.startup.start import Inheritance, start
from remuda._engine.stats.pool_stats import PoolStats
from remuda._engine.stats.verdict import advice, say_once
from remuda._engine.tracing.trace import NUM_EVENTS, Trace, note_new_pool
from remuda._factories import check_env_fns
from remuda._keywords import gives_name_to, names_keywords
from remuda._system.cores import usable_cores
from remuda._system.finalizers import hand_over, prepare
from remuda._system.forks import run_in_children
from remuda._system.interpreter import is_exiting, is_importing_main, leave_pools_alone
from remuda.errors import RemudaError, StateError

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack  # `typing` has them since Python 3.11

_WARM_AFTER, _ADVISE_AFTER = 16, 256  # batches


@names_keywords(PoolOptions.__annotations__)
@gives_name_to(Part)
class Pool(Part):
    """Runs many envs in parallel workers.

        >>> import gymnasium, remuda
        >>> with remuda.Pool([lambda: gymnasium.make("CartPole-v1")] * 8, num_workers=2) as pool:
        ...     batch = pool.reset(seed=0)
        ...     for _ in range(100):
        ...         push_right = batch.obs[:, 2] > 0  # where the pole leans to
        ...         batch = pool.step(push_right.astype(int))
        >>> batch.obs.shape, batch.obs.dtype, batch.rewards.shape
        ((8, 4), dtype('float32'), (8,))

    A pool has two basic calls: `send` sends envs their next action, and `recv` returns the results of envs that are
    done. `step` and `reset` do both. A pool belongs to the process that made it and is used by one thread at a time.

    Args:
        env_fns: One factory for each env, spares included. They are called in the workers, or in this process if
            "auto" finds the envs too cheap for workers.
        **options: `num_workers`, `autoreset`, `faults` and the others of `remuda.PoolOptions`, which describes each.

    Attributes:
        num_envs: The number of envs without spares; of a vector env each env counts. Their ids are the slots of a
            batch.
        env_ids: (num_envs,) int64: 0, ..., num_envs - 1.
        options: dict of all `PoolOptions`, with the values in force. Changing it has no effect.
        choice: If "auto" chose the number of workers, the choice as a `remuda.stats.WorkerChoice`; else None.
        num_workers, vector_size, backend, start_method, autoreset, spares, seeding: The values of these options.
        metadata, render_mode, spec: Those of env 0.

    Raises:
        ValueError, TypeError: An argument is invalid.
        OSError: The directory for `worker_output` or `crash_dir` cannot be made or written to.
        InvalidEnvError: A factory cannot be pickled, or returned no env or the env of another factory.
        EnvError: A factory raised; its exception is the cause.
        WorkerDiedError, StartTimeoutError: A worker died or hung while it built its envs.
        ResourceError: The system allows too few file descriptors or processes.
        SpaceMismatchError: The envs' spaces do not fit into the same rows.
    """

    def __new__(cls, env_fns: Sequence[EnvFn], **options: Unpack[PoolOptions]) -> Self:
        """Creates an object of `Pool`, or of the class that `backend` names for envs on other machines."""
        backend = options.get("backend")
        kind = backend.pool_type() if cls is Pool and isinstance(backend, RemoteBackend) else cls
        made: Self = object.__new__(kind)
        return made

    def __init__(self, env_fns: Sequence[EnvFn], **options: Unpack[PoolOptions]) -> None:
        """Starts the workers and waits until they have built the envs; see the class."""
        self._start(env_fns, options)

    def _start(self, env_fns: Sequence[EnvFn], options: PoolOptions, inherited: Inheritance | None = None) -> None:
        factories = check_env_fns(env_fns)
        if is_importing_main():
            raise StateError(
                "expected a pool to be made by the program, got one made while a process imports its definitions; "
                "make the pool in a function, or put it under `if __name__ == '__main__'`"
            )
        settings = Settings.of(options, len(factories))
        prepare()
        settings, begun = settle(settings, factories, usable_cores(), _adopt)
        try:
            running = start(settings, factories, begun, inherited)
        except RemudaError as error:
            name_trial(error, settings)
            raise
        self._take_over(settings, running)

    def _take_over(self, settings: Settings, running: Running) -> None:
        """Makes running workers the workers of this pool."""
        self._is_closing = False
        # The finalizer also runs at garbage collection and interpreter exit, and must not refer to the pool.
        self._finalizer: weakref.finalize[..., Any] = weakref.finalize(
            self, _abandon, running.backend, os.getpid(), running.threads
        )
        try:
            self._begin(Engine(settings, running))
        except BaseException:  # ends the workers now, because the error's traceback keeps the pool alive
            if "_engine" in self.__dict__:
                self._engine.enter(Phase.CLOSED)
            _end(running.backend, running.threads)  # after an interrupt, the finalizer ends those that remain
            self._finalizer.detach()
            running.release()
            raise

    def _begin(self, engine: Engine) -> None:
        super().__init__(engine, 0)
        settings, running = engine.settings, engine.running
        self.options = settings.options
        self.num_workers, self.vector_size = settings.num_workers, settings.vector_size
        self.backend, self.start_method = settings.backend, settings.start_method
        self.autoreset, self.spares, self.seeding = settings.autoreset, settings.spares, settings.seeding
        self.choice = settings.choice
        self.metadata = dict(running.reports[0].metadata)
        self.render_mode, self.spec = running.reports[0].render_mode, running.reports[0].spec
        self._before: PoolStats | None = None
        is_open = not self._engine.setup.is_chosen and not self.spares and self.backend != "serial"
        if settings.log_advice and is_open:  # no advice if the number of workers is fixed, or "auto" chose it
            self._engine.batches.advise_at(_WARM_AFTER, weakref.WeakMethod(self._advise))
        _pools.add(self)
        note_new_pool(self._engine.tracer)
        self._engine.rendering.warn()

    @property
    def observation_spaces(self) -> tuple[Space[Any], ...]:
        """The observation space of each env. The spaces may differ in their bounds."""
        return tuple(report.observation_space for report in self._engine.running.reports[: self.num_envs])

    @property
    def action_spaces(self) -> tuple[Space[Any], ...]:
        """The action space of each env. The spaces may differ in their bounds."""
        return self._engine.action_spaces.each

    @property
    def closed(self) -> bool:
        """Whether `close` has been called."""
        return self._engine.closed

    # -- resets ----------------------------------------------------------------------------------------

    def send_reset(
        self,
        *,
        seed: Seed = None,
        options: Options = None,
        env_ids: Iterable[int] | None = None,
        reset_slots: bool = False,
    ) -> None:
        """Sends envs a reset and returns at once. See `reset` for the other arguments.

        Args:
            reset_slots: With spares: env i backs slot i again, as after a reset with a seed. Only for all envs.

        Raises: See `reset`.
        """
        if reset_slots and env_ids is not None:
            raise ValueError("expected env_ids=None with reset_slots=True: envs take their places together")
        if env_ids is None and self._is_divided:
            self.split(1)
        if not self.spares or env_ids is not None:
            return super().send_reset(seed=seed, options=options, env_ids=env_ids)
        self._check_open()
        self._check_quiet()
        self._engine.resets.send_with_spares(
            self._ids, seed, options, self._part, reset_slots=reset_slots or seed is not None
        )

    # -- parts -----------------------------------------------------------------------------------------

    @with_hub_lock
    def split(self, parts: int) -> tuple[Part, ...]:
        """Divides the envs, to step some while a policy acts for the others ("double buffering").

        Each part gets an equal share of every worker's envs, so that all workers are busy with each part. Afterwards
        you send and receive through the parts, and calls of a part reach its own envs. `call` and similar methods of
        the pool still reach all envs, and only the pool has `close`. `split(1)` makes the pool whole again.

        Returns: A tuple of `parts` parts; with `split(1)` a tuple of the pool itself.

        Raises:
            ValueError: `parts` is not from 1 to `num_envs`, or to the number of vector envs, which are never divided.
            StateError: An env is in flight.
        """
        engine = self._engine
        engine.check_open()
        envs, what = engine.layout.by_env(self._ids), "envs" if engine.layout.vector_size is None else "vector envs"
        most = len(envs)
        if not is_int(parts) or not 1 <= parts <= most:
            raise ValueError(f"expected parts to be an int from 1 to {most} (the number of {what}), got {parts!r}")
        if engine.running.slots.any_pending:
            raise StateError(
                "expected no env in flight when a pool is split; call recv of the parts, or discard of the pool, first"
            )
        shares = shares_of_parts([engine.running.slots.worker_of(slots[0]) for slots in envs], parts)
        first = engine.divide([[slot for env in share for slot in envs[env]] for share in shares])
        if parts > 1:
            return self._parts
        self._part = first
        return (self,)

    def _begin_rollout(self, steps: int, columns: Declared, parts: int) -> Rollout:
        if parts == 1:
            return super()._begin_rollout(steps, columns, parts)
        shares = self.split(parts)
        try:
            return Rollout(shares, steps, columns)
        except BaseException:
            if not self.pending:
                self.split(1)
            raise

    # -- life ------------------------------------------------------------------------------------------

    @property
    def workers(self) -> tuple[Worker, ...]:
        """The workers, by ascending index, even after `close`. A worker keeps its object when its process is replaced.

        Each has:
            index: int, its index.
            name: str, its name in `ps` and logs: the pool's name and the index.
            env_ids: tuple of int, the envs that it hosts. With spares worker i hosts the env of env_fns[i], which may
                back any slot; reports of faults use these ids too.
            pid: int, its process id; None if it has no process of its own (threads, the caller).
            exitcode: int, as in `subprocess`: negative for a signal; None while it runs.
            is_alive(): bool, whether it runs.
            output(limit=65536): str, the last `limit` bytes that it and its predecessors have written to stdout and
                stderr; empty with `worker_output="inherit"`.
        """
        return tuple(self._engine.backend.workers)

    def owns(self, array: np.ndarray[Any, Any]) -> bool:
        """Whether an array lies in the memory that this pool shares with its workers, instead of being a copy.

        Args:
            array: Any array.

        Raises:
            ClosedError: The pool is closed.
        """
        self._engine.check_open()
        return _core.arena_of(array) is self._engine.running.arena

    def stats(self) -> PoolStats:
        """Returns the figures of the pool so far: a snapshot. Two snapshots can be subtracted.

        It can be taken at any time, also while envs are in flight, and takes some tens of microseconds a worker.

        Raises:
            ClosedError: The pool is closed. Call `stats` before.
        """
        self._engine.check_open()
        return self._engine.stats()

    def trace(self, path: str | os.PathLike[str], *, events: int = NUM_EVENTS) -> Trace:
        """Records the events of this pool and the spans of `remuda.span`, for Perfetto or Chrome.

            with pool.trace("run.json"):
                train(pool)

        Args:
            path, events: See `remuda.trace`, which traces all pools of a program.

        Returns: The `Trace`, which has begun: a context manager with `stop`.

        Raises: See `remuda.trace`; StateError if the pool is closed.
        """
        return Trace(path, events, self._engine.tracer)

    def close(self, timeout: float | None = None, terminate: bool = False) -> None:
        """Closes the envs and ends the workers. Closing again does nothing. Arrays from the pool stay valid.

        If it is called in the middle of another call of the pool, for example by a signal handler, the pool is closed
        at the end of that call, which raises ClosedError.

        Args:
            timeout: Seconds for workers to finish their commands and close their envs (None: 10). Workers that need
                longer are killed.
            terminate: Kill the workers at once; envs are not closed.

        Raises:
            EnvError: An env's `close` raised. Everything was released nevertheless.
            WorkerDiedError: A worker died instead of closing its envs. A death in an earlier command is not raised,
                because everything in flight is dropped.
            CloseTimeoutError: A worker was still alive ten seconds after SIGKILL.
        """
        check_timeout(timeout)
        engine = self._engine
        close = partial(self._close, timeout, terminate)
        close() if engine.hub is None else engine.hub.close(close)

    def _close(self, timeout: float | None, terminate: bool) -> None:
        if self._is_closing:  # a signal handler has called close() during a close
            return
        try:
            self._is_closing = True
            self._close_envs(timeout, terminate)
        finally:
            self._is_closing = False

    def _close_envs(self, timeout: float | None, terminate: bool) -> None:
        engine = self._engine
        if not self._finalizer.alive:  # workers were stopped by an earlier close or at interpreter exit
            return engine.enter(Phase.CLOSED)
        if not engine.running.is_there:  # an earlier close was interrupted at its end
            return self._release()
        if engine.closed:  # an earlier close was interrupted
            terminate = True
        else:
            engine.check_open()
            engine.enter(Phase.CLOSED)
        deadline = Deadline(10.0 if timeout is None else timeout)
        close_errors = None
        try:
            self._exchange.supervisor.close()
            if not terminate:
                close_errors = self._exchange.close_envs(deadline)
        except BaseException:  # after Ctrl-C no worker gets more time to end
            deadline = Deadline(0)
            raise
        finally:
            self._stop(0 if terminate else deadline.left())
        if close_errors is not None:
            self._exchange.raise_close_errors(close_errors)

    def _stop(self, timeout: float) -> None:
        """Ends the workers. After an interrupt, another `close` or the garbage collection ends those that remain."""
        try:
            self._engine.stop_supervision()
            self._engine.backend.stop(timeout)
        except RemudaError:  # some workers did not die; all else is freed
            self._release()
            raise
        self._release()

    def _release(self) -> None:
        self._engine.release()
        self._finalizer.detach()  # last, because it marks the end of `close`

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(terminate=kind is not None and not issubclass(kind, Exception))

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{self.num_workers} {self.backend} workers"
        return f"<Pool of {self.num_envs} envs, {state}>"

    # -- inside ------------------------------------------------------------------------------------------

    def _advise(self) -> None:
        """Takes a snapshot of the figures. If there was an earlier one, compares the two, and may log advice."""
        stats = self._engine.stats()
        if self._before is None:
            self._before, number = stats, stats.batches + _ADVISE_AFTER
            self._engine.batches.advise_at(number, weakref.WeakMethod(self._advise))
        elif text := advice(stats - self._before):
            say_once(text)


Pool.__signature__ = signature_of_pool()  # type: ignore[attr-defined]  # for help() and editors


def succeeding_pool(env_fns: Sequence[EnvFn], options: PoolOptions, inherited: Inheritance | None) -> Pool:
    """Returns a pool that takes the place of an earlier pool of the same envs. The envs reset before they step."""
    pool: Pool = object.__new__(Pool)
    pool._start(env_fns, options, inherited)
    return pool


_pools: weakref.WeakSet[Pool] = weakref.WeakSet()


def _disown_copies() -> None:
    for pool in _pools:
        if not pool.closed:
            pool._engine.enter(Phase.COPIED)


run_in_children(_disown_copies)


def _abandon(backend: Backend, owner: int, threads: list[Stoppable]) -> None:
    """Ends the workers of a pool that was dropped, or is still open at the interpreter's exit."""
    if os.getpid() != owner:  # a forked copy of the pool must not end the workers of the owner
        return
    if leave_pools_alone():
        return
    if is_exiting():
        for pool in [pool for pool in _pools if pool._engine.backend is backend]:
            pool._engine.logs.emit()
            pool._engine.enter(Phase.CLOSED)
        if leave_pools_alone():  # checked again, because another thread may have begun to use a pool
            return
    hand_over(partial(_end, backend, threads))


def _end(backend: Backend, threads: list[Stoppable]) -> None:
    for thread in threads:
        thread.stop()
    backend.abandon()
    if backend.processes is not None:
        backend.processes.drain(lambda: 0)  # the last log records


def _adopt(settings: Settings, running: Running) -> Pool:
    """Returns a pool that takes over workers that already run."""
    pool: Pool = object.__new__(Pool)
    pool._take_over(settings, running)
    return pool
