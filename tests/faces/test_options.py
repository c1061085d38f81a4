"""Every option of the pool, passed to every face: it reaches the pool or is refused with a reason."""

from __future__ import annotations

import copy
import functools
import gc
import importlib
import inspect
import itertools
import pickle
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from interrupting import Interrupt, interrupting
from test_public_names import FACES as PACKAGES
from test_public_names import public_names

import remuda
from remuda import FaultPolicy, Pool, PoolOptions
from remuda.gymnasium import AsyncVectorEnv
from remuda.stats import WorkerChoice

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="worker processes need Linux"),
    pytest.mark.filterwarnings("ignore"),  # from old frameworks
]


def one(env: Any) -> int:
    return 1


SPACE = spaces.Box(-9.0, 9.0, (4,), np.float32)

# For each option: a value that is no face's default, and the other options that it needs. Options that need no process
# run serially.
VALUES: dict[str, tuple[Any, dict[str, Any]]] = {
    "num_workers": (1, {}),
    "backend": ("thread", {}),
    "start_method": ("spawn", {}),
    "preload": (("colorsys",), {}),
    "threads_per_worker": (2, {}),
    "worker_env": ({"HERD": "3"}, {"backend": "process"}),
    "devices": (["GPU-7"], {"backend": "process"}),
    "start_timeout": (45.0, {}),
    "starts_serially": (True, {}),
    "lazy": (True, {}),
    "max_worker_memory": (1 << 40, {"backend": "process"}),
    "max_concurrency": (1, {}),
    "pin_workers": (True, {}),
    "name": ("herd", {}),
    "autoreset": ("disabled", {}),
    "resets_ahead": (True, {}),
    "spares": (1, {}),
    "seeding": ("per_episode", {}),
    "vector_size": (2, {}),
    "frames": (7, {}),
    "object_bytes": (8192, {}),
    "extras": ({"one": one}, {}),
    "observation_space": (SPACE, {}),
    "faults": (FaultPolicy("restart", backoff=0.25), {}),
    "crash_dir": ("records", {}),
    "worker_output": ("capture", {"backend": "process"}),
    "log_advice": (False, {}),
}

Make = Callable[..., Any]  # makes the face's object with two envs and these options


def cartpoles(options: dict[str, Any]) -> list[Callable[[], Any]]:
    if "vector_size" in options:
        return [lambda: gymnasium.make_vec("CartPole-v1", num_envs=2, vectorization_mode="sync")] * 2
    return [lambda: gymnasium.make("CartPole-v1")] * 2


def pool(**options: Any) -> Any:
    return Pool(cartpoles(options), **options)


def async_vector_env(**options: Any) -> Any:
    return AsyncVectorEnv(cartpoles(options), **options)


def make_vec(**options: Any) -> Any:
    # as a keyword of make_vec, `name` would go to the env
    of_workers = {"name": options.pop("name")} if "name" in options else {}
    return remuda.make_vec("CartPole-v1", num_envs=2, vector_kwargs=of_workers, **options)


def subproc_vec_env(**options: Any) -> Any:
    pytest.importorskip("stable_baselines3")
    return remuda.sb3.SubprocVecEnv(cartpoles(options), **options)


def alf_env(kind: str, **options: Any) -> Any:
    pytest.importorskip("torch")
    from alf_face_envs import CountingAlfEnv

    return getattr(remuda.alf, kind)([CountingAlfEnv] * 2, **options)


def ding_manager(**options: Any) -> Any:
    from ding_face_envs import DriftEnv

    manager = remuda.ding.SyncSubprocessEnvManager([DriftEnv] * 2, {"remuda": options})
    manager.launch()
    return manager


def mlagents_manager(**options: Any) -> Any:
    from mlagents_face_envs import EchoEnv, RunOptions

    return remuda.mlagents.SubprocessEnvManager(EchoEnv, RunOptions(), 2, **options)


FACES: dict[str, Make] = {
    "Pool": pool,
    "gymnasium.AsyncVectorEnv": async_vector_env,
    "gymnasium.make_vec": make_vec,
    "sb3.SubprocVecEnv": subproc_vec_env,
    "alf.FastParallelEnvironment": functools.partial(alf_env, "FastParallelEnvironment"),
    "alf.ParallelAlfEnvironment": functools.partial(alf_env, "ParallelAlfEnvironment"),
    "ding.cfg.remuda": ding_manager,
    "mlagents.SubprocessEnvManager": mlagents_manager,
}

OF_GYMNASIUM = {"autoreset": "autoreset_mode=", "start_method": "context=", "observation_space": "observation_mode="}
OF_ALF = {
    "autoreset": "FIRST",
    "extras": "env_info",
    "observation_space": "specs",
    "resets_ahead": "always",
    "seeding": "seed()",
    "spares": "num_spare_envs_for_reload=",
    "starts_serially": "start_serially=",
    "threads_per_worker": "torch_num_threads_per_env=",
    "vector_size": "batch_size",
}
# The options that each face refuses, with a word from the error message.
REFUSED: dict[str, dict[str, str]] = {
    "Pool": {},
    "gymnasium.AsyncVectorEnv": OF_GYMNASIUM,
    "gymnasium.make_vec": {**OF_GYMNASIUM, "vector_size": "AsyncVectorEnv"},
    "sb3.SubprocVecEnv": {"autoreset": "within the step", "resets_ahead": "spares=", "vector_size": "each env"},
    "alf.FastParallelEnvironment": OF_ALF,
    "alf.ParallelAlfEnvironment": OF_ALF,
    "ding.cfg.remuda": {
        "autoreset": "auto_reset",
        "extras": "obs['action_mask']",
        "observation_space": "shared_memory",
        "resets_ahead": "auto_reset",
        "seeding": "seed()",
        "spares": "auto_reset",
        "start_method": "context",
        "vector_size": "by itself",
    },
    "mlagents.SubprocessEnvManager": {
        "log_advice": "measuring",
        "autoreset": "requests",
        "extras": "decision steps",
        "observation_space": "requests",
        "resets_ahead": "requests",
        "seeding": "factory",
        "spares": "stand in",
        "starts_serially": "first reset",
        "vector_size": "agents",
    },
}


@pytest.mark.parametrize("package", ["remuda", *(f"remuda.{face}" for face in PACKAGES)])
def test_help_shows_the_parameters_of_methods(package: str) -> None:
    try:
        public = [getattr(importlib.import_module(package), name) for name in public_names(package)]
    except remuda.MissingFrameworkError as error:
        pytest.skip(str(error))
    for cls in (one for one in public if inspect.isclass(one) and not issubclass(one, dict)):
        for name, method in inspect.getmembers(cls, inspect.isfunction):
            shown = set(inspect.signature(method).parameters) - {"self"}
            assert not method.__module__.startswith("remuda") or shown != {"args", "kwargs"}, (cls, name)


# For each option that is checked: a value that is refused, also on the serial backend.
INVALID: dict[str, Any] = {
    **dict.fromkeys(("num_workers", "threads_per_worker", "start_timeout", "max_concurrency", "spares"), -1),
    **dict.fromkeys(("vector_size", "frames", "object_bytes"), -1),
    **dict.fromkeys(("backend", "start_method", "preload", "worker_env", "devices", "lazy"), "wrong"),
    **dict.fromkeys(("max_worker_memory", "seeding", "extras", "faults"), "wrong"),
    **dict.fromkeys(("crash_dir", "worker_output", "observation_space"), 3),
}
# For each face: its names for options of the pool.
GYMNASIUMS_NAMES = {"start_method": "context"}
ALFS_NAMES = {"spares": "num_spare_envs_for_reload", "threads_per_worker": "torch_num_threads_per_env"}
NAMES = {
    "gymnasium.AsyncVectorEnv": GYMNASIUMS_NAMES,
    "gymnasium.make_vec": GYMNASIUMS_NAMES,
    "alf.FastParallelEnvironment": ALFS_NAMES,
    "alf.ParallelAlfEnvironment": ALFS_NAMES,
}


@pytest.mark.parametrize("face", FACES)
def test_the_error_for_an_invalid_value_has_the_faces_name(face: str, pools: list[Pool]) -> None:
    names = NAMES.get(face, {})
    of_pool = {*names, "env_fns"} if names is ALFS_NAMES else {*names}
    for option, value in INVALID.items():
        is_sb3s_own = (face, option) == ("sb3.SubprocVecEnv", "start_method")  # Stable-Baselines3's error is raised
        if (name := names.get(option, option)) not in REFUSED[face] and not is_sb3s_own:
            with pytest.raises((TypeError, ValueError)) as raised:
                FACES[face](**{"backend": "serial", name: value})
            words = set(re.findall(r"\w+", str(raised.value)))
            assert name in words
            assert not words & of_pool
    assert not pools


def test_the_error_for_two_options_has_the_faces_names_and_values(pools: list[Pool]) -> None:
    with pytest.raises(ValueError, match="autoreset_mode='NextStep' with resets_ahead=True, got 'SameStep'"):
        async_vector_env(resets_ahead=True, autoreset_mode="SameStep", backend="serial")
    with pytest.raises(
        ValueError, match="max_concurrency=None with num_spare_envs_for_reload=1, got 1: spare envs reset"
    ):
        alf_env("FastParallelEnvironment", num_spare_envs_for_reload=1, max_concurrency=1, backend="serial")
    with pytest.raises(ValueError, match="expected num_envs to be an int from 1 up, got 0"):
        remuda.make_vec("CartPole-v1", num_envs=0)
    assert not pools
    envs = async_vector_env(autoreset_mode="Disabled", backend="serial")
    envs.reset()
    with pytest.raises(ValueError, match="autoreset_mode='NextStep' or 'SameStep' for a rollout, got 'Disabled'"):
        envs.rollout(2)


@pytest.mark.parametrize("face", sorted(FACES.keys() - {"gymnasium.make_vec"}))
def test_the_error_for_a_copy_names_the_users_class(face: str, pools: list[Pool]) -> None:
    whole = FACES[face](backend="serial")
    for envs in (whole, *(whole.split(2)[:1] if hasattr(whole, "split") else ())):
        for make_copy in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match=rf"got {type(envs).__name__}, .*; make one from the same functions"):
                make_copy(envs)


@pytest.fixture
def pools(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Pool]]:
    """Collects the pools that the test makes, and closes them at its end."""
    made: list[Pool] = []
    constructor = Pool.__init__

    def recording(self: Pool, *args: Any, **kwargs: Any) -> None:
        constructor(self, *args, **kwargs)
        made.append(self)

    monkeypatch.setattr(Pool, "__init__", recording)
    yield made
    for one in made:
        one.close(terminate=True)


MEASURING = ("Pool", "gymnasium.make_vec")
STEPPED_BY_THE_CALLER = (*MEASURING, "gymnasium.AsyncVectorEnv", "sb3.SubprocVecEnv")


@pytest.mark.parametrize("face", FACES)
def test_the_number_of_workers_is_measured_by_default_or_on_request(
    face: str, pools: list[Pool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the pool and `make_vec` measure by default. Faces keep the number of workers of the library that they
    imitate."""
    monkeypatch.setattr("remuda._engine.startup.auto.LONGEST_BUILD", 1e9)

    def choose(measured: Any, num_envs: int, cores: int, wake: float | None) -> WorkerChoice:
        """Chooses the serial backend if the caller may step the envs, and two workers otherwise."""
        return WorkerChoice(2, "process", "test") if wake is None else WorkerChoice(1, "serial", "test")

    monkeypatch.setattr("remuda._engine.startup.auto.choose", choose)
    found = [({}, face in MEASURING, ("process", 2))]
    if face != "mlagents.SubprocessEnvManager":
        found.append(({"num_workers": "auto"}, True, ("process", 2)))
    if face in STEPPED_BY_THE_CALLER:
        found.append(({"num_workers": "auto", "backend": "auto"}, True, ("serial", 1)))
    else:
        found.append(({"backend": "auto"}, False, ("process", 2)))
    if face == "gymnasium.make_vec":  # if envs can be rebuilt, each has a worker
        found += [({"faults": faults}, False, ("process", 2)) for faults in ("restart", FaultPolicy(renew_every=2))]
    for options, is_measured, expected in found:
        FACES[face](**options).close()
        assert (pools[-1].choice is not None, (pools[-1].backend, pools[-1].num_workers)) == (is_measured, expected)


@pytest.mark.parametrize("face", FACES)
def test_a_constructor_that_fails_leaves_nothing_that_raises_later(face: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gymnasium before 1.4 closes a vector env when it is collected, also if its constructor has failed."""

    def close_unless_closed(self: Any) -> None:
        if not self.closed:
            self.close()

    ignored: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda found: ignored.append(repr(found)))
    monkeypatch.setattr(gymnasium.vector.VectorEnv, "__del__", close_unless_closed, raising=False)
    for wrong in ({"fames": 7}, {"frames": -1}, {"faults": "none"}):
        with pytest.raises((TypeError, ValueError)):
            FACES[face](**wrong)
    files = (str(Path(remuda.__file__).parent),)
    for n in itertools.count(0, 2999):
        with suppress(Interrupt, Exception):  # an interrupt in a factory is an error of the env
            with interrupting(n, files) as hit:
                made = FACES[face](backend="serial")
            made.close()
        gc.collect()
        if not hit:
            break
    assert not ignored


def in_force(one: Pool, option: str) -> Any:
    """Returns the value that the pool uses, in the form in which the test passed it."""
    value = one.options[option]  # type: ignore[literal-required]
    if option == "extras":  # some faces wrap the functions
        return value and {name: getattr(function, "args", [function])[0] for name, function in value.items()}
    if option == "faults":  # some faces add deadlines and quotas
        return FaultPolicy(value.on_fault, backoff=value.backoff)
    return str(value.directory.relative_to(Path.cwd())) if option == "crash_dir" else value


@pytest.mark.parametrize("option", PoolOptions.__annotations__)
@pytest.mark.parametrize("face", FACES)
def test_an_option_reaches_the_pool_or_is_refused_with_the_reason(
    face: str, option: str, pools: list[Pool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    value, beside = VALUES[option]
    options = {"backend": "serial", **beside, option: value}
    if (word := REFUSED[face].get(option)) is not None:
        with pytest.raises((TypeError, ValueError), match=re.escape(word)) as raised:
            FACES[face](**options)
        assert option in str(raised.value)
        assert not pools
        return
    envs = FACES[face](**options)
    assert [in_force(one, option) for one in pools] == [value]
    envs.close()


@pytest.mark.parametrize("face", FACES)
def test_the_error_for_an_unknown_keyword_suggests_an_option(face: str, pools: list[Pool]) -> None:
    found = {
        option[:-2] + option[-1]: f"{option}="
        for option in set(PoolOptions.__annotations__) - REFUSED[face].keys() - {"name", "spares"}
    }
    for option, kind in (("faults", FaultPolicy), ("crash_dir", remuda.CrashDir)):
        found |= {field.name: f"{option}={kind.__name__}({field.name}=...)" for field in fields(kind)}
    for unknown, meant in found.items():
        with pytest.raises((TypeError, ValueError), match=f"'{unknown}'.*; did you mean {re.escape(meant)}\\?"):
            FACES[face](**{"backend": "serial", unknown: 1})
    assert not pools


def test_the_error_for_num_envs_suggests_make_vec(pools: list[Pool]) -> None:
    text = "write [make_env] * n, or call remuda.make_vec(id, num_envs=n)"
    for call in (Pool, AsyncVectorEnv):
        with pytest.raises(TypeError, match=re.escape(text)):
            call("CartPole-v1", num_envs=4)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"; did you mean num_envs=\?"):
        remuda.make_vec("CartPole-v1", n_envs=4, backend="serial")
    assert not pools


@pytest.mark.parametrize("face", FACES)
def test_the_default_name_of_workers_is_the_faces(face: str, pools: list[Pool]) -> None:
    FACES[face](name=None, backend="serial").close()
    FACES[face](backend="serial").close()
    first, second = (one.options["name"] for one in pools)
    assert first == second is not None


@pytest.mark.parametrize("kind", ["FastParallelEnvironment", "ParallelAlfEnvironment"])
def test_the_signature_of_the_alf_face_names_every_option(kind: str) -> None:
    """ALF configures the parameters in a signature, and ignores ``**options``."""
    pytest.importorskip("torch")
    named = inspect.signature(getattr(remuda.alf, kind)).parameters
    assert set(PoolOptions.__annotations__) - OF_ALF.keys() <= named.keys()
    assert all(parameter.kind is not parameter.VAR_KEYWORD for parameter in named.values())
