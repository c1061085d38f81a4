"""Runs every code block of the README and of docs/, and checks that the commands in them exist."""

from __future__ import annotations

import ast
import functools
import json
import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command import command
from doc_pages import Reader, written
from simulator_envs import OFF_SCREEN, require_off_screen

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

ADDRESS = "https://github.com/remuda-rl/remuda/blob/main/"  # links of the README are whole, for the page of the package

# Packages that may be missing, and modules with other names than their packages.
OPTIONAL = (
    "stable_baselines3",
    "ding",
    "alf",
    "mlagents",
    "mpe2",
    "pettingzoo",
    "agilerl",
    "ale_py",
    "envpool",
    "minari",
)
OPTIONAL += ("mlflow", "mo_gymnasium", "prometheus_client", "ray", "torch", "wandb")
FRAMEWORKS = {name: name for name in OPTIONAL} | {
    "remuda.sb3": "stable_baselines3",
    **{f"remuda.{name}": name for name in ("ding", "alf", "mlagents")},
    "torch.utils.tensorboard": "tensorboard",
}
# Pages that need an optional package as a whole.
NEEDS = {"sb3.md": "stable_baselines3", "ding.md": "ding", "alf.md": "alf", "mlagents.md": "mlagents"}
NEEDS |= {f"reference/{page}": framework for page, framework in NEEDS.items()}
NEEDS |= {
    "rollouts.md": "stable_baselines3",
    "evaluation.md": "stable_baselines3",
    "recipes/rl-zoo.md": "rl_zoo3",
    "recipes/optuna.md": "optuna",
    "recipes/mujoco.md": "mujoco",
    "recipes/atari.md": "cv2",
    "tensors.md": "torch",
    "other-libraries.md": "torchrl",  # `make neighbours-test` runs its programs
}

# Folders with what tests share, envs of the frameworks, and a stand-in for ALF. The stand-in is last, so that an
# installed ALF precedes it.
SUPPORT = ROOT / "tests" / "faces" / "support"
PATHS = [str(ROOT / "tests"), str(SUPPORT), str(SUPPORT / "alf_stand_in")]

# Definitions that blocks use without showing them. They run before each block of a page.
POOL = """
import gymnasium, numpy, remuda
from remuda import FaultPolicy, Pool

class Env(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (3,))
    action_space = gymnasium.spaces.Discrete(2)
    difficulty, state, steps = 1, "calm", 0

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return numpy.zeros(3, numpy.float32), {}

    def step(self, action):
        self.steps += 1
        return numpy.zeros(3, numpy.float32), 1.0, self.steps == 5, False, {}

    def method(self, one, key):
        return one + key

    def save(self, path):
        return path

class Learning:
    left = 20

    def __bool__(self):
        self.left -= 1
        return self.left > 0

make_env, path, seed, i, n = Env, "here", 1, 2, 3
env_fns, learning = [Env] * 8, Learning()

def policy(obs):
    return numpy.zeros(len(obs), numpy.int64)
"""
OPEN_POOL = """
pool = Pool(env_fns, num_workers=2)
"""
VECTORS = """
def AtariVectorEnv(name, num_envs, num_threads):
    return gymnasium.make_vec("CartPole-v1", num_envs=num_envs, vectorization_mode="sync")

pool.reset()
"""
RENDERING = """
k, Env.render_mode = 5, "rgb_array"
Env.render = lambda self: numpy.zeros((16, 16, 3), numpy.uint8)
"""
COLUMNS = """
def valid_actions(env):
    return numpy.array([True, env.steps < 3])

pool = Pool(env_fns, num_workers=2, extras={"action_mask": valid_actions})
batch = pool.reset()
mask = batch.extras["action_mask"]
"""
STATES = """
class Plain(Env):
    def get_state(self):
        return self.steps

    def set_state(self, state):
        self.steps = state

pool = Pool([Plain] * 8, num_workers=2)
pool.reset()
"""
TENSORS = """
import torch
batch = pool.reset()

def policy(obs):
    return torch.zeros(len(obs), dtype=torch.int64)
"""
DING = """
from easydict import EasyDict
create_config = EasyDict()
"""
ALF = """
import types
import alf, alf.environments, remuda.alf
if "alf_stand_in" in alf.__file__:
    alf.environments.fast_parallel_environment = types.ModuleType("fast_parallel_environment")
"""
COMPLETE = (
    "README",
    "index",
    "start",
    "tasks",
    "faults",
    "resume",
    "crash-records",
    "rollouts",
    "mlagents",
    "videos",
    "ray",
)
PRELUDES = {  # `POOL` for other pages
    **dict.fromkeys((f"{page}.md" for page in (*COMPLETE, "coming-from/cleanrl", "coming-from/lerobot")), ""),
    "extras.md": POOL + COLUMNS,
    "evaluation.md": POOL + RENDERING,
    "pool.md": POOL + OPEN_POOL + VECTORS,
    "slow-envs.md": POOL + OPEN_POOL,
    "performance.md": POOL + OPEN_POOL,
    "tensors.md": POOL + OPEN_POOL + TENSORS,
    "state.md": POOL + STATES,
    "ding.md": DING,
    "alf.md": ALF,
    "reference/errors.md": POOL + OPEN_POOL,
    "reference/faults.md": POOL + OPEN_POOL,
    **dict.fromkeys(
        (f"reference/{page}.md" for page in ("pool", "options", "batch", "envs", "stats", "rollouts")),
        POOL + OPEN_POOL + "batch = pool.reset()\n",
    ),
}
# Code that runs after the last block of a page, and checks its functions, also with other arguments.
RUN_ALF = """
import torch
from alf_face_envs import CountingAlfEnv
assert run(CountingAlfEnv, torch.arange(4)).prev_action.tolist() == [0, 1, 2, 3]
assert run_one(CountingAlfEnv, torch.tensor(1)).prev_action == 1
"""
RUN_DING = """
import numpy
from ding_face_envs import DriftEnv
assert len(run([DriftEnv] * 3, lambda obs: numpy.zeros(len(obs), int))) == 3
for kind in (AsyncSubprocessEnvManager, SyncSubprocessEnvManager):
    assert set(run([DriftEnv] * 3, lambda obs: dict.fromkeys(obs, 0), kind)) <= {0, 1, 2}
"""
RUN_MLAGENTS = """
from mlagents_face_envs import RunOptions, TestEnv
assert len(run(TestEnv, RunOptions())) > 0
"""
RUN_CLEANRL = """
for mode in ("NextStep", "SameStep"):
    if mode == "SameStep" and not hasattr(gymnasium.vector, "AutoresetMode"):
        continue  # Gymnasium 1.0 has one mode
    for kind in (AsyncVectorEnv, gymnasium.vector.SyncVectorEnv):
        envs = kind([make_env] * 4, **({"autoreset_mode": mode} if hasattr(gymnasium.vector, "AutoresetMode") else {}))
        envs.reset(seed=1)
        envs.action_space.seed(1)
        told, ended = [], 0
        for _ in range(100):
            *_, terminations, truncations, infos = envs.step(envs.action_space.sample())
            told += finished_episodes(infos)
            ended += int((terminations | truncations).sum())
        envs.close()
        assert len(told) == ended > 4, (mode, kind)
        assert all(episodic_return == length for _, episodic_return, length in told)
"""
RUN_ZOO = """
import sys
arguments = "--algo ppo --env CartPole-v1 -n 64 --device cpu --log-folder logs --eval-freq -1"
sys.argv = ["train_zoo.py", *arguments.split(), "--hyperparams", "n_envs:2", "n_steps:8", "batch_size:8"]
made = []
start = ZooEnvs.__init__
ZooEnvs.__init__ = lambda self, env_fns: (made.append(len(env_fns)), start(self, env_fns))[1]
train()
assert made == [2]
"""
EPILOGUES = {
    "coming-from/cleanrl.md": RUN_CLEANRL,
    "recipes/rl-zoo.md": RUN_ZOO,
    "reference/alf.md": RUN_ALF,
    "reference/ding.md": RUN_DING,
    "reference/mlagents.md": RUN_MLAGENTS,
    "reference/ray.md": "import ray; rollouts.close(); assert not ray.is_initialized()",
    "pool.md": "import logging; logging.getLogger('somebody.else').warning('of somebody else')",
    "recipes/places.md": "with remuda.Pool([Corridor] * 4, num_workers=2) as opened: test_rewards(opened)",
}

# Replacements that make blocks run faster.
SHORTER = {
    "* 64": "* 4",
    "[make_many] * 2": "[make_many]",
    "num_envs=64": "num_envs=4",
    "range(1000)": "range(10)",
    "range(500)": "range(10)",
    "range(25)": "range(2)",
    "range(100)": "range(10)",
    ".remote(100)": ".remote(10)",
    "n_envs=16": "n_envs=4",
    'device="cpu").learn(100_000)': 'device="cpu", n_steps=8, batch_size=8).learn(64)',
    "learn.main()": "learn.main",  # the original needs a simulator
    '"cuda"': '"cpu"',  # test machines may have no GPU
    '"MUJOCO_GL": "egl"': f'"MUJOCO_GL": "{OFF_SCREEN}"',
}

# Other fences are directives, or files that are neither Python nor a command.
LANGUAGES = ("", "python", "sh")


def name_of(page: Path) -> str:
    return page.relative_to(ROOT / "docs" if page.is_relative_to(ROOT / "docs") else ROOT).as_posix()


def blocks(page: Path) -> Iterator[tuple[int, str]]:
    """Yields the first line number and the code of each block, fenced or indented."""
    lines = written(page).split("\n")
    number = 0
    while number < len(lines):
        end = number + 1
        if lines[number].startswith("```"):
            while not lines[end].startswith("```"):
                end += 1
            if lines[number].strip("`") in LANGUAGES:
                yield number + 2, "\n".join(lines[number + 1 : end])
            end += 1
        elif lines[number].startswith("    ") and not lines[number - 1].strip():
            while end < len(lines) and (lines[end].startswith("    ") or not lines[end].strip()):
                end += 1
            yield number + 1, textwrap.dedent("\n".join(lines[number:end])).strip("\n")
        number = end


def is_python(code: str) -> bool:
    try:
        ast.parse(code)
    except SyntaxError:
        return False
    return True


@functools.cache
def is_missing(framework: str) -> bool:
    """Looks in a fresh interpreter, because other tests may have installed a stand-in."""
    look = f"import importlib.util as u, sys; sys.path += {PATHS}; sys.exit(u.find_spec({framework!r}) is None)"
    return subprocess.run([sys.executable, "-c", look], check=False).returncode != 0


def without_missing(code: str) -> str:
    """Returns the code without statements that need a missing framework."""
    kept, gone = [], set[str]()
    for statement in ast.parse(code).body:
        nodes = list(ast.walk(statement))
        names = [node for node in nodes if isinstance(node, ast.Name)]
        if any(map(is_missing, frameworks_of(nodes))):
            imports = [node for node in nodes if isinstance(node, (ast.Import, ast.ImportFrom))]
            gone |= {alias.asname or alias.name for node in imports for alias in node.names}
        elif gone.intersection(node.id for node in names):
            gone |= {node.id for node in names if isinstance(node.ctx, ast.Store)}
            gone |= {statement.name} if isinstance(statement, (ast.FunctionDef, ast.ClassDef)) else set()
        else:
            kept.append(source_of(code, statement))
    return "\n".join(kept)


def source_of(code: str, statement: ast.stmt) -> str:
    """Returns the source of a statement with its decorators."""
    first = min((one.lineno for one in getattr(statement, "decorator_list", ())), default=statement.lineno)
    return "\n".join(code.splitlines()[first - 1 : statement.end_lineno])


def frameworks_of(nodes: list[ast.AST]) -> set[str]:
    """Returns the frameworks that these nodes import."""
    modules = {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    modules |= {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return {FRAMEWORKS[known] for known in FRAMEWORKS for module in modules if f"{module}.".startswith(f"{known}.")}


# Tests of these pages are in `tests/cluster`.
ON_CLUSTERS = ("ray.md", "reference/ray.md")


@pytest.fixture(scope="module")
def reader() -> Iterator[Reader]:
    with Reader(PATHS) as one:
        yield one


@pytest.mark.skipif(sys.platform != "linux", reason="worker processes need Linux")
@pytest.mark.parametrize("page", [page for page in PAGES if name_of(page) not in ON_CLUSTERS], ids=name_of)
def test_code_runs(page: Path, reader: Reader, tmp_path: Path) -> None:
    run_code(page, reader, tmp_path)


def run_code(page: Path, reader: Reader, directory: Path) -> None:
    code = [(line, without_missing(block)) for line, block in blocks(page) if is_python(block)]
    if not code:
        pytest.skip("no code in Python")
    name = name_of(page)
    if name in NEEDS and is_missing(NEEDS[name]):
        pytest.skip(f"{NEEDS[name]} is not installed")
    if name == "recipes/mujoco.md":
        require_off_screen()
    for long, short in SHORTER.items():
        code = [(line, block.replace(long, short)) for line, block in code]
    reader.read(name, code, directory, PRELUDES.get(name, POOL), EPILOGUES.get(name, ""))


# -- commands --------------------------------------------------------------------------------------------

# Blocks that are neither Python nor a command: output, and a line that explains two calls.
TEXTS = (
    "T(N, w",
    "rate = min(",
    "worker 2 (pid",
    "pool train.py of process",
    "building envs",
    "EnvError:",
    "WorkerDiedError:",
    "reproduced:",
    "pool.send(actions, env_ids)",
)


def commands(page: Path) -> Iterator[str]:
    for _, block in blocks(page):
        if is_python(block):
            continue
        for line in block.split("\n\n")[0].splitlines():
            if line.startswith(TEXTS):
                break
            yield from line.split("#")[0].split("&&")


# One page has drawings in place of commands.
@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "architecture.md"], ids=name_of)
def test_commands_exist(page: Path) -> None:
    project, makefile = ((ROOT / name).read_text() for name in ("pyproject.toml", "Makefile"))
    for line in commands(page):
        program, *words = shlex.split(re.split(r" {3,}", line.strip())[0])
        match [Path(program).name, *words]:
            case ["cd" | "sbatch" | "py-spy", *_] | ["pip", "install", *_]:
                pass  # test_packaging.py reads what pip installs
            case ["git", "clone", source, *_]:
                assert f'Source = "{source}"' in project
            case ["make", target, *_]:
                assert re.search(rf"^{target}:", makefile, re.MULTILINE)
            case ["python", "-m", "remuda", subcommand, *options] | ["remuda", subcommand, *options]:
                assert {word for word in options if word.startswith("--")} <= options_of(subcommand)
            case ["python", script, *_]:
                assert (ROOT / script).exists()
            case unknown:
                pytest.fail(f"expected a command that is known here, got {unknown}")


@functools.cache
def options_of(subcommand: str) -> set[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "200")
        help_text = command(subcommand, "--help")
    assert help_text.exit_code == 0
    return set(re.findall(r"--[a-z-]+", help_text.stdout))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_have_targets(page: Path) -> None:
    text = page.read_text().replace(f"({ADDRESS}", "(")
    for path, heading in re.findall(r"\]\((?!https?:)([^)#\s]*)#?([^)\s]*)\)", text):
        target = page.parent / path if path else page
        assert target.exists(), path
        assert not heading or target.suffix != ".md" or heading in headings(target), (path, heading)


def headings(page: Path) -> list[str]:
    """Returns the anchors of a page's headings, as the code host makes them."""
    lines = [line for line in page.read_text().splitlines() if line.startswith("#")]
    return [re.sub(r"[^\w -]", "", line.lstrip("# ").lower()).replace(" ", "-") for line in lines]


# -- figures ---------------------------------------------------------------------------------------------

UNITS = r"(?:%|times (?:as|the)|ns|us|µs|ms|s|seconds|kB|MB|GB|KiB|MiB|env steps|steps/s)(?!\w)"
FIGURE = re.compile(rf"(?<![\w.,-])(?:(\d[\d,]*(?:\.\d+)?) ?{UNITS}|(0\.\d\d+)(?![\w.]))")
FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
# Code, results, the targets of links, and versions.
NO_PROSE = re.compile(
    r"^    .*?$|`[^`\n]*`|<!-- (\w+) -->.*?<!-- /\1 -->|\]\([^)]*\)"
    r"|\b[Gg]ym(?:nasium)?(?: 1\.x or)? 0\.\d+(?: to 0\.\d+)?",
    re.DOTALL | re.MULTILINE,
)
# Limits, defaults and sizes that the code sets. They were not measured.
SET_BY_CODE = ("0.1 s", "0.2 s", "0.5 s", "5 s", "30 s", "60 s", "30 ms", "5 seconds", "10 seconds", "1.8 times as")
SET_BY_CODE += ("60 kB", "32 KiB", "64 KiB", "256 KiB", "9 MB", "231 MB")
WITH_FIGURES = [*PAGES, *(ROOT / name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "benchmarks/README.md"))]


@pytest.mark.parametrize("page", WITH_FIGURES, ids=name_of)
def test_figures_in_prose_were_measured(page: Path) -> None:
    """A number with a unit, or a share such as 0.35, must be in the results of a script that its section names."""
    unknown = [
        match[0]
        for section in re.split(r"^(?=#+ )", FENCED.sub("", written(page)), flags=re.MULTILINE)
        for match in FIGURE.finditer(NO_PROSE.sub("", section))
        if match[0] not in SET_BY_CODE
        and not is_measured(match[1] or match[2], re.findall(r"\b([a-z0-9_]+)(?:\.py\b|py\))", section))
    ]
    assert unknown == []


def is_measured(figure: str, scripts: list[str]) -> bool:
    """Returns whether a number in the results of these scripts is rounded to this figure."""
    digits = len(figure.partition(".")[2])
    wanted = float(figure.replace(",", ""))
    return any(round(number, digits) == wanted for script in scripts for number in measured().get(script, ()))


@functools.cache
def measured() -> dict[str, set[float]]:
    """Returns the numbers in the results of each script."""
    results: dict[str, Any] = json.loads((ROOT / "benchmarks" / "results.json").read_text())
    numbers: dict[str, set[float]] = {}
    for name, section in results.items():
        found = re.findall(r"(?<![\d.])\d[\d,]*(?:\.\d+)?", json.dumps(section))
        script = name.partition(": ")[0].rpartition("/")[2]
        numbers.setdefault(script, set()).update(float(number.replace(",", "")) for number in found)
    return numbers
