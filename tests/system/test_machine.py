"""What this process may use, and has used, of the machine: read from fake /proc and /sys trees."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from fake_root import make_root, write

from remuda._system.cores import cpu_quota, usable_cores, whole_cores
from remuda._system.gpus import Gpu, installed_gpus
from remuda._system.memory import available_memory, check_memory
from remuda._system.processes import CoresUsage, Usage, usage_of, usage_of_cores

# -- cores -----------------------------------------------------------------------------------------------


def v1(group: str, quota: int, period: int = 100_000) -> dict[str, str]:
    return {f"{group}/cpu.cfs_quota_us": f"{quota}\n", f"{group}/cpu.cfs_period_us": f"{period}\n"}


@pytest.mark.parametrize(
    ("cgroup", "files", "quota"),
    [
        pytest.param("0::/a/b\n", {"a/b/cpu.max": "300000 100000\n"}, 3.0, id="v2, nested"),
        pytest.param(
            "0::/a/b\n",
            {"a/b/cpu.max": "max 100000\n", "a/cpu.max": "200000 100000\n"},
            2.0,
            id="v2, the parent's limit",
        ),
        pytest.param("0::/a\n", {"unified/a/cpu.max": "50000 100000\n"}, 0.5, id="v2 beside v1"),
        pytest.param("0::/not/mounted\n", {"cpu.max": "400000 100000\n"}, 4.0, id="v2, the host's path"),
        pytest.param("0::/../outside\n", {"cpu.max": "400000 100000\n"}, 4.0, id="v2, above the namespace"),
        pytest.param("0::/\n", {}, None, id="v2, nothing mounted"),
        pytest.param("1:cpu:/\n", v1("cpu", -1), None, id="v1, no limit"),
        pytest.param("1:cpu:/\n", v1("cpu", 250_000), 2.5, id="v1"),
        pytest.param("4:cpu,cpuacct:/x\n", v1("cpu,cpuacct/x", 100_000), 1.0, id="v1, joined controllers"),
        pytest.param("4:cpuacct,cpu:/x\n", v1("cpu", 20_000, 10_000), 2.0, id="v1, only the link"),
        pytest.param("3:cpuset:/\n2:memory:/\n", v1("cpuset", 100_000), None, id="v1, other controllers"),
        pytest.param("1:cpu:/\n0::/\n", v1("cpu", 300_000) | {"cpu.max": "200000 100000\n"}, 2.0, id="both"),
        pytest.param("", {}, None, id="no control groups"),
    ],
)
def test_the_quota_is_read_from_the_control_groups(
    tmp_path: Path, cgroup: str, files: dict[str, str], quota: float | None
) -> None:
    assert cpu_quota(make_root(tmp_path, cgroup, files)) == quota


@pytest.mark.parametrize(
    ("limit", "usable", "whole"),
    [("max", 8, 8), ("1600000", 8, 8), ("300000", 3, 3), ("150000", 2, 1), ("90000", 1, 0), ("100", 1, 0)],
)
def test_a_quota_is_rounded_up_or_down_and_never_passes_the_affinity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, usable: int, whole: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    root = make_root(tmp_path, "0::/\n", {"cpu.max": f"{limit} 100000\n"})
    assert (usable_cores(root), whole_cores(root)) == (usable, whole)


def test_systems_without_affinity_count_their_cpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    assert usable_cores(tmp_path) == 6


# -- memory ----------------------------------------------------------------------------------------------


def machine(root: Path, kilobytes: int, cgroup: str = "", groups: dict[str, str] | None = None) -> Path:
    """Creates a root directory of a machine with this memory available, and files of control groups."""
    write(root / "proc/meminfo", f"MemTotal: 999999999 kB\nMemAvailable:   {kilobytes} kB\nBuffers: 1 kB\n")
    return make_root(root, cgroup, groups or {})


def test_without_meminfo_the_memory_is_unknown(tmp_path: Path) -> None:
    assert available_memory(tmp_path) is None
    check_memory(2**60, tmp_path)


def group(of: str, limit: int | str, used: int | str, files: int = 0) -> dict[str, str]:
    """Returns the files of a control group of version 2."""
    stat = f"anon 5\ninactive_file {files // 2}\nactive_file {files - files // 2}\n"
    return {f"{of}memory.max": f"{limit}\n", f"{of}memory.current": f"{used}\n", f"{of}memory.stat": stat}


def old_group(of: str, limit: int, used: int, stat: str = "") -> dict[str, str]:
    """Returns the files of a control group of version 1."""
    files = {"limit_in_bytes": f"{limit}", "usage_in_bytes": f"{used}", "stat": stat}
    return {f"memory/{of}memory.{name}": text for name, text in files.items()}


# A container sees its group as the root group. Its path is the one below that root, or the host's.
CONTAINER = "4:memory:/docker/0123\n0::/\n"
JOB, STEP = "slurm/job_7/", "slurm/job_7/step/"
NESTED = "3:cpu,memory:/slurm/job_7/step\n0::/slurm/job_7/step\n"
FILES = "inactive_file 1\ntotal_inactive_file 300\ntotal_active_file 200\n"
NO_LIMIT, ALL = 9223372036854771712, 1_024_000


@pytest.mark.parametrize(
    ("cgroup", "files", "expected"),
    [
        pytest.param(CONTAINER, {}, ALL, id="none"),
        pytest.param(CONTAINER, group("", 5000, 2000), 3000, id="a container's"),
        pytest.param(CONTAINER, group("", 5000, 9000), 0, id="passed"),
        pytest.param(CONTAINER, group("", 5000, ""), ALL, id="unknown use"),
        pytest.param(CONTAINER, old_group("", 7000, 1000), 6000, id="older"),
        pytest.param(CONTAINER, old_group("", NO_LIMIT, 1000), ALL, id="older, none"),
        pytest.param(NESTED, group(STEP, 5000, 2000) | group("slurm/", 90_000, 3000), 3000, id="its own"),
        pytest.param(NESTED, group(STEP, "max", 2000) | group(JOB, 8000, 4000), 4000, id="the job's"),
        pytest.param(NESTED, group(STEP, 9000, 2000) | group("slurm/", 4000, 3000), 1000, id="the farthest"),
        pytest.param(NESTED, group(JOB, 8000, 7999, files=7000), 7001, id="files do not count"),
        pytest.param(NESTED, old_group(JOB, 6000, 5000, FILES) | old_group("", NO_LIMIT, 1000), 1500, id="older files"),
        pytest.param(NESTED, group("slurm/job_8/", 100, 100), ALL, id="another job's"),
    ],
)
def test_the_tightest_limit_applies(cgroup: str, files: dict[str, str], expected: int, tmp_path: Path) -> None:
    """The kernel kills at the tightest limit among the process's group and its ancestors."""
    found = available_memory(machine(tmp_path, 1000, cgroup, files))
    assert found is not None and found[0] == expected


def test_too_little_memory_is_an_error_with_the_figures(tmp_path: Path) -> None:
    root = machine(tmp_path, 3 * 1024)
    check_memory(3 * 2**20, root)
    with pytest.raises(
        MemoryError, match=r"expected 5 MB of free memory for the pool's batches, got 3 MB \(as .*meminfo has it\); use"
    ):
        check_memory(5 * 2**20, root)


# -- CPU time --------------------------------------------------------------------------------------------


TICK = 1 / os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 0.01


def test_usage_is_read_from_the_files(tmp_path: Path) -> None:
    folder = tmp_path / "proc" / "7"
    folder.mkdir(parents=True)
    numbers = " ".join(["0"] * 10 + ["150", "50"] + ["0"] * 20)
    (folder / "stat").write_text(f"7 (a name) with) S {numbers}")
    (folder / "schedstat").write_text("5000000000 250000000 17")
    assert usage_of(7, tmp_path) == Usage(200 * TICK, 0.25)


@pytest.mark.parametrize("pid", [None, 8])
def test_a_missing_process_has_no_usage(pid: int | None, tmp_path: Path) -> None:
    assert usage_of(pid, tmp_path) == Usage(0.0, 0.0)
    assert usage_of_cores([0], tmp_path) == CoresUsage(0.0, 0.0)


def test_only_the_given_cores_count(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    lines = ["cpu 999 0 0 0", "cpu0 10 20 30 4000 500 1 2 3 0 0", "cpu1 100 0 0 4000 0 0 0 0 0 0", "intr 1 2 3"]
    (tmp_path / "proc" / "stat").write_text("\n".join(lines))
    first, both = usage_of_cores([0], tmp_path), usage_of_cores([0, 1], tmp_path)
    assert (first.busy, first.stolen) == pytest.approx((63 * TICK, 3 * TICK))
    assert (both.busy, both.stolen) == pytest.approx((163 * TICK, 3 * TICK))


# -- GPUs ------------------------------------------------------------------------------------------------


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
