"""The configurations of the workers of a pool, kept in one memory file for as long as a worker may be replaced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import cloudpickle

from remuda._backends.base import Assignment
from remuda._relay.output import WorkerOutput
from remuda._relay.verbosity import Verbosity
from remuda._wire.parcel import Address, Parcel
from remuda._wire.pickling import dump
from remuda._wire.registrations import pickle_registrations
from remuda._worker.main import WorkerConfig
from remuda.errors import InvalidEnvError


class WorkerConfigs:
    """The config of all workers of a pool, in one parcel: what is the same for many is there once.

    Attributes:
        fd: The parcel; None where workers inherit their config.
    """

    def __init__(self, assignments: Sequence[Assignment], name: str, output: WorkerOutput, *, inherited: bool) -> None:
        """Raises InvalidEnvError when factories cannot be pickled; nothing is left open."""
        verbosity = Verbosity.current()
        self._configs = [
            WorkerConfig(
                a.info,
                f"{name}-{a.info.index}",
                a.env_fns if inherited else b"",
                b"",
                verbosity,
                output,
                a.rebuilds,
                a.vector_size,
                a.variables,
            )
            for a in assignments
        ]
        self._addresses: list[Address] = [b""] * len(assignments)
        self._parcel = None if inherited else Parcel()
        try:
            if self._parcel is not None:
                self._write(self._parcel, assignments)
        except BaseException:
            self.close()
            raise

    @property
    def fd(self) -> int | None:
        return None if self._parcel is None else self._parcel.fd

    def order(self, worker: int) -> WorkerConfig:
        return self._configs[worker]

    def address(self, worker: int) -> Address:
        """Where in the parcel a worker finds its config."""
        return self._addresses[worker]

    def close(self) -> None:
        """There are no successors any more."""
        if self._parcel is not None:
            self._parcel.close()
        self._configs = [replace(order, env_fns=b"") for order in self._configs]

    def _write(self, parcel: Parcel, assignments: Sequence[Assignment]) -> None:
        registrations = parcel.add(dump(pickle_registrations()))
        for worker, assignment in enumerate(assignments):
            env_fns = parcel.add([_pickle(assignment)])
            self._configs[worker] = replace(self._configs[worker], env_fns=env_fns, registrations=registrations)
            self._addresses[worker] = parcel.add(dump(self._configs[worker]))
        parcel.seal()


def _pickle(assignment: Assignment) -> bytes:
    try:
        pickled: bytes = cloudpickle.dumps(list(assignment.env_fns))
    except Exception as error:
        raise InvalidEnvError(
            f"expected env_fns that can be pickled, to build the envs {list(assignment.info.env_ids)} "
            "in a worker process, "
            f"got {type(error).__name__}: {error}; build inside the function what it cannot carry, "
            "or use start_method='fork' or backend='thread'"
        ) from error
    return pickled
