"""One env in a worker, to be called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from alf.utils.schedulers import get_all_progresses

from remuda import Call
from remuda.alf import worker
from remuda.alf.errors import EnvError, translated


class Promise:
    """The answer to a call, some time: call it. It may be asked again, and before or after others."""

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


class RemoteEnvironment:
    """An env that is in a worker. What it is asked waits its turn behind the step or reset that is under way.

    Any other attribute is the env's own, and is fetched from there.
    """

    def __init__(self, ask: Callable[[Callable[..., Any], tuple[Any, ...]], Call]) -> None:
        """`ask`: runs ``function(hosted_env, *args)`` there."""
        self._ask = ask
        self._specs: dict[str, Any] = {}

    def call(self, name: str, *args: Any, **kwargs: Any) -> Promise:
        """Call a method of the env, and return at once.

        Args:
            name: its name.
            *args: for the method.
            **kwargs: for the method.

        Returns:
            The promise of what it returns: call that, and it waits for the answer.

        Raises:
            BrokenPoolError, ClosedError: there is nobody to answer.
        """
        return self._promise(worker.call_method, name, args, kwargs)

    @translated
    def _promise(self, function: Callable[..., Any], *args: Any) -> Promise:
        return Promise(self._ask(function, args))

    def reset(self, blocking: bool = True) -> Any:
        """Reset the env: its time step of arrays, or with ``blocking=False`` the promise of that."""
        promise = self.call("reset")
        return promise() if blocking else promise

    def step(self, action: Any, blocking: bool = True) -> Any:
        """Step the env with a nest of arrays: its time step, or with ``blocking=False`` the promise of that."""
        promise = self.call("step", action)
        return promise() if blocking else promise

    def render(self, mode: str = "human") -> Any:
        """What the env's ``render`` returns."""
        return self.call("render", mode)()

    def sync_progress(self) -> None:
        """Tell the env's schedulers how far the training is. It does not wait until they know."""
        self._promise(worker.update_progress, get_all_progresses())

    def action_spec(self) -> Any:
        """The env's; asked for once."""
        return self._spec("action_spec")

    def observation_spec(self) -> Any:
        """The env's; asked for once."""
        return self._spec("observation_spec")

    def reward_spec(self) -> Any:
        """The env's; asked for once."""
        return self._spec("reward_spec")

    def time_step_spec(self) -> Any:
        """The env's; asked for once."""
        return self._spec("time_step_spec")

    def env_info_spec(self) -> Any:
        """The env's; asked for once."""
        return self._spec("env_info_spec")

    def _spec(self, name: str) -> Any:
        if name not in self._specs:
            self._specs[name] = self.call(name)()
        return self._specs[name]

    def __getattr__(self, name: str) -> Any:
        """Fetch an attribute of the env. Raises AttributeError if it has none of that name."""
        if name.startswith("__") or "_ask" not in self.__dict__:
            raise AttributeError(name)
        try:
            return self._promise(worker.get_attribute, name)()
        except EnvError as error:
            if isinstance(error.__cause__, AttributeError):
                raise AttributeError(str(error.__cause__)) from error
            raise
