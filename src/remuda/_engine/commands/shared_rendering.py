"""Warns once if envs that draw share a process. Simulators that share a graphics context draw wrong pictures."""

from __future__ import annotations

from remuda._engine.running import Running
from remuda._relay.log import logger
from remuda._worker.env_report import EnvReport, renders


class SharedRendering:
    """Finds envs of a pool that draw in one process, and warns once about the first such process.

    Envs that draw only on request, in `render`, count from the first request on: many programs set a render mode for
    all envs and never use it.
    """

    def __init__(self, running: Running, *, has_processes: bool) -> None:
        self._running, self._has_processes = running, has_processes
        self._has_warned = self._has_requests = False

    @property
    def any_draws(self) -> bool:
        """Whether envs draw in their steps, or pictures were requested."""
        return any(map(self._draws, self._running.reports))

    def note_request(self) -> None:
        """Notes that the program requests pictures, and logs the warning if it is due."""
        self._has_requests = True
        self.warn()

    def _draws(self, report: EnvReport) -> bool:
        return report.draws or (self._has_requests and renders(report))

    def warn(self) -> None:
        """Logs a warning if envs that draw share a process, unless a warning was logged before."""
        if self._has_warned or not (envs := self._together()):
            return
        self._has_warned = True
        worker = self._running.layout.worker_of(envs[0])
        where = f"the process of worker {worker}" if self._has_processes else "the caller's process"
        mode = self._running.reports[envs[0]].render_mode
        wanted = "num_workers=None" if self._has_processes else "backend='process' and num_workers=None"
        logger.warning(
            "remuda: expected each env that draws to be alone in its process, got envs %s in %s "
            "(render_mode=%r): simulators that do not select their own graphics context draw wrong pictures there; "
            "use %s, which gives each env a process, or try your env with `remuda doctor`",
            ", ".join(map(str, envs)),
            where,
            mode,
            wanted,
        )

    def _together(self) -> list[int]:
        """Returns the envs that draw in the first process with several of them; [] if there is no such process."""
        layout, reports, first = self._running.layout, self._running.reports, 0
        for count in layout.envs_of_worker if self._has_processes else (len(reports),):
            drawing = [env for env in range(first, first + count, layout.width) if self._draws(reports[env])]
            if len(drawing) > 1:
                return drawing
            first += count
        return []
