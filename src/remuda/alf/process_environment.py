"""``ProcessEnvironment``: one env in a process of its own."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import alf

from remuda import Call, EnvProgress, Pool, RemudaError, StateError
from remuda._faces.episode_counter import EpisodeCounter, rename_operations
from remuda._faces.hosting import call_method
from remuda._faces.pool_beneath import log_close_errors
from remuda._keywords import names_keywords
from remuda.alf import worker
from remuda.alf.configuration import Configuration
from remuda.alf.errors import translated
from remuda.alf.remote_environment import Promise, RemoteEnvironment


@dataclass
class _OpenCall:
    """A call with the env's operation and progress. `call` is None until it is sent."""

    operation: str
    progress: EnvProgress
    call: Call | None = None

    @property
    def is_answered(self) -> bool:
        return self.call is not None and self.call.done


class _OpenCalls:
    """The unanswered calls of an env, in order, each with its operation.

    Fault reports need the operation, because the pool sends even resets and steps as calls.
    """

    def __init__(self) -> None:
        self._open: deque[_OpenCall] = deque()
        self._counter = EpisodeCounter()
        self._last_step: Call | None = None

    def send(self, operation: str, send: Callable[[], Call]) -> Call:
        """Sends a call by `send`, and returns it. `operation` is "build", "reset", "step" or "call".

        It is counted before it is sent, because the env may die of it at once, which is reported.
        """
        while self._open and self._open[0].is_answered:
            self._open.popleft()
        if operation == "step" and self._is_over():
            operation = "reset"  # ALF's envs reset when they are stepped after the end of an episode
        self._counter.count(operation)
        sent = _OpenCall(operation, self._counter.progress(0))
        self._open.append(sent)
        try:
            sent.call = send()
        except BaseException:
            self._open.remove(sent)
            raise
        if operation in ("reset", "step"):
            self._last_step = sent.call
        return sent.call

    def rename_operation(self, operation: str, where: EnvProgress) -> tuple[str, EnvProgress]:
        """Returns operation and progress for a report. Replaces "call" by the operation of the first open call."""
        if operation != "call":
            return operation, self._counter.progress(where.env_id)
        # A copy, because a thread of the pool calls this while the program sends calls.
        unanswered = ((one.operation, one.progress) for one in self._open.copy() if not one.is_answered)
        return next(unanswered, (operation, where))

    def _is_over(self) -> bool:
        """Whether the latest time step is known to be LAST. If it is a list of leaves, this is not known."""
        if self._last_step is None or not self._last_step.done:
            return False
        try:
            time_step = self._last_step.result()[0]
        except RemudaError:
            return False
        return bool(getattr(time_step, "step_type", None) == worker.LAST)


@alf.configurable("RemudaProcessEnvironment")
@names_keywords()
class ProcessEnvironment(RemoteEnvironment):
    """Runs one env in a process of its own, and calls it: ALF's ``ProcessEnvironment``.

    Time steps are pickled. To step many envs at once, use the parallel envs of this package.

    Args:
        env_constructor: makes the env, in its process: ``env_constructor(env_id=env_id)``.
        env_id: the argument of the constructor.
        flatten: `step` takes, and `step` and `reset` return, lists of leaves in the order of ``alf.nest.flatten``.
        fast: not used.
        num_envs: not used.
        torch_num_threads_per_env: the number of PyTorch's threads in the process; ``None`` does not change it.
        start_method: the start method of the process: "fork", "spawn" or "forkserver". Only "fork" keeps methods and
            globals of modules that the program has patched.
        name: the name of the process, which `ps` shows.
    """

    def __init__(
        self,
        env_constructor: Callable[..., Any],
        env_id: int | None = None,
        flatten: bool = False,
        fast: bool = False,
        num_envs: int = 0,
        torch_num_threads_per_env: int | None = 1,
        start_method: Literal["fork", "spawn", "forkserver"] = "fork",
        name: str = "",
    ) -> None:
        super().__init__(self._ask_pool)
        self._constructor, self._env_id, self._flatten = env_constructor, env_id, flatten
        self._threads, self._start_method = torch_num_threads_per_env, start_method
        self._name = name or f"ProcessEnvironment-{env_id}"
        self._pool: Pool | None = None
        self._open_calls = _OpenCalls()
        self._made: Promise | None = None

    def start(self, wait_to_start: bool = True) -> None:
        """Start the process. With ``wait_to_start=False`` return at once; then call :meth:`wait_start`.

        Raises:
            StateError: a RuntimeError: it was started before.
            EnvError: the constructor raised.
            WorkerDiedError: the process died meanwhile.
        """
        if self._pool is not None:
            raise StateError("expected a ProcessEnvironment that is started once, got another start()")
        configuration = Configuration.for_workers(self._start_method)
        setting = worker.Setting(is_process=True, torch_threads=self._threads, configuration=configuration)
        constructor, env_id = self._constructor, self._env_id
        self._pool = Pool(
            [lambda: worker.CalledEnv(constructor, env_id, setting)],
            num_workers=1,
            start_method=self._start_method,
            threads_per_worker=self._threads,
            start_timeout=None,
            log_advice=False,
            name=self._name,
        )
        rename_operations(self._pool, self._open_calls.rename_operation)
        self._made = self._promise(worker.CalledEnv.make)
        if wait_to_start:
            self.wait_start()

    def wait_start(self) -> None:
        """Wait until the env is built. Raises the errors of :meth:`start`, and StateError before :meth:`start`."""
        if self._made is None:
            raise StateError("expected start() before wait_start()")
        try:
            self._made()
        except BaseException:
            self.close()
            raise

    def call(self, name: str, *args: Any, **kwargs: Any) -> Promise:
        function = worker.call_with_leaves if self._flatten else call_method
        return self._promise(function, name, args, kwargs)

    @translated
    def _ask_pool(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Call:
        if self._pool is None:
            raise StateError("expected start() before anything else")
        return self._open_calls.send(_operation(function, args), partial(self._pool.apply_async, function, args))

    def close(self) -> None:
        """Wait for the call under way, close the env and end its process. Closing again does nothing.

        An exception of the env's ``close`` is logged. The process is killed after 10 seconds.
        """
        if self._pool is not None:
            with log_close_errors():
                self._pool.close()


def _operation(function: Callable[..., Any], args: tuple[Any, ...]) -> str:
    """Returns the env's operation in a call: "build", "reset", "step" or "call"."""
    if function is worker.CalledEnv.make:
        return "build"
    is_method = function in (call_method, worker.call_with_leaves)
    return args[0] if is_method and args[0] in ("reset", "step") else "call"
