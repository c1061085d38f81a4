"""Hosts a worker's vector envs. One call steps all slots of a vector env."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, TypeAlias

import gymnasium
import numpy as np
from gymnasium import Env
from gymnasium.vector import VectorEnv

from remuda import _core
from remuda._wire.channel import Channel
from remuda._wire.codec import SpaceCodec, coerce
from remuda._wire.computed import compute
from remuda._wire.info_columns import OF_THE_END, InfoColumn
from remuda._wire.layout import Layout
from remuda._wire.pickling import Buffers, FlaggedParts, bundle, load, unbundle
from remuda._wording import in_brief
from remuda._worker.env_report import BuiltEnvs, EnvReport, check_names, check_spaces, report
from remuda._worker.forked_children import OneProcess
from remuda._worker.host import EnvHost
from remuda._worker.reset_defaults import ResetDefaults, common_seed
from remuda._worker.vector_rows import Array, SplitInfos, VectorRows, value_of_sub_env
from remuda._worker.worker_info import HostSpec
from remuda.errors import InvalidEnvError

# The flags and the pickled part of a result; None if the columns contain the whole result.
Extra: TypeAlias = "tuple[int, Buffers] | None"

_ENV_NAMES = ("reset", "step", "close", "num_envs", "single_observation_space", "single_action_space")


def make_host(
    spec: HostSpec,
    channel: Channel,
    before_goodbye: Callable[[], None] = lambda: None,
    built: BuiltEnvs | None = None,
    silence: Callable[[bool], None] = lambda is_silent: None,
) -> EnvHost:
    """Returns a host of single envs or of vector envs. See `EnvHost` for the arguments."""
    kind = EnvHost if spec.vector_size is None else VectorHost
    return kind(spec, channel, before_goodbye, built, silence)


@dataclass(frozen=True)
class _Finals:
    """The episodes that ended in one step of a vector env with same-step autoreset.

    Attributes:
        sub_envs: (m,) int: the sub-envs with an episode that ended.
        leaves: Their terminal observations: an (m, *shape) array for each column.
        frozen: By sub-env: the terminal observation and info, as far as columns do not preserve them.
    """

    sub_envs: Array
    leaves: list[Array]
    frozen: dict[int, bytes | None]


class VectorHost(EnvHost):
    """The hooks of the loop for vector envs (see worker/vector_envs.cpp).

    A hook processes all results of a vector env before it writes any. So if it raises, the rows are unchanged.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._last_obs: dict[int, Any] = {}  # by an env's first slot: its last observation, or a copy.
        self._own_obs: dict[int, Any] = {}  # by an env's first slot: a copy of its last or an older observation.
        self._last_computed: dict[int, list[Array]] = {}  # by an env's first slot: its last computed columns
        self._rows: VectorRows | None = None

    # -- life ------------------------------------------------------------------------------------------

    def _check_kind(self, env: Any, factory: str) -> None:
        what = f"a gymnasium.vector.VectorEnv of vector_size={self.width} envs"
        if not hasattr(env, "num_envs") and hasattr(env, "observation_space"):
            raise InvalidEnvError(f"expected {factory} to return {what}, got the single env {env!r}; omit vector_size")
        check_names(env, factory, what, _ENV_NAMES)
        if isinstance(env, VectorEnv) and isinstance(env, Env):  # Gymnasium 1.x has no class that is both
            raise InvalidEnvError(
                f"expected {factory} to return {what} with the infos and the autoreset modes of Gymnasium 1.x, got "
                f"{env!r} of Gymnasium {gymnasium.__version__}; omit vector_size and build single envs"
            )
        if env.num_envs != self.width:
            raise InvalidEnvError(
                f"expected {factory} to return {what}, got one of {env.num_envs}, {env!r}; all must be of one size"
            )
        check_spaces(env, factory, ("single_observation_space", "single_action_space"))

    def _report(self, env: Any) -> EnvReport:
        computed = [one.spec(env, self.width) for one in self._computed]
        return report(env, env.single_observation_space, env.single_action_space, computed)

    def start(self, layout: Layout, arena: _core.Arena, defaults: ResetDefaults | None = None) -> _core.WorkerLoop:
        self._rows = VectorRows(layout, arena)
        return super().start(layout, arena, defaults)

    def _add_info_column(self, column: InfoColumn, place: _core.Column) -> None:
        rows: Any = place.view(self._layout.plan.rows)
        self._table.infos.add_column(self._info_columns, column, rows)

    def close_quietly(self) -> list[tuple[int, BaseException]]:
        errors = super().close_quietly()
        self._last_obs, self._own_obs, self._last_computed = {}, {}, {}
        self._rows = None  # the rows would keep the pool's memory alive
        return errors

    # -- hooks -----------------------------------------------------------------------------------------

    def reset_vector(self, slot: int, row: int, parts: Buffers | None) -> Extra:
        """Resets all sub-envs of a vector env. `parts`: the pickled arguments of the reset."""
        arguments = {} if parts is None else self.reset_arguments(slot, parts)
        assert isinstance(arguments, dict)  # a `PutState` is sent only to single envs
        rows = self._begin(slot, row, arguments)
        self._table.write_flags(row, 0.0, False, False)
        return _extra(rows)

    def reset_vector_into_rows(self, slot: int, row: int) -> Extra:
        """Resets all sub-envs after their episodes. Rewards, flags and terminal observations stay in the rows."""
        rows = self._begin(slot, row, {}) or [None] * self.width
        return _extra([(_core.HAS_FINAL | flags, parts) for flags, parts in (row or (0, None) for row in rows)])

    def _begin(self, slot: int, row: int, arguments: dict[str, Any]) -> list[FlaggedParts] | None:
        seeded = self._seeded(slot, arguments)
        with OneProcess():
            outcome = self._env_at(slot).reset(**seeded)
        if not isinstance(outcome, (tuple, list)) or len(outcome) != 2:
            raise TypeError(f"expected reset() to return (observations, infos), got {in_brief(outcome)}")
        obs, infos = outcome
        leaves, objects = self._flatten(obs)
        split_infos, computed = self._table.infos.split(_checked(infos)), self._compute(slot)
        parts = self._parts(objects, split_infos, None)
        self._write(slot, row, obs, leaves, computed, split_infos)
        return parts

    def _seeded(self, slot: int, arguments: dict[str, Any]) -> dict[str, Any]:
        named = arguments.pop("seed", [None] * self.width)
        take, loop = self._defaults.take_seed, self._get_loop()
        seed = common_seed([take(slot + sub_env, base, loop) for sub_env, base in enumerate(named)])
        return arguments if seed is None else {"seed": seed, **arguments}

    def step_vector(self, slot: int, row: int, action_row: int, parts: Buffers | None) -> Extra:
        actions = self._read_actions(action_row, parts)
        with OneProcess():
            outcome = self._env_at(slot).step(actions)
        if not isinstance(outcome, (tuple, list)) or len(outcome) != 5:
            expected = "(observations, rewards, terminations, truncations, infos)"
            raise TypeError(f"expected step() to return {expected}, got {in_brief(outcome)}")
        obs, infos = outcome[0], _checked(outcome[4])
        leaves, objects = self._flatten(obs)
        reward = self._one_each(outcome[1], np.dtype(np.float64), "rewards", self._layout.reward_shape)
        terminated = self._one_each(outcome[2], np.dtype(np.bool_), "terminations")
        truncated = self._one_each(outcome[3], np.dtype(np.bool_), "truncations")
        resets_itself = self._layout.mode.in_same_step
        finals = self._find_finals(infos, terminated | truncated) if resets_itself else None
        split_infos = self._table.infos.split(infos, OF_THE_END if resets_itself else ())
        extra, computed = _extra(self._parts(objects, split_infos, finals)), self._compute(slot)
        self._write(slot, row, obs, leaves, computed, split_infos)
        self._table.write_flags(row, reward, terminated, truncated)
        if finals is not None:
            self._table.write_final_obs(row, finals.sub_envs, finals.leaves)
        return extra

    def observe_vector(self, slot: int, row: int) -> Extra:
        if slot not in self._last_obs:
            raise ValueError("there is no observation before the first reset")
        leaves, objects = self._flatten(self._last_obs[slot])
        split_infos = self._table.infos.split({})
        extra = _extra(self._parts(objects, split_infos, None))
        self._write(slot, row, self._last_obs[slot], leaves, self._last_computed[slot], split_infos)
        self._table.write_flags(row, 0.0, False, False)
        return extra

    def handle(self, slot: int | None, parts: Buffers) -> Buffers:
        if slot is not None:
            self._own_last_obs(slot)
        return super().handle(slot, parts)

    def describe(self, error: BaseException, slot: int | None, operation: str) -> Buffers:
        if slot is not None and operation != "call":
            self._last_obs.pop(slot, None)  # the error may have left the env's buffers half written
        return super().describe(error, slot, operation)

    def _own_last_obs(self, slot: int) -> None:
        """Copies the last observation, because the vector env's code, which runs next, may write to its buffers."""
        obs = self._last_obs.get(slot)
        if obs is not None and obs is not self._own_obs.get(slot):
            leaves, objects = self._flatten(obs)
            copied = self._layout.observation.build_batch([leaf.copy() for leaf in leaves], deepcopy(objects or []))
            self._last_obs[slot] = self._own_obs[slot] = copied

    # -- actions and results -----------------------------------------------------------------------------

    def _read_actions(self, row: int, parts: Buffers | None) -> Any:
        rows = [] if parts is None else unbundle(parts, self.width)
        objects = [load(one[1]) for one in rows if one is not None and one[1] is not None]
        return self._layout.action.build_batch(self._table.read_actions(row), objects)

    def _compute(self, slot: int) -> list[Array]:
        if not self._computed:
            return []
        with OneProcess():
            return compute(self._computed, self._layout.computed, self._env_at(slot), self.width)

    def _write(
        self, slot: int, row: int, obs: Any, leaves: Sequence[Array], computed: list[Array], infos: SplitInfos
    ) -> None:
        """Writes a vector env's observation, computed columns and infos. Keeps the first two for `observe_vector`."""
        self._table.write_obs(row, leaves, computed)
        self._table.infos.write(infos, row)
        self._last_obs[slot], self._last_computed[slot] = obs, computed

    def _flatten(self, obs: Any) -> tuple[list[Array], list[list[Any]] | None]:
        return self._layout.observation.flatten_batch(obs, self.width, "obs")

    def _one_each(self, value: Any, dtype: np.dtype[Any], name: str, shape: tuple[int, ...] = ()) -> Array:
        return coerce(value, dtype, shape, name, ValueError, rows=self.width)

    def _find_finals(self, infos: dict[str, Any], done: Array) -> _Finals | None:
        if not done.any():
            return None
        if "final_obs" not in infos:
            raise ValueError(
                "expected 'final_obs' in the infos of a step that ended an episode with same-step autoreset, got the "
                f"keys {list(infos)}; let the vector env put it there, or use autoreset='next_step'"
            )
        codec, sub_envs, all_obs = self._layout.observation, np.flatnonzero(done), infos["final_obs"]
        ends = (
            _ends_one_by_one(codec, sub_envs, all_obs)
            if isinstance(all_obs, np.ndarray) and all_obs.dtype == object
            else _ends_of_a_batch(codec, sub_envs, all_obs, self.width)
        )
        leaves, unlike_columns = ends
        frozen: dict[int, bytes | None] = {}
        for sub_env in sub_envs.tolist():
            info = value_of_sub_env(infos.get("final_info", {}), sub_env, self.width) or {}
            obs = unlike_columns.get(sub_env)
            frozen[sub_env] = None if obs is None and not info else self.freeze(obs, info)
        return _Finals(sub_envs, leaves, frozen)

    def _parts(
        self, objects: list[list[Any]] | None, infos: SplitInfos, finals: _Finals | None
    ) -> list[FlaggedParts] | None:
        """Returns the pickled part of each row; None if no row has one."""
        if objects is None and infos.rest is None and finals is None:
            return None
        nothing: list[Any] = [None] * self.width
        rows = zip(objects or nothing, infos.rest or nothing, infos.wanted or nothing, strict=True)
        frozen = {} if finals is None else finals.frozen
        return [self._parts_of_one(*row, sub_env in frozen, frozen.get(sub_env)) for sub_env, row in enumerate(rows)]

    def _parts_of_one(
        self,
        objects: list[Any] | None,
        rest: dict[str, Any] | None,
        wanted: list[tuple[tuple[str, ...], Any]] | None,
        is_final: bool,
        frozen: bytes | None,
    ) -> FlaggedParts:
        flags = (_core.HAS_FINAL if is_final else 0) | (_core.HAS_NEW_KEYS if wanted else 0)
        if not objects and not rest and frozen is None:
            return (flags, None) if flags else None
        return flags, self.pack(objects or [], rest or None, wanted or None, frozen)

    @property
    def _table(self) -> VectorRows:
        assert self._rows is not None  # hooks are called only while the loop runs
        return self._rows


def _extra(rows: Sequence[FlaggedParts] | None) -> Extra:
    """Joins the flags and the pickled data of rows. A flag is set if it is set for any row."""
    if rows is None:
        return None
    return functools.reduce(operator.or_, (row[0] for row in rows if row is not None), 0), bundle(rows)


def _ends_one_by_one(codec: SpaceCodec, sub_envs: Array, all_obs: Array) -> tuple[list[Array], dict[int, Any]]:
    """Returns the leaves of all terminal observations, and by sub-env each observation that columns do not preserve."""
    flat, unlike_columns = [], {}
    for sub_env in sub_envs.tolist():
        obs = all_obs[sub_env]
        leaves, _ = codec.flatten(obs, f"final_obs[{sub_env}]")
        flat.append(leaves)
        if not (codec.is_single_column and type(obs) is np.ndarray and leaves[0] is obs):
            unlike_columns[sub_env] = obs
    return [np.stack(column) for column in zip(*flat, strict=True)], unlike_columns


def _ends_of_a_batch(codec: SpaceCodec, sub_envs: Array, all_obs: Any, n: int) -> tuple[list[Array], dict[int, Any]]:
    """Works like `_ends_one_by_one` if `all_obs` is one batch with a row for each of n envs, ended or not."""
    leaves, objects = codec.flatten_batch(all_obs, n, "final_obs")
    unlike_columns = {}
    if objects is not None:
        unlike_columns = {i: codec.build_one([leaf[i, ...] for leaf in leaves], objects[i]) for i in sub_envs.tolist()}
    return [leaf[sub_envs] for leaf in leaves], unlike_columns


def _checked(infos: Any) -> dict[str, Any]:
    if not isinstance(infos, dict):
        raise TypeError(f"expected a dict as the infos, got {in_brief(infos)}")
    return infos
