"""ALF's default device. Tests may say that it is a GPU, and make tensors that pretend to be there."""

from __future__ import annotations

_device = "cpu"


def set_default_device(device_name: str) -> None:
    global _device
    _device = device_name


def get_default_device() -> str:
    return _device
