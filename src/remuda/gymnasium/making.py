"""``make_vec``: ``gymnasium.make_vec`` with remuda as the vectorizer."""

from __future__ import annotations

import copy
import functools
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import gymnasium
import numpy as np
from gymnasium import Env
from gymnasium.envs.registration import EnvSpec, _find_spec

from remuda import FaultPolicy, PoolOptions
from remuda._keywords import did_you_mean
from remuda.gymnasium.arguments import REFUSED
from remuda.gymnasium.vector_env import AsyncVectorEnv

if TYPE_CHECKING:
    from gymnasium.envs.registration import VectorizeMode  # Gymnasium 0.29 lacks it

Wrappers: TypeAlias = Sequence[Callable[[Env[Any, Any]], Env[Any, Any]]]

_KEYWORDS = {*inspect.signature(AsyncVectorEnv).parameters, *PoolOptions.__annotations__}
_KEYWORDS -= {"env_fns", "options", "name"}  # `name` goes to the env: many envs have an argument `name`


def make_vec(
    id: str | EnvSpec,
    num_envs: int = 1,
    vectorization_mode: VectorizeMode | str | None = None,
    vector_kwargs: dict[str, Any] | None = None,
    wrappers: Wrappers | None = None,
    **kwargs: Any,
) -> AsyncVectorEnv[Any, Any]:
    """Make ``num_envs`` copies of a registered env, stepped in parallel.

    It has the arguments of :func:`gymnasium.make_vec`, and the options of :class:`AsyncVectorEnv` as keywords::

        envs = remuda.make_vec("CartPole-v1", num_envs=64, num_workers=2, autoreset_mode="SameStep")

    Args:
        id: an env id ("CartPole-v1", "module:Env-v0"), or an ``EnvSpec``. The ``spec`` of an env made here
            makes it again.
        num_envs: the number of envs.
        vectorization_mode: ``None`` or "async"; :func:`gymnasium.make_vec` has the other modes.
        vector_kwargs: options of :class:`AsyncVectorEnv`, as an alternative to keywords.
        wrappers: applied to each env, in order, in its worker.
        **kwargs: options of :class:`AsyncVectorEnv`, those of :class:`remuda.PoolOptions` included. All other keywords
            are passed to :func:`gymnasium.make`, also ``name`` (the workers' name is in ``vector_kwargs``), and
            keywords that the env is registered with. If an env has another argument with the name of an option, build
            the :class:`AsyncVectorEnv` yourself.

    Returns:
        The vector env, with ``num_envs`` envs that are built but not reset.

    Raises:
        gymnasium.error.Error: the env does not exist, or has no entry point for a single env.
        TypeError: an option is unknown or not possible here.
        ValueError: ``vectorization_mode`` or ``num_envs`` has another value.
    """
    spec = copy.deepcopy(id if isinstance(id, EnvSpec) else _find_spec(id))
    if spec.entry_point is None:
        raise gymnasium.error.Error(
            f"Cannot create vectorized environment for {spec.id} because it doesn't have an entry point defined."
        )
    mode = getattr(vectorization_mode, "value", vectorization_mode)
    if mode not in (None, "async"):
        raise ValueError(
            f"expected vectorization_mode=None or 'async', got {mode!r}: use gymnasium.make_vec for the other modes."
        )

    # If `id` is a vector env's spec, its `kwargs` are the arguments of an earlier `make_vec`. As in Gymnasium,
    # the recorded `num_envs`, `wrappers` and `vector_kwargs` override those of this call.
    recorded, spec.kwargs = spec.kwargs, {}
    recorded.pop("vectorization_mode", None)
    num_envs = recorded.pop("num_envs", num_envs)
    wrappers = recorded.pop("wrappers", wrappers) or ()
    options = dict(recorded.pop("vector_kwargs", vector_kwargs) or {})
    options |= {name: kwargs.pop(name) for name in (_KEYWORDS & kwargs.keys()) - recorded.keys()}
    if "vector_size" in options:
        raise TypeError("make_vec() takes no vector_size=: give AsyncVectorEnv the functions that build vector envs")
    if not isinstance(num_envs, (int, np.integer)) or num_envs < 1:
        raise ValueError(f"expected num_envs to be an int from 1 up, got {num_envs!r}")
    env_kwargs = {**recorded, **kwargs}

    build = functools.partial(_build_env, spec, env_kwargs, wrappers)
    policy = FaultPolicy.of(options.get("faults", "raise"))
    is_rebuilt = policy.restarts or policy.renew_every is not None  # then each env has a worker of its own
    defaults = {"shared_memory": False, **({} if is_rebuilt else {"num_workers": "auto"})}  # False accepts every space
    try:
        envs: AsyncVectorEnv[Any, Any] = AsyncVectorEnv([build] * num_envs, **{**defaults, **options})
    except TypeError as error:
        if misspelt := _misspelt_option(error, kwargs):
            raise TypeError(misspelt) from error
        raise
    # From this spec, the vector env can be made again. It has the arguments that are not defaults.
    envs.spec = copy.deepcopy(spec)
    given = {"num_envs": num_envs if num_envs > 1 else None, "vector_kwargs": options, "wrappers": wrappers}
    envs.spec.kwargs = {**env_kwargs, "vectorization_mode": "async", **{name: it for name, it in given.items() if it}}
    return envs


def _misspelt_option(error: TypeError, kwargs: Mapping[str, Any]) -> str | None:
    """Returns the text of an error if the env refuses a keyword that resembles an option, else None."""
    unknown = re.search(r"unexpected keyword argument '(\w+)'", str(error))
    if unknown is None or unknown[1] not in kwargs:
        return None
    if unknown[1] == "name":
        hint = "; the workers' goes into vector_kwargs"
    elif not (hint := did_you_mean(unknown[1], ["num_envs", *sorted(_KEYWORDS - REFUSED.keys())])):
        return None
    return f"make_vec() got an unexpected keyword argument {unknown[1]!r}, which the env does not accept either{hint}"


def _build_env(spec: EnvSpec, env_kwargs: dict[str, Any], wrappers: Wrappers) -> Env[Any, Any]:
    env = gymnasium.make(spec, **env_kwargs)
    for wrapper in wrappers:
        env = wrapper(env)
    return env
