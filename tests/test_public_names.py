"""The public names, as programs and `dir()` see them, also if an optional package is missing."""

from __future__ import annotations

import ast
import doctest
import json
import pydoc
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import remuda

ROOT = Path(__file__).resolve().parent.parent
FACES = ("alf", "ding", "gymnasium", "mlagents", "pettingzoo", "sb3")
MODULES = ("remuda", "remuda.stats", *(f"remuda.{face}" for face in FACES))


def run(code: str) -> Any:
    """Runs code in another program. Returns the JSON value that it prints."""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def public_names(package: str) -> list[str]:
    """Reads `__all__` without importing the module, which may need a missing framework."""
    path = ROOT / "src" / Path(*package.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    (names,) = (
        node.value
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    )
    found: list[str] = ast.literal_eval(names)
    return found


def test_dir_and_help_list_the_public_names() -> None:
    assert set(remuda.__all__) | {"gymnasium", "sb3"} <= set(dir(remuda))
    assert set(public_names("remuda.sb3")) <= set(dir(remuda.sb3))
    assert "make_vec" in pydoc.render_doc(remuda)


def test_a_face_is_imported_at_its_first_use() -> None:
    assert run("import json, remuda; print(json.dumps(remuda.sb3.SubprocVecEnv.__name__))") == "SubprocVecEnv"
    with pytest.raises(AttributeError, match="module 'remuda' has no attribute 'sb4'"):
        remuda.sb4  # type: ignore[attr-defined]  # noqa: B018


def test_another_package_with_the_frameworks_name_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "ding").mkdir()
    (tmp_path / "ding" / "__init__.py").touch()
    code = f"""
import json, sys
sys.path.insert(0, {str(tmp_path)!r})
try:
    import remuda.ding
except ImportError as error:
    print(json.dumps(str(error)))
"""
    assert "remuda.ding needs DI-engine, but what is installed as 'ding' has no 'ding." in run(code)


@pytest.mark.skipif(sys.platform != "linux", reason="worker processes need Linux")
def test_the_pools_example_runs() -> None:
    test = doctest.DocTestParser().get_doctest(remuda.Pool.__doc__ or "", {}, "Pool", None, None)
    runner = doctest.DocTestRunner()
    runner.run(test)
    assert (runner.failures, runner.tries) == (0, len(test.examples)) and test.examples


# -- missing packages ----------------------------------------------------------------------------------


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
        assert isinstance(error, ModuleNotFoundError) and isinstance(error, remuda.RemudaError)
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
