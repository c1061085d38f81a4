"""Takes and sets the states of envs, and copies states from env to env."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from remuda._engine.commands.batch import Batch
from remuda._engine.pool.in_turn import in_turn
from remuda._engine.pool.state_checks import check_states, check_taken, not_in_episode
from remuda._engine.pool.stepping import Stepping
from remuda._wire.env_state import EnvState, StateFns, StateSupport
from remuda._wire.pickling import dump
from remuda._wire.requests import TakeState
from remuda.errors import StateError


class Stateful(Stepping):
    """Envs with states that can be taken and set. A state is the env's position in its episode."""

    @in_turn
    def get_state(self, env_ids: Iterable[int] | None = None, *, state_fns: StateFns = None) -> list[EnvState]:
        """Returns the state of each env: its position in its episode, from which `set_state` lets an env continue.

        A state has the env's own state, that of each wrapper around it, and the last observation. The env's own state
        is taken by its methods `get_state` and `set_state`, or by `clone_state` and `restore_state` (as in ale_py,
        random numbers included). For a MuJoCo simulation it is taken from the simulation's data, and for Gymnasium's
        classic control and toy text envs from their attributes, random numbers included. Of wrappers all attributes
        are taken.

        Args:
            env_ids: The envs; None for all.
            state_fns: Another way to take it: two functions, `get(env)`, which returns an object that can be pickled,
                and `put(env, state)`, both called with the env as its factory made it; or "attributes", for envs that
                have all their state in attributes that can be pickled (no outside simulator, no handles).

        Returns: A state for each env, in the order of `env_ids`. They can be pickled, kept, and put into other pools.

        Raises:
            InvalidEnvError: An env supports none of these, and `state_fns` is None. Nothing was sent.
            StateError: An env has not been reset, is in flight, or was rebuilt and has not been reset since. Nothing
                was sent.
            ValueError, TypeError: An argument is invalid, or the pool has `vector_size`. Nothing was sent.
            EnvError: A function raised, or the state cannot be pickled. The episode continues.
            WorkerDiedError, BrokenPoolError, ClosedError: A worker died, an env is lost, or the pool is closed.
        """
        self._engine.check_open()
        targets = self._named(env_ids)
        check_taken(state_fns, targets, self._support_of, self._engine.layout.vector_size)
        self._engine.faults.check_reset(targets)
        self._check_idle(targets)
        self._check_in_episode(targets)
        messages = [dump(TakeState(state_fns))] * len(targets)
        return self._engine.exchange.call(targets, messages).result()

    @in_turn
    def set_state(self, states: Sequence[EnvState], env_ids: Iterable[int] | None = None) -> Batch:
        """Puts each env into a state, from which the env's next step continues.

        This replaces a reset: the current episode of the env is dropped, and no other begins. Seeds and options of
        resets do not change.

        Args:
            states: One for each env, taken from an env that was made alike; several envs may get the same state.
            env_ids: The envs, in the order of the states; None for all.

        Returns: A batch of these envs, in the order of `env_ids`: the observation and the flags of the state, reward 0,
            `extras` computed again.

        Raises:
            ValueError, TypeError: There is not one state for each env; a state is from an env that was made
                differently; the pool has `vector_size`; or with same-step autoreset a state is after the end of an
                episode. Nothing was sent.
            StateError: An env is in flight. Nothing was sent.
            EnvError: A function raised. The env must be reset.
            WorkerDiedError, BrokenPoolError, ClosedError: See `reset`. With faults="restart" a rebuilt env is put into
                the state, too.
        """
        self._engine.check_open()
        layout, targets = self._engine.layout, self._targets(env_ids)
        codecs = layout.observation, layout.action
        checked = check_states(states, targets, self._support_of, codecs, layout.autoreset, layout.vector_size)
        self._check_quiet()
        self._engine.resets.restore(targets, checked, self._part, to_all=env_ids is None)
        return self._receive(env_ids=targets)

    @in_turn
    def fork_state(
        self, source: int | Sequence[int], targets: int | Sequence[int], *, state_fns: StateFns = None
    ) -> Batch:
        """Copies the states of envs into other envs: `set_state(get_state(source), targets)`.

        Args:
            source: An env, which is copied into all `targets`; or one env for each of them.
            targets: The envs to set. They may be among the sources, because all states are taken first.
            state_fns: See `get_state`.

        Returns: See `set_state`.
        Raises: See `get_state` and `set_state`.
        """
        into = _ids(targets)
        if not into:
            raise ValueError("expected at least one env to copy into, got none at targets; name some")
        sources = _ids(source) if hasattr(source, "__len__") else [source] * len(into)
        if len(sources) != len(into):
            raise ValueError(f"expected one env, or {len(into)}, to copy into {into}, got {sources}")
        once = list(dict.fromkeys(sources))
        states = dict(zip(once, self.get_state(once, state_fns=state_fns), strict=True))
        return self.set_state([states[env] for env in sources], into)

    # -- inside ------------------------------------------------------------------------------------------

    def _check_idle(self, slots: Sequence[int]) -> None:
        running = self._engine.running
        if (busy := next((slot for slot in slots if not running.slots.is_idle(slot)), None)) is not None:
            raise StateError(f"expected envs whose last result was received, but env {busy} is in flight")

    def _check_in_episode(self, slots: Sequence[int]) -> None:
        if fresh := [slot for slot in slots if self._is_fresh(slot)]:
            raise not_in_episode(fresh)

    def _is_fresh(self, slot: int) -> bool:
        """Whether the slot's env was rebuilt, or is being closed to be rebuilt, and has not been reset since."""
        slots, supervisor = self._engine.running.slots, self._engine.exchange.supervisor
        return slots.is_fresh(slot) or not supervisor.takes_messages(slots.worker_of(slot))

    def _support_of(self, slot: int) -> StateSupport:
        running = self._engine.running
        return running.reports[running.slots.env_of(slot)].state


def _ids(ids: Any) -> list[int]:
    return list(ids) if hasattr(ids, "__len__") else [ids]
