"""Calls policies: converts arrays and tensors, passes a `PolicyContext` to those that accept it, keeps their states."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from remuda._training.tasks.unit import Unit

Ids: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
Flags: TypeAlias = "np.ndarray[Any, np.dtype[np.bool_]]"


class Acts(Protocol):
    """A policy that is an object with a method `act`."""

    @property
    def act(self) -> Callable[..., Any]: ...


Policy: TypeAlias = "Callable[..., Any] | Acts"


@dataclass
class PolicyContext:
    """The envs that a policy acts for in one call. A policy with a parameter `context` receives it::

        class Recurrent(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.cell, self.head = torch.nn.GRUCell(4, 64), torch.nn.Linear(64, 2)

            def initial_state(self, k):
                return torch.zeros(k, 64)

            def forward(self, obs, context):
                context.state = self.cell(obs, context.state)
                return self.head(context.state).argmax(-1)

    Attributes:
        env_ids: (k,) int64: the ids of the envs in the pool.
        episode_starts: (k,) bool: whether the observation is the first of an episode.
        rng: The generator of this policy. It continues from call to call, also after `ClusterPool.publish`. Each shard
            has its own stream.
        shard: The index of the shard on which the policy acts; 0 without a cluster.
        state: The policy's state for these envs: arrays or tensors with k rows, or dicts and tuples of them. Envs that
            begin an episode have rows of `policy.initial_state(count)`. The policy assigns the new state here, with
            the same dtypes and shapes of rows, for the next call for these envs. None if the policy has no method
            `initial_state`.
        units: (k,): in `evaluate_tasks`, the episodes that the envs play, each with a generator in place of `rng`; else
            empty.
    """

    env_ids: Ids
    episode_starts: Flags
    rng: np.random.Generator
    shard: int = 0
    state: Any = None
    units: tuple[Unit, ...] = ()


def check_policy(policy: Any) -> None:
    """Raises TypeError unless the policy can be called or has a method `act`."""
    if not callable(policy) and not callable(getattr(policy, "act", None)):
        raise TypeError(
            "expected policy to be a function of observations that returns actions, or an object with a method act, "
            f"got {policy!r}; a model of Stable-Baselines3 becomes one by "
            "lambda obs: model.predict(obs, deterministic=True)[0]"
        )


class Actor:
    """Prepares the calls of a policy for the envs of one pool, and takes their results::

        context = actor.context_for(env_ids, episode_starts)
        actions, columns = actor.finish(actor.policy(obs, **context), **context)

    Attributes:
        policy: Called with observations, and the keyword arguments that `context_for` returns.
        rng: See `PolicyContext`.
    """

    def __init__(
        self, policy: Policy, num_envs: int, rng: np.random.Generator, *, shard: int = 0, first_env: int = 0
    ) -> None:
        """`num_envs` is the pool's number of envs. `first_env`: on a cluster, the global id of its first env."""
        self._all, self._shard, self._first_env = np.arange(num_envs), shard, first_env
        self.rng = rng
        self._state: Any = None
        self._is_own = False  # whether no policy has the memory of `_state`, so that rows of it may be written
        self._rows: Any = slice(None)  # the rows of `_state` that belong to the envs of the latest call
        self.use(policy)

    def use(self, policy: Any) -> None:
        """Replaces the policy. The envs' states are kept if the new policy's states have the same form."""
        function = policy.act if hasattr(policy, "act") else policy
        is_module = _is_module(policy)
        # The device of a module's first parameter; None: torch's default.
        self._device = next((one.device for one in policy.parameters()), None) if is_module else None
        self.policy = _with_tensors(function, self._device) if is_module else function
        self._initial_state = getattr(policy, "initial_state", None)
        self._takes_turn = _takes_turn(policy.forward if is_module and function is policy else function)
        if self._state is not None and (self._initial_state is None or _forms(self._fresh(1)) != _forms(self._state)):
            self._state = None

    def context_for(self, env_ids: Ids, episode_starts: Callable[[], Flags]) -> dict[str, PolicyContext]:
        """Returns the keyword arguments with which to call `policy` for the envs in `env_ids`.

        Args:
            env_ids: (k,): the ids of the envs in the pool here.
            episode_starts: Returns `PolicyContext.episode_starts`.
        """
        if not self._takes_turn:
            return {}
        is_whole = np.array_equal(env_ids, self._all)
        self._rows = slice(None) if is_whole else env_ids.copy()  # copied: torch warns about read-only arrays
        context = PolicyContext(env_ids + self._first_env, episode_starts(), self.rng, self._shard)
        context.state = self._state_of(self._rows, context.episode_starts)
        return {"context": context}

    def finish(self, answer: Any, context: PolicyContext | None = None) -> tuple[Any, dict[str, Any]]:
        """Splits a policy's result into actions and further columns of the rollout. Keeps the policy's new states."""
        if context is not None:
            self._keep(self._rows, context.state)
        has_columns = isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[1], dict)
        return answer if has_columns else (answer, {})

    # -- the policy's states for the envs -----------------------------------------------------------------

    def _fresh(self, count: int) -> Any:
        assert self._initial_state is not None  # the caller has checked this
        return self._initial_state(count)

    def _state_of(self, rows: Any, starts: Flags) -> Any:
        """Returns the policy's state for some envs. An env that begins an episode gets an initial state."""
        if self._initial_state is None:
            return None
        if self._state is None:
            self._state, self._is_own = self._to_device(self._fresh(len(self._all))), False
        if not (self._is_own or isinstance(rows, slice)):  # before the policy writes its own memory
            self._state, self._is_own = _map(lambda kept: _copy(_detached(kept)), self._state), True
        state = _map(lambda kept: kept[rows], self._state)
        if not starts.any():
            return state
        state, fresh = _map(_copy, state), self._to_device(self._fresh(int(starts.sum())))
        _each(lambda leaf, first: leaf.__setitem__(starts, first), state, fresh)
        return state

    def _keep(self, rows: Any, state: Any) -> None:
        if self._initial_state is None:
            return
        # Otherwise the state would be cast or repeated if the policy acts for some of the envs, and only then.
        given, kept = None if state is None else _forms(state), _forms(self._state)
        if given != kept:
            raise TypeError(
                f"expected context.state to have rows of the shapes and dtypes of initial_state, {kept}, got {given}"
            )
        _map(partial(_check_rows, len(self._all) if isinstance(rows, slice) else len(rows)), state)
        if isinstance(rows, slice):
            self._state, self._is_own = _map(_detached, state), False
        else:
            _each(lambda kept, leaf: kept.__setitem__(rows, _detached(leaf)), self._state, state)

    def _to_device(self, state: Any) -> Any:
        return state if self._device is None else _map(lambda leaf: leaf.to(self._device), state)


def _is_module(policy: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(policy, torch.nn.Module)


def _with_tensors(function: Callable[..., Any], device: Any) -> Callable[..., Any]:
    """Wraps a policy that takes and returns tensors as one that takes and returns arrays."""
    torch = sys.modules["torch"]

    def with_tensors(obs: Any, **context: PolicyContext) -> Any:
        with torch.no_grad():
            return _map(_array, function(_map(lambda leaf: torch.as_tensor(leaf, device=device), obs), **context))

    return with_tensors


def _takes_turn(function: Any) -> bool:
    try:
        return "context" in inspect.signature(function).parameters
    except (TypeError, ValueError):  # raised for native code, which has no signature
        return False


def _array(value: Any) -> Any:
    """Returns a tensor as an array. One of bfloat16 or float8, which NumPy lacks, becomes float32."""
    torch = sys.modules["torch"]
    if not isinstance(value, torch.Tensor):
        return value
    is_known = not value.is_floating_point() or value.dtype in (torch.float16, torch.float32, torch.float64)
    return (value if is_known else value.float()).detach().cpu().numpy()


def _detached(leaf: Any) -> Any:
    return leaf.detach() if hasattr(leaf, "detach") else leaf


def _copy(leaf: Any) -> Any:
    return leaf.clone() if hasattr(leaf, "clone") else leaf.copy()


def _map(function: Callable[[Any], Any], value: Any) -> Any:
    """Returns a nest of dicts and tuples with `function` applied to each leaf."""
    if isinstance(value, dict):
        return {key: _map(function, child) for key, child in value.items()}
    if isinstance(value, tuple):
        return tuple(_map(function, child) for child in value)
    return function(value)


def _each(function: Callable[[Any, Any], object], one: Any, other: Any) -> None:
    """Calls `function` with each leaf of the nest `one` and the corresponding leaf of the nest `other`."""
    if isinstance(one, dict):
        for key, child in one.items():
            _each(function, child, other[key])
    elif isinstance(one, tuple):
        for child, twin in zip(one, other, strict=True):
            _each(function, child, twin)
    else:
        function(one, other)


def _forms(state: Any) -> Any:
    """Returns the form of a policy's state: its dicts and tuples, and the shape and dtype of one row of each leaf."""
    return _map(lambda leaf: (tuple(leaf.shape[1:]), str(leaf.dtype).removeprefix("torch.")), state)


def _check_rows(envs: int, leaf: Any) -> None:
    if len(leaf) != envs:
        raise ValueError(f"expected context.state to have {envs} rows, one for each env of the call, got {len(leaf)}")
