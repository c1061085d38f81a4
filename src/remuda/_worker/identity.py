"""Makes `multiprocessing` in a worker process give what it gives in its own child processes.

Libraries derive ports and seeds from the name and the identity of the current process, and managers need its authkey.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Identity:
    """A worker as a process of `multiprocessing`. The successors of a worker have the same identity.

    Attributes:
        name: Its name.
        numbers: Its `_identity`: that of the owner, and a number that no other child of the owner has.
        authkey: The owner's key for connections.
        owner: The owner's name.
    """

    name: str
    numbers: tuple[int, ...]
    authkey: bytes = field(repr=False)
    owner: str

    @classmethod
    def new(cls, name: str) -> Identity:
        """Returns the identity of another child of this process."""
        child: Any = multiprocessing.Process()  # takes the child's number; it is never started
        owner = multiprocessing.current_process()
        return cls(name, child._identity, bytes(owner.authkey), owner.name)

    def settle(self, owner: int) -> None:
        """Gives this process the identity. `owner`: the pid of the process that has started it."""
        module: Any = multiprocessing.process
        me: Any = multiprocessing.Process(name=self.name, daemon=False)
        me.authkey = self.authkey
        me._identity, me._parent_name, me._parent_pid = self.numbers, self.owner, owner
        module._current_process, module._process_counter, module._children = me, itertools.count(1), set()
        module._parent_process = module._ParentProcess(self.owner, owner, os.pidfd_open(owner))
        me._after_fork()  # makes objects of a forked process, such as proxies, open connections of their own
