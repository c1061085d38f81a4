"""The configurations of the workers of a pool, kept in one memory file for as long as a worker may be replaced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from remuda._backends.base import Assignment
from remuda._relay.output import WorkerOutput
from remuda._relay.verbosity import Verbosity
from remuda._wire import by_value
from remuda._wire.culprit import culprit
from remuda._wire.parcel import Address, Parcel, fetch
from remuda._wire.pickling import Buffers, dump
from remuda._wire.registrations import pickle_registrations
from remuda._worker.factories import Carried
from remuda._worker.identity import Identity
from remuda._worker.main import Addresses, Inherited, WorkerConfig
from remuda._worker.program import Program
from remuda.errors import InvalidEnvError


class WorkerConfigs:
    """The configs of all workers of a pool, in one `Parcel` (a memory file). Data that configs share are stored once.

    A worker with a replaced env has a parcel of its own.
    """

    def __init__(self, assignments: Sequence[Assignment], name: str, output: WorkerOutput, *, inherited: bool) -> None:
        """Raises InvalidEnvError if factories cannot be pickled; nothing is left open."""
        verbosity = Verbosity.current()
        self._configs = [
            WorkerConfig(
                spec=a.spec,
                identity=Identity.new(f"{name}-{a.spec.info.index}"),
                factories=Inherited(a.env_fns, a.computed) if inherited else Inherited(),
                verbosity=verbosity,
                output=output,
                variables=a.variables,
            )
            for a in assignments
        ]
        self._addresses: list[Address] = [b""] * len(assignments)
        self._own: dict[int, Parcel] = {}  # the parcels of workers with replaced envs, by worker
        self._is_closed = False
        self._parcel = None if inherited else Parcel()
        try:
            if self._parcel is not None:
                self._write(self._parcel, assignments)
        except BaseException:
            self.close()
            raise

    def config(self, worker: int) -> WorkerConfig:
        return self._configs[worker]

    def place(self, worker: int) -> tuple[int | None, Address]:
        """Returns a parcel's descriptor (None: the worker inherits its config), and the config's address there."""
        if self._parcel is None:
            return None, b""
        if self._configs[worker].replaced and worker not in self._own:
            self._write_own(worker, self._parcel)
        return self._own.get(worker, self._parcel).fd, self._addresses[worker]

    def adopt(self, worker: int, slot: int, carried: Carried) -> None:
        """Makes later successors of a worker build a slot's env with the factory `carried`."""
        if self._is_closed:
            return
        config = self._configs[worker]
        place = (slot - config.spec.info.env_ids[0]) // config.spec.width
        self._configs[worker] = replace(config, replaced={**config.replaced, place: carried})
        if (outdated := self._own.pop(worker, None)) is not None:
            outdated.close()

    def close(self) -> None:
        """Frees the configs. No successor can be started after that."""
        self._is_closed = True
        for parcel in (self._parcel, *self._own.values()):
            if parcel is not None:
                parcel.close()
        self._own = {}
        self._configs = [replace(config, factories=Inherited(), replaced={}) for config in self._configs]

    def _write(self, parcel: Parcel, assignments: Sequence[Assignment]) -> None:
        program, registrations = dump(Program.current()), dump(pickle_registrations())
        computed = [_pickle_computed(assignments[0])]
        for worker, assignment in enumerate(assignments):
            self._configs[worker] = self._add(parcel, worker, program, [_pickle(assignment)], registrations, computed)
        parcel.seal()

    def _write_own(self, worker: int, first: Parcel) -> None:
        """Writes a parcel for a worker with replaced envs. `first`: the parcel with its first config."""
        factories, own = self._configs[worker].factories, Parcel()
        try:
            assert isinstance(factories, Addresses)  # a worker that inherits its factories has no parcel
            self._add(own, worker, *(fetch(first.fd, address) for address in factories))
            own.seal()
        except BaseException:
            own.close()
            raise
        self._own[worker] = own

    def _add(self, parcel: Parcel, worker: int, *parts: Buffers) -> WorkerConfig:
        """Adds a worker's config and the parts that `Addresses` names to a parcel. Returns the config."""
        addresses = Addresses(*map(parcel.add, parts))
        config = replace(self._configs[worker], factories=addresses)
        self._addresses[worker] = parcel.add(dump(config))
        return config


def _pickle(assignment: Assignment) -> bytes:
    try:
        return by_value.dumps(list(assignment.env_fns))
    except Exception as error:
        raise InvalidEnvError(
            f"expected env_fns that can be pickled, to build the envs {list(assignment.spec.info.env_ids)} "
            "in a worker process, "
            f"got {type(error).__name__}: {error} ({culprit(assignment.env_fns)}); build inside the function what it "
            "cannot carry, or use start_method='fork' or backend='thread'"
        ) from error


def _pickle_computed(assignment: Assignment) -> bytes:
    """Pickles the computed columns, which are the same for all workers."""
    for column in assignment.computed:
        try:
            by_value.dumps(column.function)
        except Exception as error:
            raise InvalidEnvError(
                f"expected {column.path} that can be pickled, to be computed in a worker process, got "
                f"{type(error).__name__}: {error} ({culprit(column.function)})"
            ) from error
    return by_value.dumps(assignment.computed)
