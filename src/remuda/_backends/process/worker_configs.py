"""The configurations of the workers of a pool, kept in one memory file for as long as a worker may be replaced."""

from __future__ import annotations

import os
import pickle
from collections.abc import Sequence
from dataclasses import replace

from remuda._backends.base import Assignment
from remuda._relay.output import WorkerOutput
from remuda._relay.verbosity import Verbosity
from remuda._wire import by_value
from remuda._wire.layout import Layout
from remuda._wire.pickling import Buffers, dump
from remuda._wire.registrations import pickle_registrations
from remuda._wire.sealed_file import Address, SealedFile, fetch
from remuda._worker.factories import Carried, pickled_for_worker
from remuda._worker.identity import Identity
from remuda._worker.main import Addresses, Inherited, WorkerConfig
from remuda._worker.program import Program

_REMEDY = "; build inside the function what it cannot carry, or use start_method='fork' or backend='thread'"


class WorkerConfigs:
    """The configs of all workers of a pool, in one `SealedFile`. Data that configs share are stored once.

    A worker with a replaced env has a file of its own.

    Attributes:
        layout: The descriptor of a file with the layout of the pool, and its address there; None before `keep_layout`.
    """

    def __init__(self, assignments: Sequence[Assignment], name: str, output: WorkerOutput, *, inherited: bool) -> None:
        """Raises InvalidEnvError if factories cannot be pickled; nothing is left open.

        `inherited`: whether workers inherit their factories, so that the file has only the ones that replace them.
        """
        verbosity = Verbosity.current()
        self._configs = [
            WorkerConfig(
                spec=a.spec,
                identity=Identity.new(f"{name}-{a.spec.info.index}"),
                factories=Inherited(),  # the template has them
                verbosity=verbosity,
                output=os.fspath(output),
                variables=a.variables,
            )
            for a in assignments
        ]
        self._addresses: list[Address] = [b""] * len(assignments)
        self._own: dict[int, SealedFile] = {}  # the files of workers with replaced envs, by worker
        self._is_closed = False
        self._layout_file: SealedFile | None = None
        self.layout: tuple[int, Address] | None = None
        self._file = SealedFile()
        try:
            if inherited:
                for worker in range(len(assignments)):
                    self._add(self._file, worker)
            else:
                self._write_factories(assignments)
            self._file.seal()
        except BaseException:
            self.close()
            raise

    def config(self, worker: int) -> WorkerConfig:
        return self._configs[worker]

    def place(self, worker: int) -> tuple[int, Address]:
        """Returns the descriptor of the file with a worker's config, and the config's address in it."""
        if self._configs[worker].replaced and worker not in self._own:
            self._write_own(worker)
        return self._own.get(worker, self._file).fd, self._addresses[worker]

    def adopt(self, worker: int, slot: int, carried: Carried) -> None:
        """Makes later successors of a worker build a slot's env with the factory `carried`."""
        if self._is_closed:
            return
        config = self._configs[worker]
        place = (slot - config.spec.info.env_ids[0]) // config.spec.width
        self._configs[worker] = replace(config, replaced={**config.replaced, place: carried})
        if (outdated := self._own.pop(worker, None)) is not None:
            outdated.close()

    def keep_layout(self, layout: Layout) -> None:
        """Pickles the layout of the pool for successors, which check that their envs fit it."""
        if self._is_closed:
            return
        self._layout_file = SealedFile()
        self.layout = self._layout_file.fd, self._layout_file.add(dump(layout))
        self._layout_file.seal()

    def close(self) -> None:
        """Frees the configs. No successor can be started after that."""
        self._is_closed = True
        for file in (self._file, self._layout_file, *self._own.values()):
            if file is not None:
                file.close()
        self._own = {}
        self._configs = [replace(config, replaced={}) for config in self._configs]

    def _write_factories(self, assignments: Sequence[Assignment]) -> None:
        program, registrations = dump(Program.current()), dump(pickle_registrations())
        for column in assignments[0].computed:  # the same for all workers
            what = f"{column.path} that can be pickled, to be computed in a worker process"
            pickled_for_worker(column.function, what)
        computed = [by_value.dumps(assignments[0].computed)]
        for worker, one in enumerate(assignments):
            what = f"env_fns that can be pickled, to build the envs {list(one.spec.info.env_ids)} in a worker process"
            env_fns = [pickled_for_worker(list(one.env_fns), what, _REMEDY)]
            self._configs[worker] = self._add(self._file, worker, program, env_fns, registrations, computed)

    def _write_own(self, worker: int) -> None:
        """Writes a file for a worker with replaced envs."""
        factories, own = self._configs[worker].factories, SealedFile()
        try:
            addresses = factories if isinstance(factories, Addresses) else ()
            self._add(own, worker, *(fetch(self._file.fd, address) for address in addresses))
            own.seal()
        except BaseException:
            own.close()
            raise
        self._own[worker] = own

    def _add(self, file: SealedFile, worker: int, *parts: Buffers) -> WorkerConfig:
        """Adds a worker's config, and the parts that `Addresses` names, to a file. Returns the config.

        Without parts, the worker inherits its factories.
        """
        config = replace(self._configs[worker], factories=Addresses(*map(file.add, parts)) if parts else Inherited())
        self._addresses[worker] = file.add([pickle.dumps(config)])  # plain data
        return config
