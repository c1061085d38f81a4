"""Compares the ALF face with ALF's own parallel envs, and uses it through ALF's configuration. Needs ALF."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import alf
import numpy as np
import pytest
from alf_face_envs import (
    STANDS_IN,
    CountingAlfEnv,
    NestedAlfEnv,
    assert_same_time_step,
    batched_of,
    counting,
    random_actions,
)

import remuda.alf

if STANDS_IN:
    pytest.skip("there is no ALF to compare with", allow_module_level=True)
originals = pytest.importorskip("alf.environments.fast_parallel_environment", exc_type=ImportError)
older = pytest.importorskip("alf.environments.parallel_environment", exc_type=ImportError)

FAST = "FastParallelEnvironment"
OLDER = "ParallelAlfEnvironment"
ORIGINALS: dict[str, Any] = {FAST: originals.FastParallelEnvironment, OLDER: older.ParallelAlfEnvironment}

CASES: dict[str, tuple[str, Callable[[], Any], dict[str, Any]]] = {
    "fast": (FAST, lambda: [NestedAlfEnv] * 3, {}),
    "older": (OLDER, lambda: [NestedAlfEnv] * 3, {}),
    "older, blocking": (OLDER, lambda: [NestedAlfEnv] * 3, {"blocking": True}),
    "spares": (FAST, lambda: [partial(NestedAlfEnv, end=0.5)] * 5, {"num_spare_envs_for_reload": 2}),
    "older, spares": (OLDER, lambda: [partial(NestedAlfEnv, end=0.5)] * 5, {"num_spare_envs_for_reload": 2}),
    "short episodes": (FAST, lambda: counting(4, length=1), {"num_spare_envs_for_reload": 1}),
    "cut off": (FAST, lambda: counting(3, length=3, cut=True), {}),
    "batched": (FAST, lambda: batched_of(NestedAlfEnv, 2, 3), {}),
    "batched, of one": (FAST, lambda: batched_of(CountingAlfEnv, 1, 2), {}),
}


@pytest.mark.parametrize("num_workers", [None, 2])
@pytest.mark.parametrize("case", CASES)
def test_time_steps_equal_those_of_alf(case: str, num_workers: int | None) -> None:
    name, constructors, options = CASES[case]
    if "num_spare_envs_for_reload" in options and num_workers:
        pytest.skip("spares have a worker each")
    made = constructors()
    original = ORIGINALS[name](made, **options)
    with getattr(remuda.alf, name)(made, num_workers=num_workers, **options) as ours:
        for attribute in ("batch_size", "num_tasks", "task_names", "is_tensor_based", "batched"):
            assert getattr(ours, attribute) == getattr(original, attribute), attribute
        for spec in ("observation_spec", "action_spec", "reward_spec", "time_step_spec"):
            assert getattr(ours, spec)() == getattr(original, spec)(), spec
        seeds = list(range(len(made)))
        ours.seed(seeds)
        original.seed(seeds)
        random = np.random.default_rng(3)
        assert_same(ours.reset(), original.reset(), "reset")
        for i in range(100):
            actions = random_actions(ours.action_spec(), ours.batch_size, random)
            assert_same(ours.step(actions), original.step(actions), f"step {i}")
            if i % 25 == 24 and case != "older, spares":  # ALF's older class leaves spares in their slots at a reset
                for envs in (ours, original) if i == 49 else ():
                    envs.seed(seeds)
                assert_same(ours.reset(), original.reset(), f"reset after step {i}")
    original.close()


def assert_same(ours: Any, original: Any, where: str) -> None:
    """Ignores the dtype of env ids: ALF's older class returns int64 if there are spares."""
    assert ours.env_id.tolist() == original.env_id.tolist(), where
    assert_same_time_step(ours, original._replace(env_id=ours.env_id), where)


def test_our_classes_are_subclasses_of_alfs() -> None:
    for name, kind in ORIGINALS.items():
        ours = getattr(remuda.alf, name)
        assert issubclass(ours, kind) or ours is kind
        with ours(counting(1)) as envs:
            assert isinstance(envs, kind)


def test_create_environment_of_alf_makes_our_envs() -> None:
    with alf.environments.utils.create_environment(
        env_load_fn=lambda name, env_id: CountingAlfEnv(env_id, 3),
        num_parallel_environments=3,
        num_spare_envs=1,
        parallel_environment_ctor=remuda.alf.FastParallelEnvironment,
        seed=7,
    ) as envs:
        assert isinstance(envs, remuda.alf.FastParallelEnvironment)
        assert [env.last_seed for env in envs.envs] == [7, 8, 9]


def test_create_environment_of_alf_makes_our_envs_with_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    # ALF refuses other classes with batched envs
    monkeypatch.setattr(originals, FAST, remuda.alf.FastParallelEnvironment)
    with alf.environments.utils.create_environment(
        env_load_fn=lambda name, env_id: CountingAlfEnv(env_id, 3),
        num_parallel_environments=6,
        batch_size_per_env=2,
        parallel_environment_ctor=remuda.alf.FastParallelEnvironment,
    ) as envs:
        assert (envs.batch_size, len(envs.envs)) == (6, 3)
        assert envs.reset().observation[:, 0].tolist() == list(range(6))


def test_alf_configures_our_class() -> None:
    kind = remuda.alf.FastParallelEnvironment  # ALF configures a class only after its module was imported
    alf.reset_configs()
    try:
        alf.config("RemudaFastParallelEnvironment", num_workers=1)
        # the name of ALF's own class still configures ALF's class
        alf.config("FastParallelEnvironment", start_serially=False)
        with kind(counting(3)) as envs:
            assert len(envs.processes) == 1
    finally:
        alf.reset_configs()


# -- spawned workers -------------------------------------------------------------------------------------

CONFIGURATION = """
import alf
from alf_face_envs import ConfiguredAlfEnv
from remuda.alf import FastParallelEnvironment

alf.config("flavour", value="sweet")
alf.config(
    "create_environment",
    env_load_fn=lambda name, env_id: ConfiguredAlfEnv(env_id),
    num_parallel_environments=3,
    parallel_environment_ctor=FastParallelEnvironment,
)
alf.get_env()
"""

CONFIGURED = """
import sys
from absl import flags
import alf
from alf.utils import common
if __name__ == "__main__":
    for name in ("root_dir", "conf"):
        flags.DEFINE_string(name, None, "")
    flags.DEFINE_multi_string("conf_param", None, "")
    flags.FLAGS(sys.argv)
    name = "RemudaFastParallelEnvironment"
    alf.pre_config({f"{name}.start_method": START_METHOD, f"{name}.num_workers": 2, "spice.sourness": 7})
    common.parse_conf_file(flags.FLAGS.conf)
    with alf.get_env() as envs:
        print(envs.call_envs_with_same_args("taste"), len(envs.processes))
"""


@pytest.mark.parametrize("start_method", ["fork", "spawn", "forkserver"])
def test_workers_have_the_configuration_of_the_program(start_method: str, tmp_path: Path) -> None:
    configuration, program = tmp_path / "taste_conf.py", tmp_path / "program.py"
    configuration.write_text(CONFIGURATION)
    program.write_text(CONFIGURED.replace("START_METHOD", repr(start_method)))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(program), f"--conf={configuration}", f"--root_dir={tmp_path}"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1] / "support"), *sys.path])},
    )
    assert done.stdout.splitlines()[-1:] == ["[('sweet', 7), ('sweet', 7), ('sweet', 7)] 2"], done.stderr
