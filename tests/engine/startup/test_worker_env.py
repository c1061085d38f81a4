"""`worker_env`: environment variables of each worker, set before modules of the envs are imported."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from pool_envs import CountingEnv
from programs import kill, step_until_restarted

from remuda import FaultPolicy, Pool

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")


def of_worker(i: int) -> dict[str, str]:
    return {"HERD_GPU": str(i + 5), "HERD_HOME": "here"}


def seen(env: Any) -> tuple[str | None, str | None]:
    return os.environ.get("HERD_GPU"), os.environ.get("HERD_HOME")


def of_child(env: Any) -> str:
    return subprocess.run(["printenv", "HERD_GPU"], stdout=subprocess.PIPE, text=True, check=True).stdout


@pytest.mark.parametrize("start_method", ["forkserver", "spawn", "fork"])
def test_each_worker_and_its_child_processes_have_their_variables(start_method: Any) -> None:
    with Pool([CountingEnv] * 3, num_workers=2, start_method=start_method, worker_env=of_worker) as pool:
        assert pool.apply(seen) == [("5", "here"), ("5", "here"), ("6", "here")]
        assert pool.apply(of_child) == ["5\n", "5\n", "6\n"]
    assert "HERD_GPU" not in os.environ


def test_modules_of_factories_see_the_variables_at_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "herd_simulator.py").write_text(
        "import os\nfrom pool_envs import CountingEnv\nGPU = os.environ['HERD_GPU']\n"
        "class Env(CountingEnv):\n    def gpu(self):\n        return GPU\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("HERD_GPU", "none")
    from herd_simulator import Env

    with Pool([Env] * 2, worker_env=of_worker) as pool:
        assert pool.call("gpu") == ["5", "6"]


@pytest.mark.parametrize("start_method", ["forkserver", "fork"])
def test_a_mapping_applies_to_all_workers_and_their_successors(start_method: Any) -> None:
    variables = {"HERD_GPU": "7"}
    policy = FaultPolicy("restart", backoff=0)
    with Pool([CountingEnv] * 2, start_method=start_method, worker_env=variables, faults=policy) as pool:
        variables["HERD_GPU"] = "8"
        pool.replace([1], [CountingEnv])  # changes the configuration of its worker's successor
        pool.reset()
        for env_id in range(2):
            step_until_restarted(pool, env_id, kill(pool, env_id))
        assert pool.apply(seen) == [("7", None)] * 2


def test_measured_envs_see_the_variables_of_the_first_worker() -> None:
    def build() -> CountingEnv:
        assert os.environ["HERD_GPU"] in {"5", "6"}
        return CountingEnv()

    with Pool([build] * 2, num_workers="auto", worker_env=of_worker) as pool:
        assert len(pool.reset()) == 2


def raises(_: int) -> dict[str, str]:
    raise KeyError("no such GPU")


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (["HERD=1"], TypeError, r"expected worker_env to be a mapping of environment variables, got \['HERD=1'\]"),
        (lambda i: None, TypeError, r"expected worker_env\(0\) to be a mapping .* got None"),
        (lambda i: {"HERD": i}, TypeError, r"strings only, got 'HERD': 0; write str"),
        ({"A=B": "1"}, ValueError, "names and values that an environment can have in worker_env, got 'A=B'"),
        ({"A": "1\0"}, ValueError, "names and values that an environment can have"),
        ({"": "1"}, ValueError, "names and values that an environment can have"),
        ({"REMUDA_WORKER_KEY": "1"}, ValueError, "no variables of remuda's own in worker_env, got 'REMUDA_WORKER_KEY'"),
        (raises, KeyError, "no such GPU"),
    ],
)
@pytest.mark.usefixtures("no_start")
def test_wrong_worker_env_is_refused_before_a_worker_starts(given: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Pool([CountingEnv] * 2, worker_env=given)
