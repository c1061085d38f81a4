"""torch, imported where it is needed, and an error that says what to do where it is missing."""

from __future__ import annotations

from typing import Any

from remuda.errors import MissingFrameworkError


def import_torch() -> Any:
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name != "torch":  # something that torch needs, which says so best itself
            raise
        text = "tensors need torch, which is not installed: pip install torch"
        raise MissingFrameworkError(text, name="torch") from error
    return torch
