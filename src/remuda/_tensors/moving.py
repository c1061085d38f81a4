"""Turns nests of arrays into torch tensors on a device."""

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
    """Turns arrays into torch tensors: shared on the CPU, copied to a GPU while the program goes on.

    It is for what a vector env returns, say. (A `Batch` has `Batch.to`.) ::

        obs, reward, terminated, truncated, infos = envs.step(actions)
        obs, reward = remuda.to_torch((obs, reward), "cuda", non_blocking=True)

    On the CPU, tensors share memory with the arrays, and hold the lease of the frame that these lie in. An array that
    cannot be written to, or has a negative stride, is copied: torch has no such tensors.

    On a CUDA device, tensors are copies. They are made on a stream of their own, while the current stream goes on with
    what it has been given; work that it is given later finds them whole. The frame stays leased until the copy is done.
    The pool's memory is page-locked when it is first copied from, and stays so until it goes. Memory that is no pool's
    is copied as torch does it, which may make the call wait. An array that owns its memory and cannot be written to
    (`Batch.env_ids` of all envs) is copied once, and is the same tensor every time.

    Other devices get copies as `torch.Tensor.to` makes them.

    Args:
        arrays: A nest (dicts, tuples, lists) of arrays. Whatever else is in it stays as it is.
        device: Where the tensors are to be. "cuda" is the current CUDA device.
        non_blocking: Return before copies to a CUDA device are done. Otherwise the call waits for them.
        out: A nest of tensors of the same form, which are written to and returned, for those who need fixed addresses,
            as CUDA graphs do. What the current stream was given before still finds what was in them.

    Returns:
        The same nest with a tensor in the place of each array, of the same shape and dtype.

    Raises:
        MissingFrameworkError: torch is not installed.
        TypeError: torch has no such dtype.
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
        moved = [host.to(target) for host in hosts]  # the CPU's are themselves
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
    """Returns a tensor of the CPU: with the array's own memory, if torch has such tensors."""
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
    """Replaces each array by what the function returns for it and its place. Named tuples, such as a Graph, stay."""
    if isinstance(nest, dict):
        return {key: _map(function, value, (*path, key)) for key, value in nest.items()}
    if type(nest) in (tuple, list):
        return type(nest)([_map(function, value, (*path, i)) for i, value in enumerate(nest)])
    return function(path, nest) if isinstance(nest, np.ndarray) else nest


def _at(nest: Any, path: Path) -> Any:
    """Returns what a nest of the same form has in that place, or None."""
    for step in path:
        try:
            nest = nest[step]
        except (KeyError, IndexError, TypeError):
            return None
    return nest


def _shown(path: Path) -> str:
    """A place as an error names it."""
    return "".join(f"[{step!r}]" for step in path)
