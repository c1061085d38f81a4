"""ALF's default device. Tests can set it to a GPU and use fake tensors."""

from __future__ import annotations

_device = "cpu"


def set_default_device(device_name: str) -> None:
    global _device
    _device = device_name


def get_default_device() -> str:
    return _device
