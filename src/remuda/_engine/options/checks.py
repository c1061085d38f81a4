"""Checks of the options and timeouts that callers give, and the entry of an option in the table of options.

A check of an option gets the option's name and the given value. It returns the value in force, or raises.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, TypeAlias

from gymnasium import Space

from remuda._wire.autoreset import AUTORESET_MODES

Check: TypeAlias = Callable[[str, Any], Any]

_GYMNASIUM_NAMES = {mode.gymnasium: name for name, mode in AUTORESET_MODES.items()}
_OURS = "REMUDA_"  # the prefix of the pool's own environment variables
_UNITS = {"": 1} | {
    prefix + suffix: base**power
    for power, prefix in enumerate("KMGT", 1)
    for suffix, base in (("", 1024), ("IB", 1024), ("B", 1000))
}


# -- functions that make checks ----------------------------------------------------------------------------


def value_of(convert: Callable[[Any], Any]) -> Check:
    """Returns a check that returns the result of `convert`: the value in force. `convert` raises for invalid values."""
    return lambda _, given: convert(given)


def checked_by(check: Callable[[Any], object]) -> Check:
    """Returns a check that returns the given value, unless `check` raises for it."""

    def checked(_: str, given: Any) -> Any:
        check(given)
        return given

    return checked


def int_from(least: int, most: int | None = None, *, or_none: bool = False) -> Check:
    to = "up" if most is None else f"to {most}"

    def check(name: str, given: Any) -> Any:
        if given is None and or_none:
            return None
        if not is_int(given) or given < least or (most is not None and given > most):
            raise ValueError(
                f"expected {name} to be an int from {least} {to}{', or None' if or_none else ''}, got {given!r}"
            )
        return given

    return check


def seconds(*, or_zero: bool = True, or_none: bool = True) -> Check:
    """Returns a check that accepts positive numbers."""
    expected = f"{'at least' if or_zero else 'more than'} 0{', or None' if or_none else ''}"

    def check(name: str, given: Any) -> Any:
        check_timeout(given, name)
        if (not or_none) if given is None else (given < 0 or (given == 0 and not or_zero)):
            raise ValueError(f"expected {name} to be {expected}, got {given}")
        return given

    return check


def one_of(*values: str) -> Check:
    """Returns a check that accepts only `values`."""

    def check(name: str, given: Any) -> Any:
        if given not in values:
            raise ValueError(f"expected {name} to be one of {values}, got {given!r}")
        return given

    return check


# -- checks of one kind of value ---------------------------------------------------------------------------


def is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def true_or_false(name: str, given: Any) -> bool:
    if not isinstance(given, bool):
        raise TypeError(f"expected {name} to be True or False, got {given!r}")
    return given


def nanoseconds(seconds: float) -> int:
    """Returns a time for the core, whose integers have 64 bits: 30 years stand for any longer time."""
    return int(min(seconds, 1e9) * 1e9)


def check_timeout(timeout: Any, name: str = "timeout") -> None:
    if timeout is not None and (not isinstance(timeout, Real) or math.isnan(timeout)):
        raise TypeError(f"expected {name} to be a number of seconds or None, got {timeout!r}")


def module_names(name: str, given: Any) -> tuple[str, ...]:
    if isinstance(given, str):
        raise TypeError(f"expected {name} to be a sequence of module names, got {given!r}; write [{given!r}]")
    return tuple(given)


def single_space(name: str, given: Any) -> Any:
    if given is not None and not isinstance(given, Space):
        raise TypeError(f"expected {name} to be a gymnasium.Space or None, got {given!r}")
    return given


def memory_limit(given: Any) -> int | None:
    """Returns the option `max_worker_memory` in bytes; None for no limit."""
    if given is None:
        return None
    size = given
    if isinstance(given, str):
        written = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?(?:I?B)?)\s*", given, re.IGNORECASE)
        unit = None if written is None else _UNITS.get(written[2].upper().removeprefix("B"))
        size = 0 if written is None or unit is None else int(float(written[1]) * unit)
    elif not is_int(given):
        raise TypeError(f"expected max_worker_memory to be bytes, a text such as '2GiB', or None, got {given!r}")
    if size < 1:
        raise ValueError(f"expected max_worker_memory such as 2 * 2**30, '2GiB' or '500MB', got {given!r}")
    return int(size)


def variables_of(worker_env: Any, worker: int) -> dict[str, str]:
    """Returns the environment variables of one worker from the option `worker_env`.

    Raises:
        TypeError, ValueError: They cannot be variables.
        Exception: Whatever the caller's function raises.
    """
    if worker_env is None:
        return {}
    variables = worker_env(worker) if callable(worker_env) else worker_env
    where = f"worker_env({worker})" if callable(worker_env) else "worker_env"
    if not isinstance(variables, Mapping):
        raise TypeError(f"expected {where} to be a mapping of environment variables, got {variables!r}")
    for name, value in variables.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise TypeError(f"expected {where} to have strings only, got {name!r}: {value!r}; write str(...)")
        if not name or "=" in name or "\0" in name + value:
            expected = "names and values that an environment can have"
            raise ValueError(f"expected {expected} in {where}, got {name!r}: {value!r}")
        if name.startswith(_OURS):
            raise ValueError(f"expected no variables of remuda's own in {where}, got {name!r}")
    return dict(variables)


# -- autoreset modes ---------------------------------------------------------------------------------------


def autoreset_name(mode: Any) -> Any:
    """Returns the pool's name for a mode of Gymnasium's `AutoresetMode` or its value; other values unchanged."""
    value = getattr(mode, "value", mode)
    return _GYMNASIUM_NAMES.get(value, mode) if isinstance(value, str) else mode


def autoreset_mode(name: str, given: Any) -> Any:
    """Checks the option `autoreset`, and returns the pool's name for the mode."""
    return one_of(*AUTORESET_MODES)(name, autoreset_name(given))


def check_autoreset(autoreset: str, metadata: Sequence[Mapping[str, Any]]) -> None:
    """Raises ValueError if a vector env's metadata names another mode than the pool's."""
    for i, one in enumerate(metadata):
        mode = one.get("autoreset_mode")
        name = autoreset_name(mode)
        if mode is not None and name != autoreset:
            raise ValueError(
                f"expected vector envs that agree with autoreset={autoreset!r}, got the autoreset_mode {mode!r} of "
                f"env_fns[{i}]; pass autoreset={name!r}, or build them with another mode"
            )


@dataclass(frozen=True)
class Option:
    """One option of a pool.

    Attributes:
        default: The value if the option is not given, in the form in which a caller would write it.
        check: Converts the given value into the value in force. Raises TypeError or ValueError.
        keeps_processes: With another value than the default, `backend="auto"` means worker processes.
        one_worker_each: With another value than the default, each env gets a worker if `num_workers` is not given.
        needs_one_worker_each: Why, with another value than the default, no two envs may share a worker; None: they may.
        of_processes: Why workers other than processes need the default; None: they support any value.
        not_on_a_cluster: Why a pool on a cluster needs the default; None: it supports any value.
    """

    default: Any
    check: Check
    keeps_processes: bool = False
    one_worker_each: bool = False
    needs_one_worker_each: str | None = None
    of_processes: str | None = None
    not_on_a_cluster: str | None = None

    @property
    def in_force(self) -> Any:
        """The value in force if the option is not given."""
        return self.check("", self.default)


def option(default: Any, check: Check = lambda _, given: given, **needs: Any) -> Any:
    """Returns a dataclass field for an option's value in force. `needs`: further attributes of its `Option`."""
    entry = Option(default, check, **needs)
    return field(default=entry.in_force, metadata={"option": entry})
