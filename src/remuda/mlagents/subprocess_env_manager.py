"""``SubprocessEnvManager``: ML-Agents' env manager on a remuda pool."""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, TypeVar

from mlagents.trainers import subprocess_env_manager as original
from mlagents.trainers.action_info import ActionInfo
from mlagents.trainers.env_manager import EnvironmentStep, EnvManager
from mlagents.trainers.settings import RunOptions, TrainerSettings
from mlagents.trainers.subprocess_env_manager import EnvironmentCommand, EnvironmentResponse, UnityEnvWorker
from mlagents_envs.base_env import BaseEnv, BehaviorSpec
from mlagents_envs.side_channel.side_channel import SideChannel
from mlagents_envs.timers import hierarchical_timer, timed

from remuda import FaceOptions, Pool, PoolOptions, StateError
from remuda._faces.episode_counter import rename_operations
from remuda._faces.pool_beneath import HasNoPool, log_close_errors
from remuda._faces.worker_defaults import set_local_defaults
from remuda._keywords import names_keywords
from remuda._wire.pickling import dump
from remuda.mlagents.arguments import REFUSED, check_arguments, policy_of
from remuda.mlagents.restarts import Restarts
from remuda.mlagents.step_queue import StepQueue
from remuda.mlagents.worker import Worker

if TYPE_CHECKING:
    from typing_extensions import Unpack  # `Unpack` is in `typing` since Python 3.11

_logger = logging.getLogger("remuda")
_DRAIN_TIMEOUT = 60.0  # the seconds to wait for steps in flight before all envs are reset after a restart

EnvFactory = Callable[[int, list[SideChannel]], BaseEnv]
P = ParamSpec("P")
T = TypeVar("T")


def _interruptible(
    method: Callable[Concatenate[SubprocessEnvManager, P], T],
) -> Callable[Concatenate[SubprocessEnvManager, P], T]:
    """Decorates methods of the manager. If an interrupt such as Ctrl-C ends one, the envs must be reset."""

    @wraps(method)
    def interruptible(self: SubprocessEnvManager, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(self, *args, **kwargs)
        except Exception:
            raise
        except BaseException:
            self._must_reset = True
            raise

    return interruptible


@names_keywords(PoolOptions.__annotations__, REFUSED)
class SubprocessEnvManager(HasNoPool, EnvManager):  # type: ignore[misc]  # ML-Agents has no types
    """Steps many envs of ML-Agents in parallel, in worker processes, and returns steps as soon as they arrive.

    A worker that fails is restarted, within the quotas of ``run_options.env_settings``. The episodes of its
    agents end as interrupted, with reward 0 and the last observation again. The other envs continue.

    Args:
        env_factory: Builds an env, in its worker, from the worker's number and a list of side channels.
        run_options: The settings of the envs and their restarts.
        n_env: The number of envs.
        reset_all_on_restart: Reset all envs after a restart, and drop all unfinished episodes, as the original does.
        start_method: The start method of workers: "forkserver", "spawn", "fork", or ``None``, as for a pool. Only
            workers of "fork" see methods and globals of modules that the program has patched.
        max_concurrency: The largest number of workers that run at once.
        **options: The other options of :class:`remuda.PoolOptions`: ``num_workers``, ``object_bytes``, ``crash_dir``
            and so on. ``faults`` defaults to "restart"; with "raise" an env's exception is raised at once. A
            :class:`remuda.FaultPolicy` sets only the deadlines and ``backoff``, because ML-Agents has its own quotas.
            ``step_timeout`` applies to each step, each reset and the building of an env. ``start_timeout`` applies to
            the workers, because the first reset builds the envs. ``num_workers="auto"`` is refused, because a game
            computes in another process, which is not measured. ``preload`` defaults to ``("remuda.mlagents.worker",)``,
            ``object_bytes`` to 1 MiB and ``name`` to "mlagents".

    Attributes:
        env_workers: One for each env: ``worker_id``, ``process``, ``waiting``, ``previous_step``,
            ``previous_all_action_info``, ``closed``.
        step_queue: The answers of the workers.
        workers_alive: The number of workers; 0 after :meth:`close`.
        env_factory, run_options: The arguments.
        env_parameters: The parameters that were set last.
        restart_counts: The number of restarts of each worker.
        recent_restart_timestamps: The times of these restarts, within ``restarts_rate_limit_period_s``.
        policies, agent_managers, first_step_infos: See ML-Agents' ``EnvManager``.

    Raises:
        TypeError: The factory cannot be pickled, or an option is unknown.
        ValueError: An option has an invalid value.
        remuda.StartTimeoutError, remuda.ResourceError: The workers cannot be started.
    """

    first_step_infos: list[EnvironmentStep]

    _why_no_pool = "a step of ML-Agents is a message about a changing set of agents, and not a row of an env"

    def __init__(
        self,
        env_factory: EnvFactory,
        run_options: RunOptions,
        n_env: int = 1,
        *,
        reset_all_on_restart: bool = False,
        start_method: Literal["forkserver", "spawn", "fork"] | None = None,
        max_concurrency: int | None = None,
        **options: Unpack[FaceOptions],
    ) -> None:
        super().__init__()
        check_arguments(env_factory, run_options, n_env, options.get("num_workers"))
        self.env_factory, self.run_options = env_factory, run_options
        self.env_parameters: dict[str, Any] | None = None
        self._parameters: dict[str, Any] = {}  # all parameters that were set.
        self._trainings: dict[str, TrainerSettings] = {}  # all trainings that have begun.
        self._must_reset = False  # whether an error or interrupt has left envs without an episode, or answers in flight
        self.reset_all_on_restart = reset_all_on_restart
        policy, restarts = policy_of(options.get("faults", "restart"))
        options["faults"], options["log_advice"] = policy, False
        set_local_defaults(options, "mlagents")
        options.setdefault("preload", ("remuda.mlagents.worker",))
        options.setdefault("object_bytes", 1 << 20)
        self._restarts = Restarts(n_env, allowed=restarts)
        self.restart_counts = self._restarts.counts
        self.recent_restart_timestamps = self._restarts.recent

        def start() -> Pool:
            caller = os.getpid(), threading.get_ident()
            pool = Pool(
                [partial(Worker, env_factory, i, run_options, caller) for i in range(n_env)],
                start_method=start_method,
                max_concurrency=max_concurrency,
                autoreset="same_step",  # so that a restarted worker is ready when its failure is reported
                **options,
            )
            rename_operations(pool, self.step_queue.rename_operation)
            pool.reset()
            return pool

        self.step_queue = StepQueue(start)
        self.env_workers = [self.create_worker(i, self.step_queue, env_factory, run_options) for i in range(n_env)]
        self.workers_alive = n_env

    @staticmethod
    def create_worker(
        worker_id: int, step_queue: StepQueue, env_factory: EnvFactory, run_options: RunOptions
    ) -> UnityEnvWorker:
        """Returns the object for a new or restarted worker. The last two arguments are not used."""
        line = step_queue.open_line(worker_id)
        return UnityEnvWorker(step_queue.process(worker_id), worker_id, line)

    # -- steps -------------------------------------------------------------------------------------------

    @_interruptible
    def _step(self) -> list[EnvironmentStep]:
        """Sends the policies' actions to all workers that wait for actions, and sleeps until a worker has stepped.

        Returns:
            The answers that have arrived: steps, the first observations of envs that were restarted, and the ends of
            episodes that were cut off; at most one for each worker.

        Raises:
            Exception: An env raised it, and is not restarted. Its cause is the worker's traceback.
            WorkerDiedError: A UnityCommunicationException: a worker has died more often than the quotas allow.
            EnvTimeoutError: Also a UnityTimeOutException: a worker has missed a deadline more often than they allow.
            ClosedError: A UnityCommunicationException: after :meth:`close`.
            remuda.StateError: A RuntimeError: the envs must be reset first.
        """
        if self._must_reset:
            self.step_queue.check_open()
            raise StateError("expected a reset after an interrupt, or an error without a restart: call reset first")
        self._queue_steps()
        self.step_queue.wait()
        steps, timers = [], []
        for response in self._answers():
            if response.cmd == EnvironmentCommand.ENV_EXITED and self.reset_all_on_restart:
                return self._restart_and_reset_all(response)
            steps.append(self._take_in(response))
            if response.cmd == EnvironmentCommand.STEP and response.payload.timer_root:
                timers.append(response.payload.timer_root)
        if timers:
            with hierarchical_timer("workers") as workers:
                for root in timers:
                    workers.merge(root, root_name="worker_root", is_parallel=True)
        return steps

    def _queue_steps(self) -> None:
        for worker in self.env_workers:
            if not worker.waiting:
                worker.previous_all_action_info = actions = self._take_step(worker.previous_step)
                worker.send(EnvironmentCommand.STEP, actions)
                worker.waiting = True

    @timed  # type: ignore[untyped-decorator]
    def _take_step(self, last_step: EnvironmentStep) -> dict[str, ActionInfo]:
        """Returns the actions of the policies for one env, by behaviour."""
        return {
            name: self.policies[name].get_action(decisions, last_step.worker_id)
            for name, (decisions, _) in last_step.current_all_step_result.items()
            if name in self.policies
        }

    def _answers(self) -> Iterator[EnvironmentResponse]:
        """Yields all answers that have arrived, and removes them from the queue."""
        with suppress(queue.Empty):
            while True:
                yield self.step_queue.get_nowait()

    def _take_in(self, response: EnvironmentResponse) -> EnvironmentStep:
        worker_id, payload = response.worker_id, response.payload
        if response.cmd == EnvironmentCommand.ENV_EXITED:
            return self._bring_back(worker_id, payload)
        worker = self.env_workers[worker_id]
        worker.waiting = False
        if response.cmd == EnvironmentCommand.RESET:
            worker.previous_step = EnvironmentStep(payload, worker_id, {}, {})
            self._restarts.prove(worker_id)
        else:
            worker.previous_step = EnvironmentStep(
                payload.all_step_result, worker_id, worker.previous_all_action_info, payload.environment_stats
            )
        return worker.previous_step

    # -- restarts ----------------------------------------------------------------------------------------

    def _bring_back(self, worker_id: int, error: BaseException) -> EnvironmentStep:
        """Restarts a failed worker while the others continue. Returns the step that ends the episodes of its agents."""
        failed = self.env_workers[worker_id]
        ends = failed.conn.cut_off()
        self._restart(worker_id, error)
        self._reset_again(worker_id)
        return EnvironmentStep(ends, worker_id, failed.previous_all_action_info, {})

    def _restart_and_reset_all(self, first: EnvironmentResponse) -> list[EnvironmentStep]:
        self._restart(first.worker_id, first.payload)
        self._finish_steps(_DRAIN_TIMEOUT)
        self.reset(self.env_parameters)
        infos, self.first_step_infos = self.first_step_infos, []
        return infos

    def _restart(self, worker_id: int, error: BaseException) -> None:
        """Replaces a failed worker. Its next reset builds another env. If no restart is allowed, raises ``error``."""
        if (why := self._restarts.why_not(worker_id, error, self.run_options.env_settings)) is not None:
            # The pool has logged a restart, but the new worker builds no env before a request arrives.
            _logger.warning(
                "worker %d of ML-Agents gets no other env, and what was restarted for it stays empty: %s",
                worker_id,
                why,
            )
            self._must_reset = True
            raise error
        _logger.warning("worker %d of ML-Agents is restarted after %s: %s", worker_id, type(error).__name__, error)
        self._restarts.note(worker_id)
        self.env_workers[worker_id] = self.create_worker(worker_id, self.step_queue, self.env_factory, self.run_options)
        self._send_lasting(worker_id)

    def _send_lasting(self, worker_id: int) -> None:
        """Sends all parameters and trainings again, before the request that builds another env."""
        worker = self.env_workers[worker_id]
        if self._parameters:
            worker.send(EnvironmentCommand.ENVIRONMENT_PARAMETERS, self._parameters)
        for training in self._trainings.items():
            worker.send(EnvironmentCommand.TRAINING_STARTED, training)

    def _reset_again(self, worker_id: int) -> None:
        worker = self.env_workers[worker_id]
        worker.send(EnvironmentCommand.RESET)
        worker.waiting = True

    # -- resets ------------------------------------------------------------------------------------------

    @_interruptible
    def _reset_env(self, config: dict[str, Any] | None = None) -> list[EnvironmentStep]:
        """Resets all envs in parallel. First waits for steps in flight, and drops them.

        Args:
            config: Environment parameters; see :meth:`set_env_parameters`.

        Returns:
            The first observations of each env.

        Raises: See :meth:`_step`; the first reset also raises exceptions of the env factory.
        """
        self._start_over()
        self.set_env_parameters(config)
        self._finish_steps()
        self._must_reset = False
        for worker in self.env_workers:
            worker.send(EnvironmentCommand.RESET, config)
            worker.waiting = True
        return [self._first_step(worker_id) for worker_id in range(len(self.env_workers))]

    def _first_step(self, worker_id: int) -> EnvironmentStep:
        while True:
            try:
                return self._take_in(self.env_workers[worker_id].recv())
            except Exception as error:
                self._restart(worker_id, error)
                self._reset_again(worker_id)

    def _start_over(self) -> None:
        """After an error or interrupt, drops all requests and answers, and sends the lasting requests again."""
        if self._must_reset:
            self.step_queue.drop_all()
            for worker in self.env_workers:
                self._send_lasting(worker.worker_id)

    def _finish_steps(self, timeout: float | None = None) -> None:
        """Waits for all requests in flight, and drops their answers. Restarts workers that fail.

        If no restart is allowed, raises the error.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self.step_queue.is_idle:
            if not self.step_queue.wait(None if deadline is None else deadline - time.monotonic()):
                self._must_reset = True
                stuck = {worker.worker_id for worker in self.env_workers if worker.waiting}
                raise TimeoutError(f"Workers {stuck} stuck in waiting state")
            for response in self._answers():
                self.env_workers[response.worker_id].waiting = False
                if response.cmd == EnvironmentCommand.ENV_EXITED:
                    self._restart(response.worker_id, response.payload)

    def set_env_parameters(self, config: dict[str, Any] | None = None) -> None:
        """Sets environment parameters of all envs, which apply from the next step or reset on.

        Args:
            config: ``ParameterRandomizationSettings`` or numbers, by name. Other parameters do not change. Envs that
                are restarted receive all parameters again.

        Raises:
            TypeError: A parameter cannot be pickled. No parameter has changed.
        """
        dump(config)
        self._parameters.update(config or {})
        self.env_parameters = config
        for worker in self.env_workers:
            worker.send(EnvironmentCommand.ENVIRONMENT_PARAMETERS, config)

    # -- trainings, specs and parameters -----------------------------------------------------------------

    def on_training_started(self, behavior_name: str, trainer_settings: TrainerSettings) -> None:
        """Notifies the envs that the training of a behaviour begins. Training analytics report it to Unity."""
        dump((behavior_name, trainer_settings))
        self._trainings[behavior_name] = trainer_settings
        for worker in self.env_workers:
            worker.send(EnvironmentCommand.TRAINING_STARTED, (behavior_name, trainer_settings))

    @property
    @_interruptible
    def training_behaviors(self) -> Mapping[str, BehaviorSpec]:
        """The specs of all behaviours, by name. Reading them builds the envs that are not built yet.

        Raises: See :meth:`reset`.
        """
        self._start_over()
        for worker in self.env_workers:
            worker.send(EnvironmentCommand.BEHAVIOR_SPECS)
        specs: dict[str, BehaviorSpec] = {}
        errors: list[Exception] = []
        for worker in self.env_workers:  # all of them, because a later call must not find their answers
            try:
                specs.update(worker.recv().payload)
            except Exception as error:
                self._must_reset = True
                errors.append(error)
        if errors:
            raise errors[0]
        return specs

    @property
    def _running_pool(self) -> Pool | None:
        return self.step_queue.pool

    def close(self) -> None:
        """Closes the envs and ends the workers. Workers are killed after 10 seconds, as by ML-Agents.

        Exceptions that envs raise in their ``close`` are logged. Closing again does nothing.

        Raises:
            remuda.CloseTimeoutError: A worker did not end when it was killed; everything else was released.
        """
        for worker in self.env_workers:
            worker.closed = True
        self.workers_alive = 0
        with log_close_errors():
            self.step_queue.close(original.WORKER_SHUTDOWN_TIMEOUT_S)
