"""The caller's side of one env in a worker: sends calls to the env, and receives the answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from alf.utils.schedulers import get_all_progresses

from remuda import Call
from remuda._faces.hosting import call_method, get_attribute
from remuda.alf import worker
from remuda.alf.errors import EnvError, translated


class Promise:
    """The answer to a call, which may arrive later. Call the promise to get the answer, as often as needed."""

    def __init__(self, answers: Call) -> None:
        self._answers = answers

    @translated
    def __call__(self) -> Any:
        """Wait for the answer.

        Raises:
            EnvError: the env raised.
            WorkerDiedError: its process died. (EnvTimeoutError is one of its kinds.)
            ClosedError: it was closed before the answer came.
        """
        return self._answers.result()[0]


def _spec_method(name: str) -> Any:
    def spec(self: HasSpecs) -> Any:
        """Returns the env's spec with the name of this method. The spec describes one row."""
        return self._spec(name)

    spec.__name__ = name
    return spec


class HasSpecs:
    """Methods that return the specs of envs. Subclasses implement `_spec`, which finds a spec by its name."""

    action_spec = _spec_method("action_spec")
    observation_spec = _spec_method("observation_spec")
    reward_spec = _spec_method("reward_spec")
    time_step_spec = _spec_method("time_step_spec")
    env_info_spec = _spec_method("env_info_spec")

    def _spec(self, name: str) -> Any:
        raise NotImplementedError


class RemoteEnvironment(HasSpecs):
    """An env in a worker. If a step or reset is under way, a call runs after it.

    All other attributes are fetched from the env. Specs are fetched once.
    """

    def __init__(self, ask: Callable[[Callable[..., Any], tuple[Any, ...]], Call]) -> None:
        """`ask(function, args)` sends the call ``function(hosted_env, *args)`` to the worker."""
        self._ask = ask
        self._specs: dict[str, Any] = {}

    def call(self, name: str, *args: Any, **kwargs: Any) -> Promise:
        """Call a method of the env, and return at once.

        Args:
            name: the name of the method.
            *args: arguments of the method.
            **kwargs: keywords of the method.

        Returns:
            A promise of the result. Calling the promise waits for the result and returns it.

        Raises:
            BrokenPoolError, ClosedError: the env can never answer.
        """
        return self._promise(call_method, name, args, kwargs)

    @translated
    def _promise(self, function: Callable[..., Any], *args: Any) -> Promise:
        return Promise(self._ask(function, args))

    def reset(self, blocking: bool = True) -> Any:
        """Reset the env. Returns its time step, a nest of arrays; with ``blocking=False`` a promise of it."""
        promise = self.call("reset")
        return promise() if blocking else promise

    def step(self, action: Any, blocking: bool = True) -> Any:
        """Step the env with a nest of arrays. Returns its time step; with ``blocking=False`` a promise of it."""
        promise = self.call("step", action)
        return promise() if blocking else promise

    def render(self, mode: str = "human") -> Any:
        """Return the result of the env's ``render``."""
        return self.call("render", mode)()

    def sync_progress(self) -> None:
        """Send the progress of the training to the env's schedulers, and return at once."""
        self._promise(worker.update_progress, get_all_progresses())

    def _spec(self, name: str) -> Any:
        if name not in self._specs:
            self._specs[name] = self.call(name)()
        return self._specs[name]

    def __getattr__(self, name: str) -> Any:
        """Fetch an attribute of the env. Raises AttributeError if the env does not have it."""
        if name.startswith("__") or "_ask" not in self.__dict__:
            raise AttributeError(name)
        try:
            return self._promise(get_attribute, name)()
        except EnvError as error:
            if isinstance(error.__cause__, AttributeError):
                raise AttributeError(str(error.__cause__)) from error
            raise
