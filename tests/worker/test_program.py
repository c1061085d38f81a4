"""Tests of the `__main__` and the modules that envs find in worker processes."""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pool_envs import CountingEnv
from programs import Script

from remuda import InvalidEnvError, Pool

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="worker processes need Linux")

# A program without a guard. Its env looks up names that came with the factory, and names that did not.
PROGRAM = """
from __future__ import annotations
import functools, inspect, json, multiprocessing, pickle, sys, threading
import numpy as np
import remuda
from pool_envs import CountingEnv

print("running", flush=True)
LOCK = threading.RLock()
LATE = OFFSET = 12

class Config:
    def __init__(self, x):
        self.x = x

@functools.lru_cache(maxsize=None)
def fibonacci(n):
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)

@functools.singledispatch
def kind(value):
    return "object"

@kind.register
def _(value: int):
    return "int"

def square(x):
    return x * x

def late(x):
    return square(x) + LATE

if sys.version_info >= (3, 0):
    print("not a definition")
    try:
        import a_module_that_is_missing
        from_try = 1
    except ImportError:
        from_try, also = [], object()
    same = [also]
else:
    from_try = 2

pickled = pickle.dumps(Config(4))

class Env(CountingEnv):
    @functools.cached_property
    def cached(self):
        return 5

    def reset(self, **kwargs):
        import __main__
        obs, info = super().reset(**kwargs)
        with LOCK, multiprocessing.get_context("fork").Pool(1) as forked:
            squares = forked.map(square, [1, 2, 3])
        found = {
            "cached": [fibonacci(30), self.cached, kind(1), kind("")],
            "pickled": pickle.loads(pickled).x,
            "same": isinstance(pickle.loads(pickled), Config) and __main__.Config is Config,
            "multiprocessing": squares,
            "offset": tried(lambda: __main__.OFFSET),
            "file": getattr(__main__, "__file__", None),
            "late": tried(lambda: [__main__.late(2), __main__.from_try, __main__.same[0] is __main__.also]),
            "source": tried(lambda: inspect.getsource(Env).split("(")[0]),
            "missing": tried(lambda: pickle.loads(b"c__main__\\nmissing\\n.")),
        }
        return obs, {**info, "found": found}

def tried(function):
    try:
        return function()
    except Exception as error:
        return str(error)

for start_method in ("forkserver", "spawn", "fork"):
    with remuda.Pool([Env], num_workers=1, start_method=start_method) as pool:
        print(json.dumps(pool.reset().infos[0]["found"]), flush=True)
trained = pool.closed  # only after the loop: a worker must not need it
"""

# Runs the program as cells, as a notebook does.
NOTEBOOK = r"""
import re
import sys
import __main__
code = sys.stdin.read()
cells = code.split("\\n\\n")
vars(__main__).pop("__file__")
__main__.In = ["", "%magic", *cells]
for cell in cells:
    exec(compile(cell, "<cell>", "exec"), vars(__main__))
"""


def run(directory: Path, *command: str, code: str | None = None) -> list[str]:
    """Runs a program and returns the lines that it prints."""
    path = os.pathsep.join([str(directory), str(Path(__file__).parents[1]), *sys.path])
    done = subprocess.run(
        [sys.executable, *command],
        input=code,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        cwd=directory,
        env={**os.environ, "PYTHONPATH": path},
    )
    return done.stdout.splitlines()


@pytest.mark.parametrize("kind", ["script", "module", "command", "notebook", "stdin"])
def test_envs_find_the_names_of_the_program(kind: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "notebook.py").write_text(NOTEBOOK)
    command = {
        "script": ["program.py"],  # a relative path
        "module": ["-m", "program"],
        "command": ["-Wdefault", "-c", PROGRAM],
        "notebook": ["notebook.py"],
        "stdin": ["-"],
    }
    *ran, by_server, spawned, forked = run(tmp_path, *command[kind], code=PROGRAM)
    assert ran == ["running", "not a definition"]  # once: no worker has run the program as a whole
    by_server, spawned, forked = map(json.loads, (by_server, spawned, forked))
    assert by_server == spawned
    has_file, has_code = kind in {"script", "module"}, kind != "stdin"
    assert by_server | {"missing": ..., "offset": ..., "late": ..., "source": ...} == {
        "cached": [832040, 5, "int", "object"],
        "pickled": 4,
        "same": True,
        "multiprocessing": [1, 4, 9],
        "offset": ...,
        "file": str(tmp_path / "program.py") if has_file else None,
        "late": ...,
        "source": ...,
        "missing": ...,
    }
    if has_file:
        assert by_server["source"] == "class Env"
    if has_code:
        assert by_server["late"] == forked["late"] == [16, [], True]
        assert by_server["offset"] == forked["offset"] == 12
    else:
        assert "'late'" in by_server["late"]
    for text in ("missing", "start_method='fork'"):
        assert text in by_server["missing"]
    same = {"cached", "pickled", "same", "multiprocessing"}
    assert {key: forked[key] for key in same} == {key: by_server[key] for key in same}


def test_definitions_that_make_a_pool_or_raise_are_refused(script: Callable[..., Script]) -> None:
    program = script("""
class Point(ctypes.Structure):  # its definition is run in the worker
    _fields_ = [("x", ctypes.c_int)]

class Env(CountingEnv):
    def reset(self, **kwargs):
        import __main__
        obs, info = super().reset(**kwargs)
        errors = []
        for name in ("pool", "first"):
            try:
                getattr(__main__, name)
            except ImportError as error:
                errors.append(str(error))
        return obs, {**info, "errors": errors, "x": Point(3).x}

first = ([0] if os.environ.setdefault("PROGRAM", str(os.getpid())) == str(os.getpid()) else [])[0]
pool = Pool([Env], num_workers=1)
say(pool.reset().infos[0])
pool.close()
""")
    info = program.read_line()
    assert info["x"] == 3
    of_pool, of_first = info["errors"]
    assert re.search("cannot define 'pool' of .*script.py in a worker: line 19 raised StateError: ", of_pool)
    assert re.search("cannot define 'first' of .*: line 18 raised IndexError: .*start_method='fork'", of_first)
    assert program.await_end() == (0, "", "")


def test_envs_find_modules_that_are_not_on_the_path(script: Callable[..., Script], tmp_path: Path) -> None:
    for folder, name in [("removed", "from_removed"), ("relative", "from_relative"), ("given", "by_path")]:
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"{name}.py").write_text("import pool_envs\ndef make(): return pool_envs.CountingEnv()")
    program = script(f"""
import importlib.util, types
os.chdir({str(tmp_path)!r})
sys.path.insert(0, os.path.abspath("removed"))
import from_removed
sys.path[0] = "relative"
import from_relative
os.chdir("/")
spec = importlib.util.spec_from_file_location("by_path", {str(tmp_path / "given" / "by_path.py")!r})
by_path = sys.modules["by_path"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(by_path)
made = sys.modules["made"] = types.ModuleType("made")
exec("import pool_envs\\ndef make(): return pool_envs.CountingEnv()", vars(made))
for start_method in ("forkserver", "spawn"):
    for module in (from_removed, from_relative, by_path, made):
        try:
            with Pool([module.make], num_workers=1, start_method=start_method) as pool:
                say(pool.reset().obs.shape)
        except EnvError as error:
            say(str(error))
""")
    for _ in range(2):
        assert [program.read_line() for _ in range(3)] == [[1, 4]] * 3
        assert "No module named 'made' in a worker: the program made it without a file" in program.read_line()
    assert program.await_end() == (0, "", "")


@pytest.mark.parametrize(
    ("hidden", "named"),
    [
        ("closure", "a lock, variable held of test_an_error_names_what_cannot_be_pickled.<locals>.make"),
        ("attribute", "a lock, attribute held of , the arguments of a partial"),
        ("default", "a lock, item 0, the defaults of"),
    ],
)
def test_an_error_names_what_cannot_be_pickled(hidden: str, named: str) -> None:
    held = threading.Lock()

    class Holder:
        def __init__(self) -> None:
            self.held = held

    def make(*_: Any) -> CountingEnv:
        held.acquire()
        return CountingEnv()

    factories = {
        "closure": make,
        "attribute": functools.partial(lambda holder: CountingEnv(), Holder()),
        "default": lambda lock=held: CountingEnv(),
    }
    with pytest.raises(InvalidEnvError, match=re.escape("cannot pickle 'lock' object")) as caught:
        Pool([CountingEnv, factories[hidden]], num_workers=1)
    for part in ("expected env_fns that can be pickled", "backend='thread'", *named.split(", ")):
        assert part in str(caught.value)
    assert caught.value.__cause__ is not None
