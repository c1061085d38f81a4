"""Features that need a missing optional package raise an error with the command that installs it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from remuda import MissingFrameworkError, RemudaError

PROGRAM = """
import importlib.abc, importlib.util, inspect, json, pickle, sys

ABSENT = {"torch", "ray", "rich", "moviepy", "stable_baselines3", "alf", "ding", "mlagents", "mlagents_envs"}

class Away(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ABSENT:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Away())
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name.partition(".")[0] in ABSENT else found(name, *rest)

import gymnasium, remuda

def make():
    return gymnasium.make("CartPole-v1", render_mode="rgb_array")

def act(obs):
    return [0] * len(obs)

def evaluate(**options):
    return remuda.evaluate(act, [make], episodes=1, backend="serial", **options)

def tensors(pool, change):
    with pool:
        change(pool)

assert not {"alf", "ding", "mlagents", "sb3"} & set(dir(remuda))
told = {}
for feature, use in {
    "record_video": lambda: remuda.record_video([make], sys.argv[1]),
    "evaluate(video_folder=)": lambda: evaluate(video_folder=sys.argv[1]),
    "evaluate(progress=)": lambda: evaluate(progress=True),
    "Batch.to": lambda: tensors(remuda.Pool([make], backend="serial"), lambda pool: pool.reset().to("cpu")),
    "Ray": lambda: remuda.Pool([make], backend=remuda.Ray()),
    "alf": lambda: remuda.alf.FastParallelEnvironment,
    "ding": lambda: remuda.ding.SubprocessEnvManagerV2,
    "mlagents": lambda: remuda.mlagents.SubprocessEnvManager,
    "sb3": lambda: remuda.sb3.SubprocVecEnv,
}.items():
    try:
        use()
    except Exception as error:
        copy = pickle.loads(pickle.dumps(error))
        told[feature] = [type(error).__name__, str(error), error.name, [str(copy), copy.name]]
for package in (remuda, remuda.alf, remuda.mlagents, remuda.sb3):
    assert inspect.getmembers(package)  # all listed members can be read
print(json.dumps(told))
"""

COMMANDS = {
    "alf": "remuda.alf needs ALF, which is not installed: pip install git+https://github.com/HorizonRobotics/alf@pytorch",
    "ding": "remuda.ding needs DI-engine, which is not installed: pip install DI-engine",
    "mlagents": "remuda.mlagents needs Unity ML-Agents, which is not installed: pip install mlagents",
    "sb3": "remuda.sb3 needs Stable-Baselines3, which is not installed: pip install stable-baselines3",
    "record_video": "pip install moviepy",
    "evaluate(video_folder=)": "pip install moviepy",
    "evaluate(progress=)": "pip install rich",
    "Batch.to": "pip install torch",
    "Ray": 'pip install "remuda-rl[ray]"',
}


@pytest.fixture(scope="module")
def errors(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    folder = tmp_path_factory.mktemp("videos") / "new"
    command = [sys.executable, "-c", PROGRAM, str(folder)]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert not folder.exists()
    answer: dict[str, list[Any]] = json.loads(result.stdout)
    return answer


@pytest.mark.parametrize("feature", COMMANDS)
def test_the_error_of_a_missing_package_has_the_command_that_installs_it(
    errors: dict[str, list[Any]], feature: str
) -> None:
    kind, message, module, copied = errors[feature]
    assert (kind, copied) == ("MissingFrameworkError", [message, module]), message
    assert message.endswith(COMMANDS[feature])
    assert f'"{module}"' in PROGRAM


def test_a_missing_package_is_an_import_error() -> None:
    assert issubclass(MissingFrameworkError, RemudaError) and issubclass(MissingFrameworkError, ModuleNotFoundError)
