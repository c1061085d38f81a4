"""The caller's own columns: values that a function computes from an env after each of its resets and steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from remuda._wire.codec import ColumnSpec, coerce
from remuda._wording import name_some
from remuda.errors import InvalidEnvError

ExtraFn: TypeAlias = Callable[[Any], Any]

NUMBERS = "biufc"  # the kinds of dtypes that these columns may have


@dataclass(frozen=True)
class StepColumn:
    """A column of the option `extras` whose values belong to steps, as rewards do::

        extras = {"energy": remuda.StepColumn(lambda env: env.unwrapped.energy_used, (), "float32")}

    The worker calls the function right after each step, before an autoreset changes the env. So in the row in which an
    episode ends, the value is that of the last step, in every autoreset mode. Rows of resets and faults have zeros.

    Attributes:
        function: Called with the env; returns the value.
        shape, dtype: Those of the value for one env. If both are None, those of the function's value for a new env.
    """

    function: ExtraFn
    shape: int | Sequence[int] | None
    dtype: Any


@dataclass(frozen=True)
class Computed:
    """A column of values that a function of the caller computes.

    Attributes:
        name: The caller's name for it.
        function: Called with the env; returns the value of the column. For a vector env, it returns an array with a
            row for each of its envs.
        declared: The dtype and shape for one env, if the caller has declared them.
        of_step: Whether the column is a `StepColumn`.
    """

    name: str
    function: ExtraFn
    declared: ColumnSpec | None = None
    of_step: bool = False

    @property
    def path(self) -> str:
        return path_of(self.name)

    def spec(self, env: Any, width: int | None) -> ColumnSpec:
        """Returns the column's dtype and shape: the declared ones, or those of the function's value for a new env.

        Args:
            width: The number of envs of a vector env; None for a single env.

        Raises:
            InvalidEnvError: The function raised, or its value is not numeric, or has no row for each env.
        """
        if self.declared is not None:
            return self.declared
        try:
            return self._found(env, width)
        except Exception as error:
            raise InvalidEnvError(
                f"{blamed(self.path, error)}; it was called with an env that has not been reset, to find its shape and "
                f"dtype: declare them, with extras={{{self.name!r}: (function, (shape, dtype))}}"
            ) from error

    def _found(self, env: Any, width: int | None) -> ColumnSpec:
        value = np.asarray(self.function(env))
        if value.dtype.kind not in NUMBERS:
            raise TypeError(f"expected numbers at {self.path}, got {value.dtype}")
        if width is not None and value.shape[:1] != (width,):
            raise ValueError(f"expected {width} rows at {self.path}, one for each env, got the shape {value.shape}")
        return ColumnSpec(self.path, value.dtype, value.shape if width is None else value.shape[1:])


def path_of(name: str) -> str:
    """Returns the text that names a column in errors: `extras['name']`."""
    return f"extras[{name!r}]"


def fit(spec: ColumnSpec, value: Any, width: int | None = None) -> np.ndarray[Any, Any]:
    """Returns a value in its column's dtype and shape. `width`: the number of envs of a vector env."""
    shape = spec.shape if width is None else (width, *spec.shape)
    return coerce(value, spec.dtype, shape, spec.path, ValueError)


def blamed(path: str, error: BaseException) -> RuntimeError:
    """Returns the error to raise when a column's function has raised `error`."""
    return RuntimeError(f"{path} raised {type(error).__qualname__}: {error}")


def compute(columns: Sequence[Computed], specs: Sequence[ColumnSpec], env: Any, width: int) -> list[Any]:
    """Returns the value of each column for a vector env, in the column's dtype and shape.

    Raises:
        RuntimeError: A function raised; the cause is its exception.
        ValueError: A value does not fit.
    """
    values = []
    for column, spec in zip(columns, specs, strict=True):
        try:
            value = column.function(env)
        except Exception as error:
            raise blamed(column.path, error) from error
        values.append(np.array(fit(spec, value, width)))
    return values


def check_same(reference: Sequence[ColumnSpec], name: str, found: Mapping[int, Sequence[ColumnSpec]]) -> None:
    """Checks that each env in `found` has the columns `reference`. Errors name the source of `reference` by `name`.

    Raises:
        InvalidEnvError: Names the envs and the difference.
    """
    for i, expected in enumerate(reference):
        others = {env_id: specs[i] for env_id, specs in found.items() if specs[i] != expected}
        if others:
            raise InvalidEnvError(
                f"expected {expected.path} to be of one shape and dtype for all envs, {_text(expected)} as for {name}, "
                f"got {_text(next(iter(others.values())))} for {name_some('env', others)}; declare them, as "
                "(function, (shape, dtype)), and what can be cast without loss is"
            )


def _text(spec: ColumnSpec) -> str:
    return f"the shape {spec.shape} and dtype {spec.dtype}"
