"""`devices`: the GPUs that are assigned to workers in turn."""

from __future__ import annotations

import os
from typing import Any

import pytest
from pool_envs import CountingEnv
from programs import kill, step_until_restarted

from remuda import FaultPolicy, Pool, worker_info
from remuda._system.gpus import Gpu


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> list[Gpu]:
    """Replaces the machine's GPUs by four. The last core is near the last two GPUs; no core here is near the others."""
    last = frozenset({max(os.sched_getaffinity(0))})
    gpus = [Gpu(f"GPU-{i}{i}{i}", last if i > 1 else frozenset({10_000})) for i in range(4)]
    monkeypatch.setattr("remuda._engine.options.devices.installed_gpus", lambda: gpus)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return gpus


def seen(env: Any) -> tuple[str | None, ...]:
    info = worker_info()
    names = ("CUDA_VISIBLE_DEVICES", "MUJOCO_EGL_DEVICE_ID", "EGL_DEVICE_ID")
    return (info.device, *(os.environ.get(name) for name in names))


def of(name: str, visible: str, place: str | None) -> tuple[str | None, ...]:
    return name, visible, place, place


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        (["cuda:0", "cuda:1"], [of("cuda:0", "0", "0"), of("cuda:1", "1", "1"), of("cuda:0", "0", "0")]),
        ([3], [of("cuda:3", "3", "3")] * 3),
        (["2", "GPU-11"], [of("cuda:2", "2", "2"), of("GPU-11", "GPU-11", "1"), of("cuda:2", "2", "2")]),
        (["MIG-5"], [of("MIG-5", "MIG-5", None)] * 3),
        ("auto", [of(f"cuda:{i}", str(i), str(i)) for i in range(3)]),
    ],
)
def test_workers_get_devices_in_turn(devices: Any, expected: Any) -> None:
    with Pool([CountingEnv] * 3, num_workers=3, devices=devices) as pool:
        assert pool.apply(seen) == expected
        assert pool.options["devices"] == devices
    assert "CUDA_VISIBLE_DEVICES" not in os.environ


def test_devices_are_numbered_by_cuda_visible_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,GPU-1,-1,2")
    with Pool([CountingEnv] * 3, num_workers=3, devices="auto") as pool:
        two = [of("cuda:0", "3", "3"), of("cuda:1", "GPU-1", "1")]
        assert pool.apply(seen) == [*two, two[0]]
    with pytest.raises(ValueError, match=r"sees \(CUDA_VISIBLE_DEVICES='3,GPU-1,-1,2'\), got 'cuda:2'"):
        Pool([CountingEnv], devices=[2])


def test_auto_assigns_no_device_without_gpus(machine: list[Gpu]) -> None:
    machine.clear()
    with Pool([CountingEnv], devices="auto") as pool:
        assert pool.apply(seen) == [(None,) * 4]


@pytest.mark.parametrize(("device", "place"), [("cuda:5", "5"), ("GPU-5", None)])
def test_a_device_that_may_be_there_is_assigned_with_a_warning(
    device: str, place: str | None, machine: list[Gpu], caplog: pytest.LogCaptureFixture
) -> None:
    """It may be a GPU of an unknown vendor."""
    machine.clear()
    for _ in range(2):
        with Pool([CountingEnv], devices=[device]) as pool:
            assert pool.apply(seen) == [of(device, place or device, place)]
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warnings == [
        f"remuda: expected devices of this machine, got {device}, and no GPU of NVIDIA in /proc/driver/nvidia/gpus: "
        "the workers see none, unless another vendor's driver reads CUDA_VISIBLE_DEVICES; pass devices='auto' to use "
        "those that are there"
    ]


def test_factories_and_successors_see_their_device_and_worker_env_overrides_it() -> None:
    def build() -> CountingEnv:
        env = CountingEnv()
        env.mine = seen(env)  # type: ignore[attr-defined]
        return env

    policy, variables = FaultPolicy("restart", backoff=0), {"EGL_DEVICE_ID": "0"}
    with Pool([build] * 2, faults=policy, devices=["cuda:1", "cuda:2"], worker_env=variables) as pool:
        expected = [("cuda:1", "1", "1", "0"), ("cuda:2", "2", "2", "0")]
        assert pool.get_attr("mine") == expected
        pool.reset()
        step_until_restarted(pool, 1, kill(pool, 1))
        assert pool.get_attr("mine") == expected


def test_pinned_workers_use_cores_near_their_device() -> None:
    def cores(env: Any) -> set[int]:
        return os.sched_getaffinity(0)

    allowed = sorted(os.sched_getaffinity(0))
    with Pool([CountingEnv] * 4, num_workers=4, devices=[0, 2, 3, 2], pin_workers=True) as pool:
        near_none, *near_last = pool.apply(cores)
        assert near_none == {allowed[0]}  # the cores near its GPU are not allowed
        assert near_last == [{allowed[-1]}] * 3


@pytest.mark.parametrize(
    ("devices", "error", "message"),
    [
        ("cuda:0", TypeError, r"expected devices to be 'auto', or a sequence such as .*, got 'cuda:0'"),
        (3, TypeError, "expected devices to be 'auto'"),
        ([], ValueError, "expected devices to name at least one"),
        (["cpu"], ValueError, "expected devices such as 'cuda:0', 0 or 'GPU-<uuid>', got 'cpu'"),
        ([None], TypeError, "expected devices such as .* got None"),
        ([4], ValueError, r"expected devices that this program sees \(4 GPUs\), got 'cuda:4'"),
        ([-1], ValueError, "got 'cuda:-1'"),
        (["GPU-4"], ValueError, r"expected devices that this program sees \(4 GPUs\), got 'GPU-4'"),
    ],
)
@pytest.mark.usefixtures("no_start")
def test_wrong_devices_are_refused_before_a_worker_starts(devices: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Pool([CountingEnv] * 2, devices=devices)


@pytest.mark.parametrize("backend", ["thread", "serial"])
@pytest.mark.parametrize("option", [{"devices": "auto"}, {"worker_env": {}}])
def test_devices_and_worker_env_are_refused_without_worker_processes(option: Any, backend: Any) -> None:
    with pytest.raises(ValueError, match=f"expected {next(iter(option))}=None for backend='{backend}'"):
        Pool([CountingEnv], backend=backend, **option)
