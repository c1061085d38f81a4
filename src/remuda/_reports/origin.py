"""Where a report's figures come from: the command, the machine, the versions, the day."""

from __future__ import annotations

import platform
import shlex
import sys
from dataclasses import dataclass
from datetime import datetime

from remuda._system import machine
from remuda._system.cores import usable_cores


@dataclass(frozen=True)
class Origin:
    """What a reader needs to judge figures, and to take them once more.

    Attributes:
        command: That made the report.
        written: When.
        facts: Of the machine: names and values.
        versions: Of what is installed.
    """

    command: str
    written: datetime
    facts: tuple[tuple[str, str], ...]
    versions: tuple[tuple[str, str], ...]

    @classmethod
    def here(cls, command: str | None = None) -> Origin:
        """This machine, now. `command`: None: the one that runs this program."""
        facts = (
            ("Processor", machine.cpu_model()),
            ("Cores that may be used", str(usable_cores())),
            ("System", platform.platform()),
            ("Python", f"{platform.python_version()} ({platform.python_implementation()})"),
        )
        told = shlex.join(sys.orig_argv) if command is None else command
        return cls(told, datetime.now().astimezone(), facts, tuple(machine.versions().items()))
