"""A program's configuration of ALF, in a form that is sent to workers that do not inherit it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Configuration:
    """A program's command line, which names its configuration file, and the values that it set before reading the file.

    Attributes:
        argv: The command line.
        pre_configs: The names and values.
        num_processes, rank: The number of processes and the rank in distributed training; otherwise 1 and -1.
    """

    argv: tuple[str, ...]
    pre_configs: tuple[tuple[str, Any], ...]
    num_processes: int
    rank: int

    @classmethod
    def for_workers(cls, start_method: str) -> Configuration | None:
        """Returns this program's configuration; None if the program has none, or if forked workers inherit it."""
        if start_method == "fork" or not _has_file():
            return None
        import alf
        from alf.utils.per_process_context import PerProcessContext

        process = PerProcessContext()
        return cls(tuple(sys.argv), tuple(alf.get_handled_pre_configs()), process.num_processes, process.ddp_rank)

    def make_first_env(self, constructor: Callable[..., Any], env_id: int | None) -> Any:
        """Reads the configuration file, and returns the env that the file makes; None if it was read earlier.

        ALF makes the env while it reads the file, because the file may use the env that it configures.
        """
        global _is_read  # noqa: PLW0603 - a process is configured once
        if _is_read:
            return None
        import alf
        from alf.environments import process_environment
        from alf.utils.spawned_process_utils import SpawnedProcessContext

        _is_read = True
        sys.argv = list(self.argv)
        process_environment._init_after_spawn(
            SpawnedProcessContext(
                ddp_num_procs=self.num_processes,
                ddp_rank=self.rank,
                env_id=env_id,
                env_ctor=constructor,
                pre_configs=list(self.pre_configs),
            )
        )
        return alf.get_env()


_is_read = False


def _has_file() -> bool:
    """Whether this program's flags name a configuration file. Only ALF's own programs define the flags."""
    flags = getattr(sys.modules.get("absl.flags"), "FLAGS", None)
    if flags is None or not flags.is_parsed():
        return False
    return any(getattr(flags, name, None) is not None for name in ("conf", "gin_file", "root_dir"))
