"""The contenders by name. To measure against another library, write its `Contender` and add it here."""

from __future__ import annotations

from collections.abc import Iterable

from .contenders import Contender, PlainLoop, Remuda, RemudaPerEnv, RemudaSupervised
from .peers import GymnasiumAsync, GymnasiumSync, PufferLib, Sb3, SuperSuit, Tianshou

PEERS: dict[str, type[Contender]] = {
    contender.name: contender
    for contender in (
        RemudaPerEnv,
        RemudaSupervised,
        GymnasiumAsync,
        GymnasiumSync,
        Sb3,
        SuperSuit,
        Tianshou,
        PufferLib,
    )
}


class UnavailableError(Exception):
    """A contender that was asked for is unknown, or its library is not installed."""


def line_up(peers: Iterable[str]) -> list[type[Contender]]:
    """The plain loop, remuda, and the named peers, each once. Raises `UnavailableError`."""
    return [PlainLoop, Remuda, *(find(name) for name in dict.fromkeys(peers))]


def find(name: str) -> type[Contender]:
    """The contender of that name, ready to be built. Raises `UnavailableError`."""
    if name not in PEERS:
        raise UnavailableError(f"unknown peer {name!r}: expected one of {', '.join(PEERS)}")
    contender = PEERS[name]
    if not contender.is_installed():
        raise UnavailableError(f'peer {name!r} is not installed: pip install "{contender.package}"')
    return contender
