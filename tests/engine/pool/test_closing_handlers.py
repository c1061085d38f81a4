"""A handler of logs, warnings or fault reports closes the pool during a call. The call raises ClosedError."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from accidents import raise_value_error
from pairs import each
from pool_envs import begun, hooked

from remuda import ClosedError, FaultPolicy, Pool

logger = logging.getLogger("an env's")


def log(env: Any, action: Any) -> None:
    logger.warning("careful")


def warn(env: Any, action: Any) -> None:
    warnings.warn("careful", stacklevel=1)


USES: dict[str, Callable[[Pool], object]] = {
    "step": lambda pool: pool.step([1, 1]),
    "recv": lambda pool: (pool.send([1, 1]), pool.recv()),
    "timeout": lambda pool: (pool.send([1, 1]), pool.recv(timeout=1e6)),
    "discard": lambda pool: (pool.send([1, 1]), pool.discard()),
    "rollout": lambda pool: (pool.rollout(2), pool.step([1, 1]), pool.step([1, 1])),
}


@contextmanager
def closing_handlers(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    handler = logging.Handler()
    handler.emit = lambda _: pool.close()  # type: ignore[method-assign]
    for name in (logger.name, "remuda"):
        logging.getLogger(name).addHandler(handler)
    try:
        with warnings.catch_warnings(), monkeypatch.context() as patch:
            warnings.simplefilter("always")
            patch.setattr(warnings, "showwarning", lambda *_, **__: pool.close())
            yield
    finally:
        for name in (logger.name, "remuda"):
            logging.getLogger(name).removeHandler(handler)


@pytest.mark.skipif(sys.platform != "linux", reason="worker processes need Linux")
@each(use=list(USES), output=[log, warn])
def test_a_handler_of_an_envs_output_closes_the_pool(
    use: str, output: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    with begun(hooked(2, which=(1,), step=output)) as pool:
        with closing_handlers(pool, monkeypatch), pytest.raises(ClosedError, match="the pool is closed"):
            USES[use](pool)
        assert pool.closed
        assert not any(worker.is_alive() for worker in pool.workers)


@each(use=list(USES), backend=["process", "thread", "serial"])
def test_a_handler_of_a_fault_report_closes_the_pool(use: str, backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    faults = FaultPolicy("restart", backoff=0)
    with begun(hooked(2, which=(1,), step=raise_value_error), backend=backend, faults=faults) as pool:
        with closing_handlers(pool, monkeypatch), pytest.raises(ClosedError, match="the pool is closed"):
            USES[use](pool)
        assert pool.closed
