"""The libraries that remuda is raced against. To race another one, write its `Contender` and add it here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from remuda._bench import contenders
from remuda._bench.contenders import Contender, Gymnasium, Sb3, UnavailableError, by_name, find
from remuda._bench.workloads import Workload

from . import ding, remuda_pools
from .native import AleVector, EnvPool
from .plain import GymnasiumSync, IdealLoops, Sb3Dummy
from .pufferlib import PufferLib, PufferLibOne
from .tianshou import Tianshou, TianshouPartial
from .torchrl import TorchRL, TorchRLQueue, TorchRLShm

PEERS = (
    contenders.PEERS
    | remuda_pools.CONTENDERS
    | ding.CONTENDERS
    | by_name(GymnasiumSync, Sb3Dummy, IdealLoops, Tianshou, PufferLib, PufferLibOne, TorchRL, EnvPool, AleVector)
)
UNEVEN_PEERS = by_name(Gymnasium, Sb3, TianshouPartial, ding.DiEngine, ding.DiEnginePrompt, TorchRLQueue, TorchRLShm)
"""The peers that `uneven.py` races. Some continue with the envs that have finished, and some wait for all."""


def available(
    names: Iterable[str], among: Mapping[str, type[Contender]] = PEERS, workload: Workload | None = None
) -> tuple[list[type[Contender]], list[str]]:
    """Returns the contenders that are installed and can step the workload's env, and why the others cannot run."""
    kinds, left_out = [], []
    for name in names:
        try:
            kind = find(name, among)
        except UnavailableError as error:
            left_out.append(str(error))
            continue
        # a contender with envs of its own has `is_for`
        if workload is None or getattr(kind, "is_for", lambda _: True)(workload):
            kinds.append(kind)
        else:
            left_out.append(f"peer {name!r} has envs of its own, and none that is {workload.name}")
    return kinds, left_out
