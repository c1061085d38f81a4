"""Converts nests of arrays to torch tensors on a device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from remuda._tensors import page_locks
from remuda._tensors.cuda import copies_to, import_torch

if TYPE_CHECKING:
    import torch

    Array = np.ndarray[Any, Any]

Path = tuple[Any, ...]
"""Keys and indices of a nest, from the outside in."""


def to_torch(arrays: Any, device: torch.device | str | int = "cpu", non_blocking: bool = False, out: Any = None) -> Any:
    """Converts arrays to torch tensors: shared on the CPU, copied to a GPU while the program continues.

    Use it for the results of a vector env, for example. (A `Batch` has `Batch.to`.) ::

        obs, reward, terminated, truncated, infos = envs.step(actions)
        obs, reward = remuda.to_torch((obs, reward), "cuda", non_blocking=True)

    On the CPU, tensors share memory with the arrays, and hold the lease of their frame. An array that is read-only or
    has a negative stride is copied, because torch has no such tensors.

    On a CUDA device, tensors are copies. A separate stream makes them, while the current stream continues with its
    earlier work; its later work waits for the copies. The frame stays leased until the copy is done.
    The pool's memory is page-locked when it is first copied from, and stays locked until it is freed. torch copies
    memory that does not belong to a pool, and the call may wait for it. An array that owns its memory and is read-only
    (`Batch.env_ids` of all envs) is copied once, and is the same tensor every time.

    For other devices, `torch.Tensor.to` makes the copies.

    Args:
        arrays: A nest (dicts, tuples, lists) of arrays. Other values in it stay unchanged.
        device: The device of the tensors. "cuda" is the current CUDA device.
        non_blocking: Return before copies to a CUDA device are done. Otherwise the call waits for them.
        out: A nest of tensors of the same form, which are overwritten and returned, for users of fixed addresses such
            as CUDA graphs. Earlier work on the current stream still reads the old contents.

    Returns:
        The same nest with tensors instead of arrays, of the same shapes and dtypes.

    Raises:
        MissingFrameworkError: torch is not installed.
        TypeError: torch does not have the dtype of an array.
        ValueError: A tensor of `out` is missing, or has another shape, dtype or device. Nothing was written.
    """
    torch = import_torch()
    target = torch.device(device)
    found: list[tuple[Path, Array]] = []
    _map(lambda path, array: found.append((path, array)), arrays)
    hosts = [_shared(torch, array, _shown(path)) for path, array in found]
    targets = None
    if out is not None:
        targets = [_at(out, path) for path, _ in found]
        for (path, _), host, given in zip(found, hosts, targets, strict=True):
            _check_target(torch, host, given, target, _shown(path))
    if target.type == "cuda":
        moved = _to_cuda([array for _, array in found], hosts, targets, target, non_blocking)
    elif targets is None:
        moved = [host.to(target) for host in hosts]  # on the CPU, `to` copies nothing
    else:
        moved = [given.copy_(host) for given, host in zip(targets, hosts, strict=True)]
    in_order = iter(moved)
    return _map(lambda *_: next(in_order), arrays)


def _to_cuda(
    arrays: Sequence[Array], hosts: Sequence[Any], targets: Sequence[Any] | None, device: Any, non_blocking: bool
) -> Sequence[Any]:
    copies = copies_to(device)
    sources = list(hosts)
    for i, array in enumerate(arrays):
        if array.base is None and not array.flags.writeable:
            sources[i] = copies.constant(array, hosts[i])
        else:
            page_locks.lock(array)
    if targets is not None:
        return copies.copy(sources, targets, non_blocking)
    changing = [source for source in sources if source.device.type == "cpu"]
    moved = iter(copies.copy(changing, None, non_blocking) if changing else ())
    return [next(moved) if source.device.type == "cpu" else source for source in sources]


def _shared(torch: Any, array: Array, place: str) -> Any:
    """Returns a tensor on the CPU, which shares the array's memory if torch supports that."""
    if not array.flags.writeable or any(stride < 0 for stride in array.strides):
        array = array.copy()
    try:
        return torch.from_numpy(array)
    except (TypeError, ValueError) as error:
        text = f"expected arrays of a dtype that torch has, got {array.dtype}{f' at {place}' if place else ''}"
        raise TypeError(f"{text}; convert it in a wrapper of the env") from error


def _check_target(torch: Any, host: Any, given: Any, device: Any, place: str) -> None:
    wanted = f"expected out{place} to be a tensor of shape {tuple(host.shape)} and {host.dtype} on {device}"
    if not isinstance(given, torch.Tensor):
        raise ValueError(f"{wanted}, got {type(given).__name__}")
    is_there = given.device.type == device.type and device.index in (None, given.device.index)
    if given.shape != host.shape or given.dtype != host.dtype or not is_there:
        raise ValueError(f"{wanted}, got one of shape {tuple(given.shape)} and {given.dtype} on {given.device}")


def _map(function: Callable[[Path, Array], Any], nest: Any, path: Path = ()) -> Any:
    """Replaces each array by ``function(path, array)``. Named tuples, such as a Graph, stay unchanged."""
    if isinstance(nest, dict):
        return {key: _map(function, value, (*path, key)) for key, value in nest.items()}
    if type(nest) in (tuple, list):
        return type(nest)([_map(function, value, (*path, i)) for i, value in enumerate(nest)])
    return function(path, nest) if isinstance(nest, np.ndarray) else nest


def _at(nest: Any, path: Path) -> Any:
    """Returns the value at a path in a nest; None if the nest has no such path."""
    for step in path:
        try:
            nest = nest[step]
        except (KeyError, IndexError, TypeError):
            return None
    return nest


def _shown(path: Path) -> str:
    """Returns a path as text, for errors."""
    return "".join(f"[{step!r}]" for step in path)
