"""The public names, as programs and `dir()` see them."""

from __future__ import annotations

import ast
import doctest
import json
import pydoc
import re
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


def test_the_pools_documentation_has_its_methods() -> None:
    page = pydoc.plaintext.document(remuda.Pool)
    assert "Pool(env_fns: 'Sequence[EnvFn]', *, num_workers: " in page
    for name in ("step", "send", "recv", "reset", "workers", "pending", "stats"):
        assert re.search(rf"^ \|  {name}\b.*\n \|      \w", page, re.MULTILINE), name


@pytest.mark.skipif(sys.platform != "linux", reason="worker processes need Linux")
def test_the_pools_example_runs() -> None:
    test = doctest.DocTestParser().get_doctest(remuda.Pool.__doc__ or "", {}, "Pool", None, None)
    runner = doctest.DocTestRunner()
    runner.run(test)
    assert (runner.failures, runner.tries) == (0, len(test.examples)) and test.examples
