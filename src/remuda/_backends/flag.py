"""An event with a descriptor."""

from __future__ import annotations

import os

from remuda import _core
from remuda._system.forks import register_holder
from remuda._system.polling import wait_readable


class Flag:
    """An event that a thread can await together with descriptors: `fileno` is readable once it is set."""

    def __init__(self) -> None:
        self._fds = _core.Descriptors(map(os.eventfd, [0]))
        register_holder(self)

    def fileno(self) -> int:
        return self._fds[0]

    def set(self) -> None:
        """Sets the flag. Does nothing if it is closed."""
        for fd in self._fds:
            os.eventfd_write(fd, 1)

    def is_set(self) -> bool:
        return self.wait(0)

    def wait(self, seconds: float | None) -> bool:
        """Returns whether the flag is set within `seconds`; None: no limit."""
        return wait_readable([self.fileno()], seconds)

    def close(self) -> None:
        self._fds.close()

    def drop_descriptors(self) -> None:
        """Closes a forked child's copy of the descriptor."""
        self.close()
