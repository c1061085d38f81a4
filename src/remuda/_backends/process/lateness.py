"""Tells of workers that have not built their envs in time."""

from __future__ import annotations

from remuda._backends.process.process_worker import ProcessWorker
from remuda.errors import StartTimeoutError


def start_timeout(late: list[ProcessWorker], timeout: float | None) -> StartTimeoutError:
    envs = [env_id for worker in late for env_id in worker.env_ids]
    expected = f"expected every env to be built within start_timeout={timeout} s, got no answer for the envs {envs} "
    whose = f"(workers {[worker.index for worker in late]}); "
    if late[0].process is None:
        return StartTimeoutError(
            f"{expected}{whose}the fork server did not even start them: it may still be importing the modules "
            "in preload=[...]; give it more time"
        )
    return StartTimeoutError(f"{expected}{whose}give it more time, or preload=[...] the modules they import")
