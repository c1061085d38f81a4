"""The environment variables that a caller gives the worker processes."""

from __future__ import annotations

from collections.abc import Mapping

from remuda._engine.options.pool_options import WorkerEnv

_OURS = "REMUDA_"  # whose processes are told apart by such


def variables_of(worker_env: WorkerEnv | None, worker: int) -> dict[str, str]:
    """Those of one worker.

    Raises:
        TypeError, ValueError: What cannot be variables.
        Exception: Whatever the caller's function raises.
    """
    if worker_env is None:
        return {}
    variables = worker_env(worker) if callable(worker_env) else worker_env
    where = f"worker_env({worker})" if callable(worker_env) else "worker_env"
    if not isinstance(variables, Mapping):
        raise TypeError(f"expected {where} to be a mapping of environment variables, got {variables!r}")
    for name, value in variables.items():
        _check(name, value, where)
    return dict(variables)


def _check(name: object, value: object, where: str) -> None:
    if not isinstance(name, str) or not isinstance(value, str):
        raise TypeError(f"expected {where} to have strings only, got {name!r}: {value!r}; write str(...)")
    if not name or "=" in name or "\0" in name + value:
        raise ValueError(f"expected names and values that an environment can have in {where}, got {name!r}: {value!r}")
    if name.startswith(_OURS):
        raise ValueError(f"expected no variables of remuda's own in {where}, got {name!r}")
