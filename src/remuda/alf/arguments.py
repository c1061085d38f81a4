"""Arguments as ALF takes them: which of the pool's options, and how its configuration finds them."""

from __future__ import annotations

import inspect
from typing import Any, TypeVar

from remuda import PoolOptions

T = TypeVar("T", bound=type[Any])

REFUSED = {
    "autoreset": "in ALF an env whose episode is over is reset by the next step, which is FIRST",
    "observation_space": "rows are laid out for the envs' specs",
    "resets_ahead": "envs always reset ahead, unless max_concurrency= or blocking= holds them back",
    "seeding": "call seed(), which gives each env's own seed() what it was given",
    "spares": "use num_spare_envs_for_reload=",
    "starts_serially": "use start_serially=",
    "threads_per_worker": "use torch_num_threads_per_env=",
    "vector_size": "envs that are batched themselves say so by their batch_size",
}
"""Options of the pool that have another name in ALF, or no meaning."""


def configured_by_name(cls: T) -> T:
    """A decorator of classes under ``alf.configurable``: has their signature name each of the pool's options.

    ALF's configuration knows the parameters of a constructor that its signature names, and no ``**options``.
    """
    constructor: Any = cls.__init__
    signature = inspect.signature(constructor)
    own = [parameter for parameter in signature.parameters.values() if parameter.kind is not parameter.VAR_KEYWORD]
    names = PoolOptions.__annotations__.keys() - REFUSED.keys() - signature.parameters.keys()
    options = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in sorted(names)]
    constructor.__signature__ = signature.replace(parameters=[*own, *options])
    return cls
