"""Classes of a program, with methods in Python that run when objects are pickled, unpickled, compared or printed.

Workers import this module by name.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import gymnasium
import numpy as np
from gymnasium import spaces


class _Own:
    """A mixin that defines each method by which Python or a library may run code of a class, and does nothing in it."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _make, (type(self), dict(self.__dict__))

    def __getstate__(self) -> Any:
        return dict(self.__dict__)

    def __setstate__(self, state: Any) -> None:
        self.__dict__.update(state)

    def __deepcopy__(self, memo: Any) -> Any:
        return _make(type(self), dict(self.__dict__))

    def __repr__(self) -> str:
        return "an object of a class of the program"

    def __str__(self) -> str:
        return repr(self)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and str(vars(other)) == str(vars(self))

    def __hash__(self) -> int:
        return 1


def _make(kind: type[Any], state: dict[str, Any]) -> Any:
    made = kind.__new__(kind)
    made.__setstate__(state)
    return made


class OwnObject(_Own): ...


class OwnError(_Own, Exception): ...


class OwnBox(_Own, spaces.Box): ...


class OwnDiscrete(_Own, spaces.Discrete): ...


class OwnSpace(_Own, spaces.Space[Any]):
    """A space without columns."""

    def sample(self, *_: Any, **__: Any) -> OwnObject:
        return OwnObject()

    def contains(self, x: Any) -> bool:
        return isinstance(x, OwnObject)


def _raise(error: Callable[[], BaseException]) -> NoReturn:
    raise error()


def _unpicklable() -> BaseException:
    error = OwnError("holds a generator")
    error.__dict__["secret"] = (i for i in range(3))
    return error


STEP, RAISE, UNPICKLABLE, EXIT, KILL, HANG = range(6)


class OwnEnv(gymnasium.Env[Any, Any]):
    """An env of classes of the program. An action names what happens in the step.

    `second`: the behaviour of the second and later builds: "same", "fails" (the second only) or "other spaces".
    `directory`: a folder in which the builds are counted; None: they are not.
    """

    def __init__(self, directory: str | None = None, second: str = "same") -> None:
        box = OwnBox(-1, 1, (2,), np.float32)
        if directory is not None:
            built = len(list(Path(directory).iterdir()))
            (Path(directory) / f"{built}").touch()
            if second == "fails" and built == 1:
                raise OwnError("not now")
            if second == "other spaces" and built:
                box = OwnBox(-1, 1, (3,), np.float32)
        self.observation_space = spaces.Dict(numbers=box, thing=OwnSpace())
        self.action_space = OwnDiscrete(6)

    def _obs(self) -> dict[str, Any]:
        return {"numbers": np.zeros(self.observation_space["numbers"].shape, np.float32), "thing": OwnObject()}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        if options is not None and options.get("raises"):
            raise OwnError("in a reset")
        return self._obs(), {"thing": OwnObject()}

    def step(self, action: Any) -> Any:
        match int(action):
            case 1:
                raise OwnError("in a step")
            case 2:
                _raise(_unpicklable)
            case 3:
                sys.exit(3)
            case 4:
                os.kill(os.getpid(), signal.SIGKILL)
            case 5:
                threading.Event().wait()
        return self._obs(), 1.0, False, False, {"thing": OwnObject()}

    def fail(self) -> NoReturn:
        raise OwnError("in a call")

    def note(self, thing: Any) -> Any:
        return thing
