"""The memory available to a pool: that of the machine, limited by each control group."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_root import make_root, write

from remuda._system.memory import available_memory, check_memory


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
