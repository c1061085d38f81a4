"""Connects this process to a Ray cluster, and ends a cluster that this process has started."""

from __future__ import annotations

import inspect
import os
import socket
import time
from collections.abc import Mapping
from typing import Any

import ray

from remuda._cluster.description import ClusterDescription
from remuda.errors import BrokenPoolError, StartTimeoutError

_CONNECTING = 5.0  # seconds for the head of a cluster to accept a connection


class Connection:
    """One pool's use of this process's connection to Ray. If this process started the cluster, its last pool ends it.

    Attributes:
        runtime_env: The `runtime_env` of the actors of this pool, in the form that Ray takes for actors.
    """

    _on_ours: int = 0  # the number of pools on the cluster that this process started.
    _ours: str | None = None  # the id of the connection to the cluster that this process started; or None

    def __init__(self, where: ClusterDescription) -> None:
        """Connects to the cluster, unless this process is already connected.

        Raises:
            ValueError: The process is connected to another cluster, or Ray refuses the address or `runtime_env`.
            StartTimeoutError: Ray could not start a cluster, or there is none at the address.
        """
        self.runtime_env: dict[str, Any] | None = None
        if ray.is_initialized():
            _check_same(where.address)
            self.runtime_env = None if where.runtime_env is None else _uploaded(where.runtime_env)
        else:
            _connect(where)
        self._id = _current_connection()
        self._is_on_ours = self._id == Connection._ours
        Connection._on_ours += self._is_on_ours

    @property
    def is_open(self) -> bool:
        return ray.is_initialized() and _current_connection() == self._id

    def check_open(self) -> None:
        if not self.is_open:
            raise BrokenPoolError(
                "the connection to Ray was shut down after this pool was made, and its envs ended with it; "
                "close the pool and make a new one"
            )

    def give_back(self) -> None:
        """Ends the cluster if this process started it and no other pool uses it."""
        if not self._is_on_ours:
            return
        self._is_on_ours = False
        Connection._on_ours -= 1
        if Connection._on_ours == 0 and self.is_open:
            ray.shutdown()


def _current_connection() -> str:
    return str(ray.get_runtime_context().get_worker_id())


def _connect(where: ClusterDescription) -> None:
    address = where.address or os.environ.get("RAY_ADDRESS")
    runtime_env = None if where.runtime_env is None else dict(where.runtime_env)
    if address is not None and address != "local":
        _check_reachable(address)
        _init(address=address, runtime_env=runtime_env)
        return
    _init(address="local", include_dashboard=False, runtime_env=runtime_env)
    Connection._ours, Connection._on_ours = _current_connection(), 0


def _init(**arguments: Any) -> None:
    """Calls `ray.init`, and names its arguments in the errors that it raises."""
    began = time.monotonic()
    given = ", ".join(f"{name}={value!r}" for name, value in arguments.items() if value is not None)
    try:
        ray.init(**arguments)
    except (TypeError, ValueError) as error:
        raise ValueError(f"expected arguments that ray.init accepts, got ray.init({given}): {error}") from error
    except Exception as error:
        raise StartTimeoutError(
            f"expected ray.init({given}) to connect to a Ray cluster, got {type(error).__name__} after "
            f"{time.monotonic() - began:.0f} s: {error}; Ray's limits of time hold here, not start_timeout="
        ) from error


def _check_reachable(address: str) -> None:
    """Raises StartTimeoutError if nothing answers at the address. Ray itself would try for minutes."""
    target = _host_and_port(address)
    if target is None:
        return
    try:
        socket.create_connection(target, timeout=_CONNECTING).close()
    except OSError as error:
        raise StartTimeoutError(f"expected a Ray cluster at address={address!r}, got {error}") from error


def _check_same(address: str | None) -> None:
    """Raises ValueError if the process is connected to a cluster, but not to the cluster at the address."""
    here = _host_and_port(ray.get_runtime_context().gcs_address)
    if address in (None, "auto") or here is None:
        return
    there = _host_and_port(str(address))
    if there is None or _ip(there) != _ip(here):
        raise ValueError(
            f"expected the address of the cluster that this process is connected to, {here[0]}:{here[1]}, or None, got "
            f"{address!r}; to use another cluster, call ray.shutdown() first"
        )


def _host_and_port(address: str) -> tuple[str, int] | None:
    host, _, port = address.rpartition("://")[2].rpartition(":")
    return (host.strip("[]"), int(port)) if host and port.isdigit() else None


def _ip(target: tuple[str, int]) -> tuple[str, int]:
    """Returns the host's IP address, which is the same for all names of this machine, and the port."""
    host, port = target
    try:
        ip = socket.getaddrinfo(host, port)[0][4][0]
    except OSError:
        return host, port
    return (str(ray.util.get_node_ip_address()) if str(ip).startswith("127.") else str(ip)), port


def _uploaded(runtime_env: Mapping[str, Any]) -> dict[str, Any]:
    """Uploads the local folders of a `runtime_env`, and returns a `runtime_env` for actors with their URIs.

    `ray.init` uploads those of a whole program; for actors Ray has no public function, and takes only URIs.
    """
    from ray._private.runtime_env.py_modules import upload_py_modules_if_needed
    from ray._private.runtime_env.working_dir import upload_working_dir_if_needed

    made = dict(runtime_env)
    for upload in (upload_working_dir_if_needed, upload_py_modules_if_needed):
        takes_it = "include_gitignore" in inspect.signature(upload).parameters  # since Ray 2.46
        made = upload(made, **({"include_gitignore": True} if takes_it else {}))
    return made
