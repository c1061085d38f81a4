"""The table of contenders by name. To measure another library, write its `Contender` and add it here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .contenders import Contender, PlainLoop, Remuda, RemudaAuto, RemudaPerEnv, RemudaSplit, RemudaSupervised
from .ding import (
    DiEngine,
    DiEnginePrompt,
    DiEngineSync,
    DiEngineV2,
    RemudaDing,
    RemudaDingPerEnv,
    RemudaDingV2,
    RemudaDingV2PerEnv,
)
from .faces import (
    RemudaGymnasium,
    RemudaGymnasiumAuto,
    RemudaGymnasiumOne,
    RemudaGymnasiumPerEnv,
    RemudaGymnasiumSplit,
)
from .loops import LoopsAtOnce
from .native import AleVector, EnvPool
from .partial import TianshouPartial
from .peers import (
    GymnasiumAsync,
    GymnasiumSync,
    PufferLib,
    RemudaSb3,
    RemudaSb3Auto,
    RemudaSb3PerEnv,
    Sb3,
    Sb3Dummy,
    SuperSuit,
    Tianshou,
)
from .torchrl import TorchRLAsync, TorchRLParallel
from .workloads import Workload


def _by_name(*contenders: type[Contender]) -> dict[str, type[Contender]]:
    return {contender.name: contender for contender in contenders}


PEERS = _by_name(
    RemudaPerEnv,
    RemudaSupervised,
    RemudaAuto,
    RemudaSplit,
    RemudaGymnasium,
    RemudaGymnasiumPerEnv,
    RemudaGymnasiumOne,
    RemudaGymnasiumAuto,
    RemudaGymnasiumSplit,
    RemudaSb3,
    RemudaSb3PerEnv,
    RemudaSb3Auto,
    RemudaDing,
    RemudaDingPerEnv,
    RemudaDingV2,
    RemudaDingV2PerEnv,
    GymnasiumAsync,
    GymnasiumSync,
    Sb3,
    Sb3Dummy,
    DiEngineSync,
    DiEngineV2,
    SuperSuit,
    Tianshou,
    PufferLib,
    TorchRLParallel,
    TorchRLAsync,
    EnvPool,
    AleVector,
    LoopsAtOnce,
)
UNEVEN_PEERS = _by_name(GymnasiumAsync, Sb3, TianshouPartial, DiEngine, DiEnginePrompt)
"""Where envs differ in how long they take: those that go on with some of them, and those that wait for all."""


class UnavailableError(Exception):
    """A contender that was asked for is unknown, or its library is not installed."""


def line_up(peers: Iterable[str]) -> list[type[Contender]]:
    """The plain loop, remuda, and the named peers, each once. Raises `UnavailableError`."""
    return [PlainLoop, Remuda, *(find(name) for name in dict.fromkeys(peers))]


def available(
    names: Iterable[str], workload: Workload | None = None, among: Mapping[str, type[Contender]] = PEERS
) -> tuple[list[type[Contender]], list[str]]:
    """The named contenders that are there, and why the others are not: not installed, or without these envs."""
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
    """The contender of that name, ready to be built. Raises `UnavailableError`."""
    if name not in among:
        raise UnavailableError(f"unknown peer {name!r}: expected one of {', '.join(among)}")
    contender = among[name]
    if not contender.is_installed():
        raise UnavailableError(f'peer {name!r} is not installed: pip install "{contender.package}"')
    return contender
