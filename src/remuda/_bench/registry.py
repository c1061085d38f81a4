"""The table of contenders by name. `benchmarks/peers` has contenders for more libraries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .contenders import Contender, PlainLoop, Remuda, RemudaSplit, RemudaSupervised, Workers
from .faces import RemudaGymnasium, RemudaGymnasiumSplit, RemudaSb3
from .loops import LoopsAtOnce
from .peers import GymnasiumAsync, GymnasiumSync, Sb3, Sb3Dummy
from .workloads import Workload


def by_name(*contenders: type[Contender]) -> dict[str, type[Contender]]:
    return {contender.name: contender for contender in contenders}


def _with(workers: Workers, contender: type[Contender], name: str) -> type[Contender]:
    """Returns a contender like the given one, with another number of workers."""
    return type(name, (contender,), {"name": name, "workers": workers})


PEERS = by_name(
    _with("one an env", Remuda, "remuda-per-env"),
    RemudaSupervised,
    _with("auto", Remuda, "remuda-auto"),
    RemudaSplit,
    RemudaGymnasium,
    _with("one an env", RemudaGymnasium, "remuda-gymnasium-per-env"),
    _with("one", RemudaGymnasium, "remuda-gymnasium-1"),
    _with("auto or none", RemudaGymnasium, "remuda-gymnasium-auto"),
    RemudaGymnasiumSplit,
    RemudaSb3,
    _with("one an env", RemudaSb3, "remuda-sb3-per-env"),
    _with("auto or none", RemudaSb3, "remuda-sb3-auto"),
    GymnasiumAsync,
    GymnasiumSync,
    Sb3,
    Sb3Dummy,
    LoopsAtOnce,
)


class UnavailableError(Exception):
    """A named contender is unknown, or its library is not installed."""


def line_up(peers: Iterable[str], among: Mapping[str, type[Contender]] = PEERS) -> list[type[Contender]]:
    """Returns the plain loop, remuda, and the named peers, each once. Raises `UnavailableError`."""
    return [PlainLoop, Remuda, *(find(name, among) for name in dict.fromkeys(peers))]


def available(
    names: Iterable[str], among: Mapping[str, type[Contender]], workload: Workload | None = None
) -> tuple[list[type[Contender]], list[str]]:
    """Returns the contenders that are installed and can step the workload's env, and why the others cannot run."""
    kinds, left_out = [], []
    for name in names:
        try:
            kind = find(name, among)
        except UnavailableError as error:
            left_out.append(str(error))
            continue
        if workload is not None and not kind.is_for(workload):
            left_out.append(f"peer {name!r} has envs of its own, and none that is {workload.name}")
        else:
            kinds.append(kind)
    return kinds, left_out


def find(name: str, among: Mapping[str, type[Contender]] = PEERS) -> type[Contender]:
    """Returns the contender of that name. Raises `UnavailableError`."""
    if name not in among:
        raise UnavailableError(f"unknown peer {name!r}: expected one of {', '.join(among)}")
    contender = among[name]
    if not contender.is_installed():
        raise UnavailableError(f'peer {name!r} is not installed: pip install "{contender.package}"')
    return contender
