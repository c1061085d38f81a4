"""The libraries that remuda is raced against. To race another one, write its `Contender` and add it here."""

from __future__ import annotations

from remuda._bench import registry
from remuda._bench.peers import GymnasiumAsync, Sb3

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
from .native import AleVector, EnvPool
from .pufferlib import PufferLib
from .supersuit import SuperSuit
from .tianshou import Tianshou, TianshouPartial
from .torchrl import TorchRLAsync, TorchRLParallel

PEERS = registry.PEERS | registry.by_name(
    RemudaDing,
    RemudaDingPerEnv,
    RemudaDingV2,
    RemudaDingV2PerEnv,
    DiEngineSync,
    DiEngineV2,
    SuperSuit,
    Tianshou,
    PufferLib,
    TorchRLParallel,
    TorchRLAsync,
    EnvPool,
    AleVector,
)
UNEVEN_PEERS = registry.by_name(GymnasiumAsync, Sb3, TianshouPartial, DiEngine, DiEnginePrompt)
"""The peers that `uneven.py` races. Some continue with the envs that have finished, and some wait for all."""
