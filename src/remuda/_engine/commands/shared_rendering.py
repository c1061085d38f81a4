"""Warns once if envs that render share a process. Simulators that share a graphics context draw wrong pictures."""

from __future__ import annotations

from remuda._engine.running import Running
from remuda._relay.log import logger
from remuda._worker.env_report import renders


class SharedRendering:
    """Finds envs of a pool that render in one process, and warns once about the first such process."""

    def __init__(self, running: Running, *, has_processes: bool) -> None:
        self._running, self._has_processes = running, has_processes
        self._has_warned = False

    @property
    def any_renders(self) -> bool:
        return any(map(renders, self._running.reports))

    def warn(self) -> None:
        """Logs a warning if envs that render share a process, unless a warning was logged before."""
        if self._has_warned or not (envs := self._together()):
            return
        self._has_warned = True
        worker = self._running.layout.worker_of(envs[0])
        where = f"the process of worker {worker}" if self._has_processes else "the caller's process"
        mode = self._running.reports[envs[0]].render_mode
        wanted = "num_workers=None" if self._has_processes else "backend='process' and num_workers=None"
        logger.warning(
            "remuda: expected each env that renders to be alone in its process, got envs %s in %s "
            "(render_mode=%r): simulators that do not select their own graphics context draw wrong pictures there; "
            "use %s, which gives each env a process, or try your env with `remuda doctor`",
            ", ".join(map(str, envs)),
            where,
            mode,
            wanted,
        )

    def _together(self) -> list[int]:
        """Returns the envs that render in the first process with several of them; [] if there is no such process."""
        layout, reports, first = self._running.layout, self._running.reports, 0
        for count in layout.envs_of_worker if self._has_processes else (len(reports),):
            rendering = [env for env in range(first, first + count, layout.width) if renders(reports[env])]
            if len(rendering) > 1:
                return rendering
            first += count
        return []
