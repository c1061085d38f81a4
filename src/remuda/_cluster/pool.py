"""The pool with envs on a Ray cluster: the result of `Pool(env_fns, backend=remuda.Ray(...))`."""

from __future__ import annotations

import time
import weakref
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from remuda import Pool, PoolOptions
from remuda._cluster.driver.options import ClusterOptions
from remuda._cluster.driver.shares import Share
from remuda._engine.commands.succession import succeed
from remuda._engine.options.checks import check_timeout
from remuda._engine.options.pool_options import EnvFn
from remuda._engine.rollouts.shard_rollout import ShardRollouts
from remuda._engine.running import Phase
from remuda._engine.startup.start import Inheritance, lay_out
from remuda._engine.supervision.fault_log import log_alike
from remuda._factories import check_env_fns
from remuda._keywords import names_keywords
from remuda._system.finalizers import prepare
from remuda._system.own_thread import run_apart
from remuda._worker.env_report import Reports
from remuda.errors import Fault, StateError
from remuda.stats import PoolStats

# Methods import the modules that import Ray, because `from remuda import *` imports this one, also without Ray.
if TYPE_CHECKING:
    from typing_extensions import Unpack  # in `typing` since Python 3.11

    from remuda._cluster.driver.backend import RayBackend
    from remuda._cluster.driver.remote_worker import RemoteWorker
    from remuda._cluster.resizing import Resizing
    from remuda._cluster.rollouts import Rollouts
    from remuda._engine.commands.answers import Answers

_LOOK = 0.02  # seconds


@names_keywords(PoolOptions.__annotations__)
class ClusterPool(Pool):
    """A `Pool` with envs on the machines of a Ray cluster, which can also fill rollouts there and be resized.

    `Pool(env_fns, backend=remuda.Ray(...))` makes one too, but type checkers then see only the methods of `Pool`.

    Args:
        env_fns: See `Pool`.
        **options: See `Pool`. `backend` must be a `remuda.Ray`.

    Attributes:
        num_workers: The number of workers of all shards together.

    Raises:
        MissingFrameworkError: Ray is not installed.
        TypeError: `backend` is no `remuda.Ray`.
        ValueError: An option is invalid, or clusters do not support it.
        StartTimeoutError: The cluster did not answer, or had no room for the shards in time.
        ShardDiedError: A shard died while it built its envs.
        EnvError, InvalidEnvError, WorkerDiedError, SpaceMismatchError: See `Pool`.
    """

    def __init__(self, env_fns: Sequence[EnvFn], **options: Unpack[PoolOptions]) -> None:
        """Starts the shards and waits until they have built the envs; see the class."""
        from remuda._cluster.driver.backend import RayBackend
        from remuda._cluster.ray.actors import Cluster
        from remuda._cluster.ray.policies import Publisher

        factories = check_env_fns(env_fns)
        prepare()
        checked = ClusterOptions(factories, options)
        self._rollouts: weakref.ref[Rollouts] | None = None  # weak: rollouts end when the caller drops them
        self._num_rollouts, self._publisher = 0, Publisher()
        backend = RayBackend(factories, checked, Cluster(checked.where))
        self._begin_on(backend, backend.start())
        for link in backend.restarts:
            self._engine.running.workers.count_restart(link.workers[0].index)

    def _begin_on(self, backend: RayBackend, reports: Reports, inherited: Inheritance | None = None) -> None:
        from remuda._cluster.driver.figures import FigureMirror

        self._backend, options = backend, backend.options
        self._take_over(backend.settings, lay_out(backend.settings, backend, reports, inherited=inherited))
        engine = self._engine
        self._figures = FigureMirror(engine.running)
        engine.fault_log.log = partial(_log, weakref.ref(self))  # weak, because a dropped pool must end at once
        self.backend, self.start_method = options.where, options.given.start_method  # type: ignore[assignment]
        self.options = {**options.given.options, "backend": options.where, "num_workers": self.num_workers}

    # -- rollouts ------------------------------------------------------------------------------------------

    def rollouts(self, policy: Any, steps: int = 128, in_flight: int = 2, *, seed: int | None = None) -> ShardRollouts:
        """Makes shards fill rollouts with a policy that runs in the shards, and returns the rollouts::

            for rollout in pool.rollouts(policy, steps=128):
                learner.update(rollout)
                pool.publish(policy)

        One message carries steps x n transitions. Envs continue from where they are. Envs that have not been reset are
        reset first, and so are all envs that earlier rollouts have stepped.

        Args:
            policy: See `remuda.collect`: a callable, an object with a method `act`, or a torch module, with or
                without a parameter `context`. It gets the observations of a shard's envs. It is pickled with all that
                it refers to. Tensors on a GPU are copied to the CPU. A module is moved to the GPU of its shard, if the
                shard has one. Before the first rollout, each shard seeds the global random numbers of its process
                (`random`, NumPy, torch).
            steps: T of each rollout.
            in_flight: The number of rollouts of each shard that are under way or wait for the learner. With 2, a shard
                fills one while the learner works on another. With 1, it waits for the learner.
            seed: The seed of random numbers of the policy, from 0 up; None: a random one. Each shard has its own
                stream.

        Returns: An iterator of `ShardRollout`, and a context manager that ends it.

        Raises:
            ValueError: A number below 1, or spaces that are not made of arrays.
            TypeError: `policy` is not such an object.
            StateError: An env is in flight.
        """
        from remuda._cluster.rollouts import Rollouts, check_rollouts

        self._engine.check_open()
        self._close_rollouts()
        engine = self._engine
        check_rollouts(engine, policy, steps, in_flight, seed)
        if self._is_divided:
            self.split(1)
        if missing := [env for env in self._ids if engine.faults.guards.must_reset(env)]:
            self.reset(env_ids=missing)
        self._publisher.publish(policy)
        self._num_rollouts += 1
        rollouts = Rollouts(
            engine, self._backend, self._publisher, steps, in_flight, seed, self._num_rollouts, self._end_rollouts
        )
        self._rollouts = weakref.ref(rollouts)
        engine.enter(Phase.PAUSED)
        return rollouts

    def _open_rollouts(self) -> Rollouts | None:
        return None if self._rollouts is None else self._rollouts()

    def _close_rollouts(self) -> None:
        if (rollouts := self._open_rollouts()) is not None:
            rollouts.close()

    def _end_rollouts(self) -> None:
        """Allows commands after rollouts. The first command must reset all envs, because shards have stepped them."""
        self._rollouts = None
        if self._engine.closed:
            return
        self._engine.enter(Phase.OPEN)
        for env in self._ids:
            self._engine.faults.guards.require_reset(env)

    def publish(self, policy: Any) -> int:
        """Replaces the policy with which shards fill `rollouts`, including its attributes.

        The policy is put into Ray's object store once, for all shards. Rollouts that are requested from now on use it.
        When the learner has taken a rollout and requests the next, the shard of the first is sent another request. So
        the policy of a rollout is at most shards x in_flight publications old. With one shard and `in_flight=1` it is
        the latest.

        Returns: The version of the policy, which `ShardRollout.policy_version` shows.

        Raises:
            TypeError: `policy` is not an object that `rollouts` takes.
        """
        self._engine.check_open()
        return self._publisher.publish(policy)

    def _check_open(self) -> None:
        super()._check_open()
        if self._open_rollouts() is not None:
            raise StateError("expected no rollouts under way when envs are stepped or reset; call their close() first")

    def resize(self, shards: int, timeout: float | None = None) -> None:
        """Divides the envs of a cluster among more or fewer shards, for machines that were added or will be removed.

        All envs are rebuilt, beside the old ones, before any takes its place. If an env cannot be built, or there is
        no room in time, the pool stays as it was. If the cluster scales automatically, shards that wait for room make
        it grow.

        Env ids, seeds, options of resets and lasting attributes continue. Current episodes are cut off: the next
        result of their envs is truncated, with `info["resized"]`. To continue the episodes, take the states first and
        put them back:

            states = pool.get_state()
            pool.resize(8)
            batch = pool.set_state(states)

        Parts of the pool become invalid, as after `split(1)`. Figures in `stats()` begin again.

        After a timeout, shards run no commands while a factory hangs in them: with worker processes until
        `start_timeout`, with `Ray(backend="serial")` or "thread" for as long as it hangs.

        Args:
            shards: The number of shards, from 1 to the number of factories.
            timeout: Seconds to wait for room and builds; None: `start_timeout`.

        Raises:
            ValueError: `shards` is out of range, or `placement` is not "spread".
            StateError: An env is in flight, or rollouts are open: close them first.
            StartTimeoutError: There was no room in time. Nothing has changed.
            ShardDiedError: A shard died meanwhile. The policy of `faults` was applied; call `resize` again.
            BrokenPoolError, ClosedError: The pool is broken or closed.
        """
        from remuda._cluster.resizing import Resizing, check_resize

        old, backend = self._engine, self._backend
        old.check_open()
        check_timeout(timeout)
        check_resize(old, backend, shards, has_rollouts=self._open_rollouts() is not None)
        if shards == len(backend.links):
            return
        resizing = Resizing(backend, shards)
        try:
            try:
                resizing.build(old.settings.start_timeout if timeout is None else timeout)
            finally:
                old.exchange.attend_until(time.monotonic() + _LOOK)  # handles deaths of shards during `build`
            # An interrupt between these steps would leave a pool that is neither the old one nor the new one.
            calls = run_apart(partial(self._change_places, resizing), lambda: None)
        except BaseException:
            run_apart(resizing.give_up, lambda: None)
            raise
        resizing.log_failures()
        for call in calls:
            call.result()

    def _change_places(self, resizing: Resizing) -> list[Answers]:
        """Replaces the old envs and engine by the new ones. Returns the lasting calls that the new envs repeat."""
        resizing.is_decided = True
        old, backend = self._engine, self._backend
        inherited = backend.inheritance(Share(0, 0, old.layout.num_envs))
        for thread in (*old.running.threads, backend.receiver):  # otherwise they would handle the end of old shards
            thread.stop()
        reports = resizing.take_places()
        self._finalizer.detach()
        self._begin_on(resizing.new, reports, inherited)
        calls = succeed(old, self._engine)
        old.release()
        return calls

    # -- life ----------------------------------------------------------------------------------------------

    @property
    def workers(self) -> tuple[RemoteWorker, ...]:  # type: ignore[override]
        """The workers of all shards; see `Pool.workers`. Each also has `shard` and `node`."""
        from remuda._cluster.driver.remote_worker import RemoteWorker

        return tuple(
            RemoteWorker(one.index, one.name, one.env_ids, self._backend.link_of[one.index])
            for one in self._backend.workers
        )

    def stats(self) -> PoolStats:
        """Returns the figures of all shards, once they have run their commands. Figures of dead shards are lost.

        Raises:
            ClosedError: The pool is closed.
            BrokenPoolError: The connection to Ray was shut down.
        """
        self._engine.check_open()
        self._backend.cluster.connection.check_open()
        self._figures.update(self._backend.figures())
        return super().stats()

    def _close(self, timeout: float | None, terminate: bool) -> None:
        self._close_rollouts()
        super()._close(timeout, terminate or not self._backend.cluster.connection.is_open)

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{len(self._backend.links)} shards"
        return f"<Pool of {self.num_envs} envs, {state}>"


def _log(pool: weakref.ref[ClusterPool], faults: Sequence[Fault], then: str) -> None:
    """Logs faults of the driver, and notes them for the rollouts that are under way."""
    owner = pool()
    if owner is not None and (rollouts := owner._open_rollouts()) is not None:
        rollouts.note_faults(faults)
    log_alike(faults, then)
