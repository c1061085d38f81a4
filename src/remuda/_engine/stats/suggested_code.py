"""Code that a verdict suggests. It keeps the options that the pool was made with."""

from __future__ import annotations

import json
from collections.abc import Mapping

from remuda._engine.stats.snapshot import Setup


def made(setup: Setup, env_fns: str = "env_fns", **changes: str | None) -> str:
    """The call that makes the pool, or what stands for it.

    Args:
        setup: Of the pool.
        env_fns: The factories, as code.
        **changes: Options as code that differ from those of the pool; None: the option is left out.
    """
    return _filled(setup, setup.make.replace("{env_fns}", env_fns), changes)


def with_spares(setup: Setup, spares: int) -> str | None:
    """The same with spare envs, which have a worker each; None where there is no such thing."""
    if not setup.spare or "max_concurrency" in dict(setup.options):
        return None
    return _filled(setup, setup.spare.replace("{spares}", str(spares)), {"num_workers": None})


def partial(setup: Setup, enough: int) -> str | None:
    """A loop that goes on with so many envs."""
    return setup.partial.replace("{enough}", str(enough)) or None


def without_info(setup: Setup, key: str) -> str | None:
    """The pool with envs that leave a key out of their infos; None where envs are not of Gymnasium's kind."""
    if not setup.slim or setup.vector_size is not None:
        return None
    factories = "[lambda make=make: Slim(make()) for make in env_fns]"
    return setup.slim.replace("{key}", json.dumps(key)).replace("{made}", made(setup, factories))


def _filled(setup: Setup, template: str, changes: Mapping[str, str | None]) -> str:
    options = {**dict(setup.options), **changes}
    text = ", ".join(f"{name}={code}" for name, code in options.items() if code is not None)
    return template.replace(", {options}", f", {text}" if text else "").replace("{options}", text)
