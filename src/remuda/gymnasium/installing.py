"""Makes programs use remuda that name Gymnasium's class or make registered envs: ``install`` and ``entry_point``."""

from __future__ import annotations

import functools
import inspect
import sys
import warnings
from collections.abc import Callable
from typing import Any

import gymnasium
from gymnasium import Env
from gymnasium.vector import async_vector_env, sync_vector_env
from gymnasium.wrappers import TimeLimit

from remuda import FaultPolicy, PoolOptions
from remuda._keywords import check_keywords
from remuda.gymnasium.arguments import REFUSED
from remuda.gymnasium.releases import IS_0_29
from remuda.gymnasium.vector_env import AsyncVectorEnv

_OPTIONS = {*list(inspect.signature(AsyncVectorEnv).parameters)[1:-1], *PoolOptions.__annotations__} - REFUSED.keys()
_MODULES: dict[str, list[Any]] = {  # by class of Gymnasium: the modules that have it
    "AsyncVectorEnv": [gymnasium.vector, async_vector_env],
    "SyncVectorEnv": [gymnasium.vector, sync_vector_env],
}
if IS_0_29:  # its `make_vec` uses classes of its own
    _experimental: Any = gymnasium.experimental
    _MODULES["AsyncVectorEnv"] += [_experimental.vector, _experimental.vector.async_vector_env]
    _MODULES["SyncVectorEnv"] += [_experimental.vector, _experimental.vector.sync_vector_env]
_originals: list[tuple[Any, str, Any]] = []  # modules, names and classes: those that `install` has replaced


def install(*, sync: bool = False, **options: Any) -> None:
    """Put :class:`AsyncVectorEnv` in the place of ``gymnasium.vector.AsyncVectorEnv``, until :func:`uninstall`.

    Programs and libraries then use it unedited, such as ``gymnasium.make_vec(..., vectorization_mode="async")``::

        remuda.gymnasium.install(num_workers=8, faults="restart")
        envs = gymnasium.make_vec("CartPole-v1", num_envs=64, vectorization_mode="async")

    Modules that were imported before, and have imported the class by ``from gymnasium.vector import AsyncVectorEnv``,
    keep Gymnasium's. A second call replaces the options of the first.

    Args:
        sync: also put it in the place of ``gymnasium.vector.SyncVectorEnv``, with that class's arguments. Its attribute
            ``envs`` does not exist here, because the envs are in workers.
        **options: options of :class:`AsyncVectorEnv`. An argument that the program passes overrides them. A vector
            env with fewer envs than ``num_workers`` has a worker for each.

    Raises:
        TypeError: an option is unknown.

    Warns:
        RuntimeWarning: LeRobot is imported and ``faults`` restarts envs: it counts a fault as a success of all envs.
    """
    check_keywords("install", options, {"sync", *_OPTIONS})
    _warn_of_lerobot(options)
    uninstall()
    _replace("AsyncVectorEnv", AsyncVectorEnv, options)
    if sync:
        _replace("SyncVectorEnv", gymnasium.vector.SyncVectorEnv, {"shared_memory": False, **options})


def uninstall() -> None:
    """Put Gymnasium's classes back in their places. Vector envs that were made continue."""
    for module, name, original in _originals:
        setattr(module, name, original)
    _originals.clear()


def _replace(name: str, called_like: type[Any], options: Any) -> None:
    installed = _with_defaults(called_like, options)
    for module in _MODULES[name]:
        _originals.append((module, name, getattr(module, name)))
        setattr(module, name, installed)


def entry_point(make_env: Callable[..., Env[Any, Any]], **options: Any) -> Callable[..., AsyncVectorEnv[Any, Any]]:
    """Return a function for ``gymnasium.register(vector_entry_point=...)`` that makes an :class:`AsyncVectorEnv`::

        gymnasium.register("Mine-v0", MyEnv, vector_entry_point=remuda.gymnasium.entry_point(MyEnv, num_workers=8))
        envs = gymnasium.make_vec("Mine-v0", num_envs=64)

    Args:
        make_env: builds an env, from the keywords with which it was registered and those of ``make_vec``. It is
            called in the workers. ``max_episode_steps`` is not one of these keywords: it limits the episodes by
            ``TimeLimit``.
        **options: options of :class:`AsyncVectorEnv`. With fewer envs than ``num_workers``, each has a worker.

    Returns:
        A function of ``num_envs``, ``max_episode_steps`` and the keywords, which raises the errors of
        :class:`AsyncVectorEnv`. It can be pickled if ``make_env`` and the options can.

    Raises:
        TypeError: an option is unknown.
    """
    check_keywords("entry_point", options, _OPTIONS)

    return _EntryPoint(make_env, options)


class _EntryPoint:
    """The function that `entry_point` returns. It can be pickled if `make_env` and the options can."""

    def __init__(self, make_env: Callable[..., Env[Any, Any]], options: Any) -> None:
        self._make_env, self._options = make_env, options

    def __call__(
        self, num_envs: int = 1, max_episode_steps: int | None = None, **kwargs: Any
    ) -> AsyncVectorEnv[Any, Any]:
        build = functools.partial(_build_env, self._make_env, max_episode_steps, kwargs)
        return AsyncVectorEnv([build] * num_envs, **_fitting(self._options, num_envs))

    def __deepcopy__(self, _: Any) -> _EntryPoint:
        """Returns itself, like a function: `gymnasium.make_vec` copies the spec, and `make_env` may be a method."""
        return self


def _build_env(
    make_env: Callable[..., Env[Any, Any]], max_episode_steps: int | None, kwargs: dict[str, Any]
) -> Env[Any, Any]:
    env = make_env(**kwargs)
    return env if max_episode_steps is None else TimeLimit(env, max_episode_steps)


def _with_defaults(called_like: type[Any], options: Any) -> type[AsyncVectorEnv[Any, Any]]:
    """Returns a subclass of `AsyncVectorEnv` with other defaults, and the positional arguments of another class."""
    signature = inspect.signature(called_like)

    class Installed(AsyncVectorEnv[Any, Any], gymnasium.vector.VectorEnv):
        __doc__ = AsyncVectorEnv.__doc__

        def __init__(self, env_fns: Any, *args: Any, **kwargs: Any) -> None:
            _warn_of_lerobot({**options, **kwargs})
            positional = signature.bind_partial(None, *args).arguments
            del positional[next(iter(positional))]  # `env_fns`
            if twice := positional.keys() & kwargs.keys():
                raise TypeError(f"{called_like.__name__}() got multiple values for argument {min(twice)!r}")
            env_fns, given = list(env_fns), {**positional, **kwargs}
            defaults = {name: value for name, value in options.items() if name not in given}
            super().__init__(env_fns, **_fitting(defaults, len(env_fns)), **given)

    Installed.__name__ = Installed.__qualname__ = AsyncVectorEnv.__name__
    return Installed


def _fitting(options: Any, num_envs: int) -> dict[str, Any]:
    """Returns options for any number of envs with at most as many workers as there are envs."""
    workers = options.get("num_workers")
    return {**options, "num_workers": min(workers, num_envs)} if isinstance(workers, int) else dict(options)


def _warn_of_lerobot(options: Any) -> None:
    if "lerobot" in sys.modules and FaultPolicy.of(options.get("faults", "raise")).restarts:
        warnings.warn(
            "expected faults='raise' for LeRobot, got a policy that restarts envs: LeRobot counts the episode of an "
            "env that failed as a success of all envs, because the info of a fault has no `is_success`",
            RuntimeWarning,
            stacklevel=3,
        )
