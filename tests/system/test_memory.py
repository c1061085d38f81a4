"""The memory available to a pool: that of the machine, limited by each control group."""

from __future__ import annotations

from pathlib import Path

import pytest

from remuda._system.memory import available_memory, check_memory


def machine(root: Path, available_kb: int | None = None, **files: str) -> Path:
    (root / "proc").mkdir()
    if available_kb is not None:
        (root / "proc/meminfo").write_text(
            f"MemTotal: 999999999 kB\nMemAvailable:   {available_kb} kB\nBuffers: 1 kB\n"
        )
    for name, text in files.items():
        path = root / "sys/fs/cgroup" / name.replace("__", "/").replace("-", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def in_groups(root: Path, cgroup: str) -> Path:
    (root / "proc/self").mkdir()
    (root / "proc/self/cgroup").write_text(cgroup)
    return root


# A container sees its group as the root group. Its path is the one below that root, or the host's.
CONTAINER = "4:memory:/docker/0123\n0::/\n"


def test_the_available_memory_of_a_machine_is_read(tmp_path: Path) -> None:
    assert available_memory(machine(tmp_path, 1000)) == 1_024_000


def test_without_meminfo_the_memory_is_unknown(tmp_path: Path) -> None:
    assert available_memory(tmp_path) is None
    check_memory(2**60, tmp_path)


@pytest.mark.parametrize(
    ("files", "available"),
    [
        ({"memory-max": "5000\n", "memory-current": "2000\n"}, 3000),
        ({"memory-max": "max\n", "memory-current": "2000\n"}, 1_024_000),
        ({"memory-max": "5000\n", "memory-current": "9000\n"}, 0),
        ({"memory-max": "5000\n"}, 1_024_000),
        ({"memory__memory-limit_in_bytes": "7000", "memory__memory-usage_in_bytes": "1000"}, 6000),
        ({"memory__memory-limit_in_bytes": "9223372036854771712", "memory__memory-usage_in_bytes": "1000"}, 1_024_000),
    ],
)
def test_the_limit_of_a_container_applies(files: dict[str, str], available: int, tmp_path: Path) -> None:
    assert available_memory(in_groups(machine(tmp_path, 1000, **files), CONTAINER)) == available


def group(of: str, limit: int | str, used: int, files: int = 0) -> dict[str, str]:
    """Returns the files of a control group of version 2."""
    stat = f"anon 5\ninactive_file {files // 2}\nactive_file {files - files // 2}\n"
    names = {"memory-max": limit, "memory-current": used, "memory-stat": stat}
    return {f"{of}{name}": str(value) for name, value in names.items()}


JOB = "slurm__job_7"
NESTED = {
    "its own": (group(f"{JOB}__step__", 5000, 2000) | group("slurm__", 90_000, 3000), 3000),
    "the job's": (group(f"{JOB}__step__", "max", 2000) | group(f"{JOB}__", 8000, 4000), 4000),
    "the farthest": (group(f"{JOB}__step__", 9000, 2000) | group("slurm__", 4000, 3000), 1000),
    "files do not count": (group(f"{JOB}__", 8000, 7999, files=7000), 7001),
    "older": (
        {
            f"memory__{JOB}__memory-limit_in_bytes": "6000",
            f"memory__{JOB}__memory-usage_in_bytes": "5000",
            f"memory__{JOB}__memory-stat": "inactive_file 1\ntotal_inactive_file 300\ntotal_active_file 200\n",
            "memory__memory-limit_in_bytes": "9223372036854771712",
            "memory__memory-usage_in_bytes": "1000",
        },
        1500,
    ),
    "none": (group(f"{JOB}__step__", "max", 2000), 1_024_000),
    "another job's": (group("slurm__job_8__", 100, 100), 1_024_000),
}


@pytest.mark.parametrize("tightest", NESTED)
def test_the_tightest_limit_of_nested_groups_applies(tightest: str, tmp_path: Path) -> None:
    """The kernel kills at the tightest limit among the process's group and its ancestors."""
    files, available = NESTED[tightest]
    root = in_groups(machine(tmp_path, 1000, **files), "3:cpu,memory:/slurm/job_7/step\n0::/slurm/job_7/step\n")
    assert available_memory(root) == available


def test_too_little_memory_is_an_error_with_the_figures(tmp_path: Path) -> None:
    root = machine(tmp_path, 3 * 1024)
    check_memory(3 * 2**20, root)
    with pytest.raises(
        MemoryError, match=r"expected 5 MB of free memory for the pool's batches, got 3 MB \(as .*meminfo has it\); use"
    ):
        check_memory(5 * 2**20, root)
