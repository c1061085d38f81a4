"""Features that need a missing optional package raise an error with the command that installs it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

PROGRAM = """
import importlib.abc, importlib.util, json, sys

ABSENT = {"torch", "ray", "rich", "moviepy", "stable_baselines3"}

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

told = {}
for feature, use in {
    "record_video": lambda: remuda.record_video([make], sys.argv[1]),
    "evaluate(video_folder=)": lambda: evaluate(video_folder=sys.argv[1]),
    "evaluate(progress=)": lambda: evaluate(progress=True),
    "Batch.to": lambda: tensors(remuda.Pool([make], backend="serial"), lambda pool: pool.reset().to("cpu")),
    "Ray": lambda: remuda.Pool([make], backend=remuda.Ray()),
    "sb3": lambda: remuda.sb3.SubprocVecEnv,
}.items():
    try:
        use()
    except Exception as error:
        told[feature] = [type(error).__name__, str(error)]
print(json.dumps(told))
"""

COMMANDS = {
    "record_video": "pip install moviepy",
    "evaluate(video_folder=)": "pip install moviepy",
    "evaluate(progress=)": "pip install rich",
    "Batch.to": "pip install torch",
    "Ray": 'pip install "remuda-rl[ray]"',
    "sb3": "pip install stable-baselines3",
}


@pytest.fixture(scope="module")
def errors(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    folder = tmp_path_factory.mktemp("videos") / "new"
    command = [sys.executable, "-c", PROGRAM, str(folder)]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert not folder.exists()
    answer: dict[str, list[str]] = json.loads(result.stdout)
    return answer


@pytest.mark.parametrize("feature", COMMANDS)
def test_the_error_of_a_missing_package_has_the_command_that_installs_it(
    errors: dict[str, list[str]], feature: str
) -> None:
    kind, message = errors[feature]
    assert kind == "MissingFrameworkError", message
    assert message.endswith(COMMANDS[feature])
