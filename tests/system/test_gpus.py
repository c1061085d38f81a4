"""The GPUs of a machine, read from fake /proc and /sys trees."""

from __future__ import annotations

from pathlib import Path

from fake_root import write

from remuda._system.gpus import Gpu, installed_gpus


def with_gpus(root: Path, gpus: dict[str, tuple[str, str]]) -> Path:
    """Creates a fake root directory with GPUs: for each address the driver's text and the kernel's list of cores."""
    for address, (information, cores) in gpus.items():
        write(root / f"proc/driver/nvidia/gpus/{address}/information", information)
        write(root / f"sys/bus/pci/devices/{address.lower()}/local_cpulist", cores)
    return root


def test_gpus_are_sorted_by_bus_address(tmp_path: Path) -> None:
    text = "Model: \t\t NVIDIA H200\nIRQ:   \t\t 100\nGPU UUID: \t GPU-{}\nBus Type: \t PCIe\n"
    root = with_gpus(
        tmp_path, {"0000:CA:00.0": (text.format("b"), "32-63\n"), "0000:1b:00.0": (text.format("a"), "0-3,8,10-11\n")}
    )
    assert installed_gpus(root) == [
        Gpu("GPU-a", frozenset({0, 1, 2, 3, 8, 10, 11})),
        Gpu("GPU-b", frozenset(range(32, 64))),
    ]


def test_missing_information_is_empty(tmp_path: Path) -> None:
    assert installed_gpus(tmp_path) == []
    lists = dict(enumerate(["", "0\n", "nonsense", "1-x"]))
    root = with_gpus(tmp_path, {f"0000:1b:0{i}.0": ("", text) for i, text in lists.items()})
    assert installed_gpus(root) == [Gpu("", frozenset({0} if i == 1 else ())) for i in lists]
