"""Finds NVIDIA's GPUs of this machine, and the cores that are near them, in `/proc` and `/sys`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from remuda._system.cgroups import ROOT, read_text


@dataclass(frozen=True)
class Gpu:
    """A GPU of the machine.

    Attributes:
        uuid: The UUID, as in `nvidia-smi -L`; empty if unknown.
        cores: The cores of its NUMA node; empty if unknown.
    """

    uuid: str
    cores: frozenset[int]


def installed_gpus(root: Path = ROOT) -> list[Gpu]:
    """Returns the GPUs that the driver shows to this process, in the order of PCI addresses, as `nvidia-smi` does.

    `root` is the directory that holds `proc` and `sys`.
    """
    places = root / "proc/driver/nvidia/gpus"
    addresses = sorted(place.name for place in places.iterdir()) if places.is_dir() else []
    found = []
    for address in addresses:
        uuid = re.search(r"^GPU UUID:\s*(\S+)", read_text(places / address / "information"), re.MULTILINE)
        near = read_text(root / "sys/bus/pci/devices" / address.lower() / "local_cpulist")
        found.append(Gpu("" if uuid is None else uuid[1], parse_cores(near)))
    return found


def parse_cores(text: str) -> frozenset[int]:
    """Returns the cores of a kernel's list such as "0-3,8"; empty for other texts."""
    cores: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if first.isdigit() and (last.isdigit() or not last):
            cores.update(range(int(first), int(last or first) + 1))
    return frozenset(cores)
