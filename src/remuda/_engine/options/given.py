"""The options that the caller has given to a pool, as code. Advice to change an option shows them too."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from remuda._engine.options.autoreset import autoreset_name
from remuda._engine.options.fault_policy import FaultPolicy
from remuda._engine.options.pool_options import OPTIONS, RemoteBackend


@dataclass(frozen=True)
class Asked:
    """The options that a caller has given to a pool, in the form in which `Setup` has them."""

    options: tuple[tuple[str, str], ...] = ()  # (name, code) of each option; (name, name) if its value has no code
    keeps_apart: bool = False
    needs_processes: bool = False  # whether an option, such as a deadline, needs worker processes

    @classmethod
    def of(cls, options: Mapping[str, Any], policy: FaultPolicy) -> Asked:
        """`options`: all options, in the form in which callers give them. `policy`: made from the option `faults`."""
        shown = {name: value for name, value in options.items() if not _is_default(name, value)}
        needed = any(OPTIONS[name].keeps_processes for name in shown)
        autoreset, backend = autoreset_name(options["autoreset"]), options["backend"]
        return cls(
            tuple((name, as_code(value) or name) for name, value in shown.items()),
            policy != FaultPolicy() or options["max_worker_memory"] is not None,
            needed or autoreset == "background" or isinstance(backend, RemoteBackend),
        )


def _is_default(name: str, value: Any) -> bool:
    if name == "faults":
        return bool(FaultPolicy.of(value) == FaultPolicy())
    return OPTIONS[name].is_default(value)


def as_code(value: Any) -> str | None:
    """Returns a Python expression for the value, which may use `remuda`; None if there is no short one."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if value is None or isinstance(value, (bool, int)) or (isinstance(value, float) and math.isfinite(value)):
        return repr(value)
    if dataclasses.is_dataclass(value) and type(value).__module__.startswith("remuda."):
        return _constructor(value)
    if isinstance(value, (list, tuple, Mapping)):
        return _collection(value)
    plain = os.fspath(value) if isinstance(value, os.PathLike) else getattr(value, "value", None)
    return as_code(plain) if isinstance(plain, str) else None  # a member of Gymnasium's AutoresetMode has a `value`


def _constructor(value: Any) -> str | None:
    changed = {
        one.name: as_code(getattr(value, one.name))
        for one in dataclasses.fields(value)
        if getattr(value, one.name) != _default_of(one)
    }
    if None in changed.values():
        return None
    return f"remuda.{type(value).__name__}({', '.join(f'{name}={code}' for name, code in changed.items())})"


def _default_of(one: dataclasses.Field[Any]) -> Any:
    return one.default if one.default_factory is dataclasses.MISSING else one.default_factory()


def _collection(value: list[Any] | tuple[Any, ...] | Mapping[Any, Any]) -> str | None:
    if isinstance(value, Mapping):
        pairs = [(as_code(key), as_code(item)) for key, item in value.items()]
        return None if any(None in pair for pair in pairs) else f"{{{', '.join(f'{k}: {v}' for k, v in pairs)}}}"
    items = [as_code(item) for item in value]
    return None if None in items else f"[{', '.join(map(str, items))}]"
