"""The number of usable cores, read from fake /proc and /sys trees."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from fake_root import make_root

from remuda._system.cores import cpu_quota, usable_cores, whole_cores


@pytest.fixture
def eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)


def v1(group: str, quota: int, period: int = 100_000) -> dict[str, str]:
    return {f"{group}/cpu.cfs_quota_us": f"{quota}\n", f"{group}/cpu.cfs_period_us": f"{period}\n"}


@pytest.mark.parametrize(
    ("cgroup", "files", "quota"),
    [
        pytest.param("0::/\n", {"cpu.max": "max 100000\n"}, None, id="v2, no limit"),
        pytest.param("0::/\n", {"cpu.max": "150000 100000\n"}, 1.5, id="v2, a fraction"),
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
@pytest.mark.usefixtures("eight_cores")
def test_a_quota_is_rounded_up_or_down_and_never_passes_the_affinity(
    tmp_path: Path, limit: str, usable: int, whole: int
) -> None:
    root = make_root(tmp_path, "0::/\n", {"cpu.max": f"{limit} 100000\n"})
    assert (usable_cores(root), whole_cores(root)) == (usable, whole)


def test_systems_without_affinity_count_their_cpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    assert usable_cores(tmp_path) == 6
