"""What is a worker's own: the variables of `worker_env`, the GPU of `devices`, and the number `worker_info().unique`.

The variables are set before modules of the envs are imported. No other live worker on the machine has the same number.
"""

from __future__ import annotations

import os
import pickle
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from accidents import raise_value_error
from pool_envs import CountingEnv, HookedEnv
from programs import kill, step_until_restarted

from remuda import FaultPolicy, Pool, worker_info
from remuda._system.gpus import Gpu
from remuda._worker.unique_number import UniqueNumber

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")


def of_worker(i: int) -> dict[str, str]:
    return {"HERD_GPU": str(i + 5), "HERD_HOME": "here"}


def seen(env: Any) -> tuple[str | None, str | None]:
    return os.environ.get("HERD_GPU"), os.environ.get("HERD_HOME")


def test_each_worker_and_its_child_processes_have_their_variables() -> None:
    with Pool([CountingEnv] * 3, num_workers=2, worker_env=of_worker) as pool:
        assert pool.apply(seen) == [("5", "here"), ("5", "here"), ("6", "here")]
        child = lambda env: subprocess.check_output(["printenv", "HERD_GPU"], text=True)  # noqa: E731
        assert pool.apply(child) == ["5\n", "5\n", "6\n"]
    assert "HERD_GPU" not in os.environ


def test_modules_of_factories_see_the_variables_at_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "herd_simulator.py").write_text(
        "import os\nfrom pool_envs import CountingEnv\nGPU = os.environ['HERD_GPU']\n"
        "class Env(CountingEnv):\n    def gpu(self):\n        return GPU\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("HERD_GPU", "none")
    from herd_simulator import Env

    with Pool([Env] * 2, worker_env=of_worker, num_workers=None) as pool:
        assert pool.call("gpu") == ["5", "6"]


def test_a_mapping_applies_to_all_workers_and_their_successors() -> None:
    variables = {"HERD_GPU": "7"}
    policy = FaultPolicy("restart", backoff=0)
    with Pool([CountingEnv] * 2, start_method="fork", worker_env=variables, faults=policy) as pool:
        variables["HERD_GPU"] = "8"
        pool.replace([1], [CountingEnv])  # changes the configuration of its worker's successor
        pool.reset()
        for env_id in range(2):
            step_until_restarted(pool, env_id, kill(pool, env_id))
        assert pool.apply(seen) == [("7", None)] * 2


def test_measured_envs_see_the_variables_of_the_first_worker() -> None:
    build = partial(HookedEnv, build=lambda _: os.environ["HERD_GPU"])
    with Pool([build] * 2, num_workers="auto", worker_env=of_worker) as pool:
        assert len(pool.reset()) == 2


# -- devices -----------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> list[Gpu]:
    """Replaces the machine's GPUs by four. The last core is near the last two GPUs; no core here is near the others."""
    last = frozenset({max(os.sched_getaffinity(0))})
    gpus = [Gpu(f"GPU-{i}{i}{i}", last if i > 1 else frozenset({10_000})) for i in range(4)]
    monkeypatch.setattr("remuda._engine.options.devices.installed_gpus", lambda: gpus)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return gpus


def seen_device(env: Any) -> tuple[str | None, ...]:
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
        assert pool.apply(seen_device) == expected
        assert pool.options["devices"] == devices
    assert "CUDA_VISIBLE_DEVICES" not in os.environ


def test_devices_are_numbered_by_cuda_visible_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,GPU-1,-1,2")
    with Pool([CountingEnv] * 3, num_workers=3, devices="auto") as pool:
        two = [of("cuda:0", "3", "3"), of("cuda:1", "GPU-1", "1")]
        assert pool.apply(seen_device) == [*two, two[0]]
    with pytest.raises(ValueError, match=r"sees \(CUDA_VISIBLE_DEVICES='3,GPU-1,-1,2'\), got 'cuda:2'"):
        Pool([CountingEnv], devices=[2], num_workers=None)


@pytest.mark.parametrize(("device", "place"), [("cuda:5", "5"), ("GPU-5", None)])
def test_a_device_that_may_be_there_is_assigned_with_a_warning_but_not_by_auto(
    device: str, place: str | None, machine: list[Gpu], caplog: pytest.LogCaptureFixture
) -> None:
    """It may be a GPU of an unknown vendor."""
    machine.clear()
    for _ in range(2):
        with Pool([CountingEnv], devices=[device], num_workers=None) as pool:
            assert pool.apply(seen_device) == [of(device, place or device, place)]
    with Pool([CountingEnv], devices="auto", num_workers=None) as pool:
        assert pool.apply(seen_device) == [(None,) * 4]
    (warning,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warning.startswith(f"remuda: expected devices of this machine, got {device}, and no GPU of NVIDIA in /proc")


def test_factories_and_successors_see_their_device_and_worker_env_overrides_it() -> None:
    build = partial(HookedEnv, build=lambda env: setattr(env, "mine", seen_device(env)))
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
    ("option", "value", "error", "message"),
    [
        ("worker_env", ["HERD=1"], TypeError, r"worker_env to be a mapping of environment variables, got \['HERD=1'\]"),
        ("worker_env", lambda i: None, TypeError, r"expected worker_env\(0\) to be a mapping .* got None"),
        ("worker_env", lambda i: {"HERD": i}, TypeError, r"strings only, got 'HERD': 0; write str"),
        ("worker_env", {"A=B": "1"}, ValueError, "values that an environment can have in worker_env, got 'A=B'"),
        ("worker_env", {"A": "1\0"}, ValueError, "names and values that an environment can have"),
        (
            "worker_env",
            {"REMUDA_WORKER_KEY": "1"},
            ValueError,
            "of remuda's own in worker_env, got 'REMUDA_WORKER_KEY'",
        ),
        ("worker_env", raise_value_error, ValueError, "broken"),
        ("devices", "cuda:0", TypeError, r"expected devices to be 'auto', or a sequence such as .*, got 'cuda:0'"),
        ("devices", [], ValueError, "expected devices to name at least one"),
        ("devices", ["cpu"], ValueError, "expected devices such as 'cuda:0', 0 or 'GPU-<uuid>', got 'cpu'"),
        ("devices", [None], TypeError, "expected devices such as .* got None"),
        ("devices", [4], ValueError, r"expected devices that this program sees \(4 GPUs\), got 'cuda:4'"),
        ("devices", [-1], ValueError, "got 'cuda:-1'"),
        ("devices", ["GPU-4"], ValueError, r"expected devices that this program sees \(4 GPUs\), got 'GPU-4'"),
    ],
)
def test_wrong_values_are_refused_before_a_worker_starts(
    option: str, value: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        Pool([raise_value_error] * 2, **{option: value})


@pytest.mark.parametrize("backend", ["thread", "serial"])
@pytest.mark.parametrize("option", [{"devices": "auto"}, {"worker_env": {}}])
def test_devices_and_worker_env_are_refused_without_worker_processes(option: Any, backend: Any) -> None:
    with pytest.raises(ValueError, match=f"expected {next(iter(option))}=None for backend='{backend}'"):
        Pool([CountingEnv], backend=backend, **option)


# -- unique numbers --------------------------------------------------------------------------------------------


class Numbered(CountingEnv):
    def __init__(self) -> None:
        super().__init__()
        info = worker_info()
        assert info is not None
        self.number = info.unique
        assert pickle.loads(pickle.dumps(info)) == info

    def read(self) -> int:
        info = worker_info()
        return self.number if info is None else info.unique


def numbers_of(pool: Pool) -> set[int]:
    assert pool.call("read") == pool.get_attr("number")
    return set(pool.get_attr("number"))


def is_free(number: int) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        try:
            sock.bind(f"\0remuda-unique-{number}")
        except OSError:
            return False
        return True


@pytest.mark.parametrize("backend", ["process", "thread", "serial"])
def test_workers_of_all_pools_have_different_numbers(backend: Any) -> None:
    with Pool([Numbered] * 4, num_workers=2, backend=backend) as one, Pool([Numbered] * 3, num_workers=None) as other:
        numbers = one.get_attr("number")
        assert numbers[0] == numbers[1] != numbers[2] == numbers[3]
        assert len(numbers_of(one)) == 2 and len(numbers_of(other)) == 3
        assert numbers_of(one).isdisjoint(numbers_of(other))


def test_a_thread_releases_its_number_at_the_end_of_its_pool() -> None:
    with Pool([Numbered], num_workers=1, backend="thread") as pool:
        (number,) = numbers_of(pool)
        assert not is_free(number)
    assert is_free(number)


def test_a_killed_worker_releases_its_number_and_its_successor_has_one() -> None:
    with Pool([Numbered] * 2, num_workers=2, faults="restart") as pool:
        pool.reset()
        before = pool.get_attr("number")
        kill(pool, 0)
        assert pool.step([0, 0]).truncations.tolist() == [True, False]
        after = pool.get_attr("number")
        assert after[1] == before[1] != after[0]


def test_numbers_are_taken_once_and_released_on_macos(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    held = [UniqueNumber() for _ in range(3)]
    values = [one.value for one in held]
    assert len(set(values)) == 3
    for one in held:
        one.release()
        one.release()
    again = UniqueNumber()
    assert again.value <= max(values)
    again.release()
