"""Deals GPUs out to workers. Each worker gets environment variables that select its GPU, and cores near the GPU."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from remuda._engine.options.checks import is_int
from remuda._relay.log import logger
from remuda._system.gpus import Gpu, installed_gpus

_VISIBLE = "CUDA_VISIBLE_DEVICES"
# Environment variables for the number of an EGL device: MuJoCo reads the first, dm_control and pyrender the second.
_EGL_NUMBERS = ("MUJOCO_EGL_DEVICE_ID", "EGL_DEVICE_ID")


@dataclass(frozen=True)
class Device:
    """A GPU that workers may get."""

    name: str | None = None  # the GPU's name, which `worker_info().device` returns.
    variables: dict[str, str] = field(default_factory=dict)  # environment variables that hide all other GPUs from CUDA.
    cores: frozenset[int] = frozenset()  # the cores near the GPU; empty if they are unknown


def find_devices(given: Any) -> tuple[Device, ...]:
    """Returns the devices that the option `devices` names; () if it is "auto" and there are no GPUs.

    Raises TypeError or ValueError if `given` is invalid, empty, or names a device that this program does not see.
    Without a GPU of NVIDIA a device may be one of another vendor: then this only logs a warning.
    """
    gpus = installed_gpus()
    machine = _Machine(gpus, os.environ.get(_VISIBLE))
    if isinstance(given, str) and given == "auto":
        return tuple(machine.numbered(number) for number in range(len(machine.visible)))
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise TypeError(f"expected devices to be 'auto', or a sequence such as ['cuda:0', 'cuda:1'], got {given!r}")
    if not (listed := list(given)):
        raise ValueError("expected devices to name at least one, got none; pass None for no choice of a GPU")
    found = tuple(machine.find(one) for one in listed)
    if not gpus:
        _warn(", ".join(str(device.name) for device in found))
    return found


@functools.cache
def _warn(devices: str) -> None:
    logger.warning(
        "remuda: expected devices of this machine, got %s, and no GPU of NVIDIA in /proc/driver/nvidia/gpus: the "
        "workers see none, unless another vendor's driver reads CUDA_VISIBLE_DEVICES; pass devices='auto' to use those "
        "that are there",
        devices,
    )


class _Machine:
    """The GPUs that this program may use. `visible`: the number of each on the machine, or CUDA's name for it."""

    def __init__(self, gpus: Sequence[Gpu], variable: str | None) -> None:
        self._gpus, self._variable = gpus, variable
        self.visible = [str(number) for number in range(len(gpus))] if variable is None else _usable(variable)

    def find(self, given: Any) -> Device:
        if is_int(given):
            return self.numbered(given)
        if isinstance(given, str) and (number := re.fullmatch(r"(?:cuda:)?(\d+)", given)):
            return self.numbered(int(number[1]))
        if isinstance(given, str) and given.startswith(("GPU-", "MIG-")):
            are_known = self._gpus and all(gpu.uuid for gpu in self._gpus)
            if given.startswith("GPU-") and are_known and self._place(given) is None:
                raise self._unseen(given)
            return self._device(given, given)
        kind = ValueError if isinstance(given, (str, int)) else TypeError
        raise kind(f"expected devices such as 'cuda:0', 0 or 'GPU-<uuid>', got {given!r}")

    def numbered(self, number: int) -> Device:
        """Returns the GPU with this number, as CUDA counts them in this program."""
        if 0 <= number < len(self.visible):
            return self._device(f"cuda:{number}", self.visible[number])
        if number < 0 or self._gpus or self._variable is not None:
            raise self._unseen(f"cuda:{number}")
        return self._device(f"cuda:{number}", str(number))  # unknown: another maker's

    def _unseen(self, name: str) -> ValueError:
        see = f"{len(self.visible)} GPUs" if self._variable is None else f"{_VISIBLE}={self._variable!r}"
        return ValueError(f"expected devices that this program sees ({see}), got {name!r}")

    def _device(self, name: str, visible: str) -> Device:
        variables, place = {_VISIBLE: visible}, self._place(visible)
        if place is not None:
            variables |= dict.fromkeys(_EGL_NUMBERS, str(place))
        near = self._gpus[place].cores if place is not None and place < len(self._gpus) else frozenset[int]()
        return Device(name, variables, near)

    def _place(self, visible: str) -> int | None:
        """Returns the place of the GPU `visible` on the bus; None if it is unknown, or `visible` is a MIG slice."""
        if visible.isdigit():
            return int(visible)
        return next((place for place, gpu in enumerate(self._gpus) if gpu.uuid.startswith(visible)), None)


def _usable(variable: str) -> list[str]:
    """Returns the devices in `CUDA_VISIBLE_DEVICES`, up to the first invalid one, as CUDA does."""
    listed = []
    for one in variable.split(","):
        if not (one.strip().isdigit() or one.strip().startswith(("GPU-", "MIG-"))):
            break
        listed.append(one.strip())
    return listed
