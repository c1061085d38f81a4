"""Takes the states of envs, puts envs into them, and copies them from env to env."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from remuda._engine.commands.batch import Batch
from remuda._engine.pool.state_checks import check_states, check_taken
from remuda._engine.pool.stepping import Stepping
from remuda._wire.env_state import EnvState, StateFns, StateSupport
from remuda._wire.pickling import dump_for_worker
from remuda._wire.requests import TakeState
from remuda._wording import name_some
from remuda.errors import StateError


class Stateful(Stepping):
    """Envs whose states can be taken and set: where they are in their episodes."""

    def get_state(self, env_ids: Iterable[int] | None = None, *, state_fns: StateFns = None) -> list[EnvState]:
        """The state of each env: where it is in its episode, to go on from there any number of times, with `set_state`.

        It has the state of the env itself and of each wrapper around it, and the last observation. The env's own is
        taken by its methods `get_state` and `set_state`; by `clone_state` and `restore_state`, as ale_py's envs have
        them, with their random numbers; of a simulation of MuJoCo from its data; of Gymnasium's classic control and toy
        text envs from their attributes, random numbers included. Of wrappers all attributes are taken.

        Args:
            env_ids: Which envs; None for all.
            state_fns: How it is taken instead: two functions, `get(env)`, which returns what can be pickled, and
                `put(env, state)`, both called with the env as its factory has made it; or "attributes", for envs all of
                whose state is in attributes that can be pickled (no simulator outside, no handles).

        Returns: One for each env, in the order of `env_ids`. They can be pickled, kept, and put into other pools.

        Raises:
            InvalidEnvError: An env that offers none of this, without `state_fns`. Nothing was sent.
            StateError: An env has not been reset, is in flight, or was built anew and has not been reset since. Nothing
                was sent.
            ValueError, TypeError: Arguments of another form; with `vector_size` always. Nothing was sent.
            EnvError: A function raised, or the state cannot be pickled. The episode goes on.
            WorkerDiedError, BrokenPoolError, ClosedError: It cannot answer.
        """
        self._engine.check_open()
        targets = self._named(env_ids)
        check_taken(state_fns, targets, self._support_of, self._engine.layout.vector_size)
        self._engine.faults.check_reset(targets)
        self._check_idle(targets)
        self._check_in_episode(targets)
        messages = [dump_for_worker(TakeState(state_fns))] * len(targets)
        return self._engine.exchange.call(targets, messages).result()

    def set_state(self, states: Sequence[EnvState], env_ids: Iterable[int] | None = None) -> Batch:
        """Sets each env to a state, from which its next step goes on.

        In place of a reset: what was pending of its episode is over, and no other begins. Seeds, and what resets are
        given, are as they were.

        Args:
            states: One for each env, of an env that was made alike; the same one may be put into several.
            env_ids: Which envs, in the order of the states; None for all.

        Returns: A batch of these envs, in the order of `env_ids`: the observation and the flags of the state, reward 0,
            `extras` computed anew.

        Raises:
            ValueError, TypeError: Not one state for each env, or one of an env that is made otherwise; with
                `vector_size` always; with same-step autoreset a state after the end of an episode. Nothing was sent.
            StateError: An env is in flight. Nothing was sent.
            EnvError: A function raised. The env must be reset.
            WorkerDiedError, BrokenPoolError, ClosedError: As `reset`. With faults="restart" an env that is built anew
                is put into the state, too.
        """
        self._engine.check_open()
        layout, targets = self._engine.layout, self._targets(env_ids)
        codecs = layout.observation, layout.action
        checked = check_states(states, targets, self._support_of, codecs, layout.autoreset, layout.vector_size)
        self._check_quiet()
        self._engine.resets.restore(targets, checked, self._part, to_all=env_ids is None)
        return self._receive(env_ids=targets)

    def fork_state(
        self, source: int | Sequence[int], targets: int | Sequence[int], *, state_fns: StateFns = None
    ) -> Batch:
        """Puts envs into the states of others: `set_state(get_state(source), targets)`.

        Args:
            source: An env, which is copied into all of the `targets`; or one for each of them.
            targets: Envs. They may be among the sources: all states are taken first.
            state_fns: As in `get_state`.

        Returns, raises: As `set_state`, and as `get_state` does.
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
        known, supervisor = self._engine.running.slots, self._engine.exchange.supervisor
        if fresh := [
            slot for slot in slots if known.is_fresh(slot) or not supervisor.takes_messages(known.worker_of(slot))
        ]:
            raise StateError(
                f"expected envs in an episode, or at its end, got {name_some('env', fresh)}, built anew and not reset "
                "yet; step it, or call reset"
            )

    def _support_of(self, slot: int) -> StateSupport:
        running = self._engine.running
        return running.reports[running.slots.env_of(slot)].state


def _ids(ids: Any) -> list[int]:
    return list(ids) if hasattr(ids, "__len__") else [ids]
