"""Builds the wheels that can be built on this machine, and tests each in a fresh environment.

    python packaging/wheels.py [--python 3.10,3.11,3.12] [--glibc 2.28 | --system] [--aarch64]

`make wheels` runs this script. It builds one wheel for Python 3.10, one for 3.11, and one with the stable ABI for 3.12
and newer, which is tested with each newer Python that is installed. The compiler is zig's, from PyPI, which has the
symbols of every glibc, so the wheels run on much older systems. `--system` uses this system's compiler, which is
faster; the wheels then need a system as new as this one. The wheels and the source distribution are put into dist/.
auditwheel repairs the wheels, twine checks all files, and packaging/smoke.py runs without a compiler on the path.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "build" / "wheels"
DIST = ROOT / "dist"
STABLE_ABI = (3, 12)  # `wheel.py-api` in pyproject.toml
VERSIONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
# Installs the oldest versions that pyproject.toml allows. With the oldest Python, the wheel is also tested with them.
LOWEST = ("--constraint", ROOT / "packaging" / "lowest.txt")


def main() -> None:
    options = parse_options()
    pythons = find_pythons(options.python)
    if not pythons:
        sys.exit(f"expected a Python of {', '.join(options.python)} on the path or in pyenv, found none")
    shutil.rmtree(DIST, ignore_errors=True)
    WORK.mkdir(parents=True, exist_ok=True)
    tools = make_tools()
    run(tools, "-m", "build", "--sdist", "--outdir", DIST, ROOT)
    (sdist,) = DIST.glob("*.tar.gz")
    for version, python in builders(pythons):
        target = None if options.system else Target(options.glibc, platform.machine())
        build(tools, python, sdist, target, version)
    if options.aarch64:
        build(tools, builders(pythons)[-1][1], sdist, Target(options.glibc, "aarch64"), "aarch64")
    run(tools, "-m", "twine", "check", "--strict", *DIST.iterdir())
    for wheel in DIST.glob("*-abi3-*.whl"):
        run(tools, "-m", "abi3audit", "--strict", "--summary", wheel)
    for version, python in pythons.items():
        try_wheel(version, python, wheel_for(version))
    oldest = next(iter(pythons))
    if oldest == VERSIONS[0]:
        try_wheel(f"{oldest}-lowest", pythons[oldest], wheel_for(oldest), LOWEST)
    build_offline(pythons, sdist)
    print("\n".join(["", *(f"{path.relative_to(ROOT)}  {path.stat().st_size >> 10} kB" for path in DIST.iterdir())]))


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", type=lambda text: text.split(","), default=list(VERSIONS), metavar="VERSIONS")
    parser.add_argument("--glibc", default="2.28", help="the oldest that wheels are to run with (default: 2.28)")
    parser.add_argument("--system", action="store_true", help="build with the system's compiler")
    parser.add_argument("--aarch64", action="store_true", help="build the stable-ABI wheel for aarch64 too, untried")
    return parser.parse_args()


def find_pythons(versions: Iterable[str]) -> dict[str, Path]:
    """Returns the interpreters of these versions, on the path or in pyenv, that run. A shim of pyenv may not run."""
    found = {}
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for version in versions:
        candidates = [*sorted(pyenv.glob(f"{version}.*/bin/python3")), shutil.which(f"python{version}")]
        for candidate in filter(None, candidates):
            told = subprocess.run([candidate, "-c", "import venv"], capture_output=True, check=False)
            if told.returncode == 0:
                found[version] = Path(candidate)
                break
    return found


def builders(pythons: dict[str, Path]) -> list[tuple[str, Path]]:
    """Returns the Pythons to build with: each that needs its own wheel, and the first that the stable ABI covers."""
    own = [(version, python) for version, python in pythons.items() if parsed(version) < STABLE_ABI]
    sharing = [(version, python) for version, python in pythons.items() if parsed(version) >= STABLE_ABI]
    return own + sharing[:1]


def parsed(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


# -- building --------------------------------------------------------------------------------------------


class Target:
    """A target of zig, with a folder of programs that call zig under the names of the usual compilers."""

    def __init__(self, glibc: str, machine: str) -> None:
        self.machine = machine
        self.triple = f"{machine}-linux-gnu.{glibc}"
        self.is_foreign = machine != platform.machine()
        self._folder = WORK / self.triple

    def environment(self, tools: Path) -> dict[str, str]:
        """Writes the programs that call zig. Returns the environment variables of a build that compiles with them."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for name, options in (("cc", self._target), ("c++", self._target), ("ar", ""), ("ranlib", "")):
            program = self._folder / name
            program.write_text(f'#!/bin/sh\nexec "{tools}" -m ziglang {name} {options} "$@"\n')
            program.chmod(0o755)
        arguments = [f"-DCMAKE_AR={self._folder / 'ar'}", f"-DCMAKE_RANLIB={self._folder / 'ranlib'}"]
        if self.is_foreign:
            arguments += ["-DCMAKE_SYSTEM_NAME=Linux", f"-DCMAKE_SYSTEM_PROCESSOR={self.machine}"]
        return {
            "CC": str(self._folder / "cc"),
            "CXX": str(self._folder / "c++"),
            "SKBUILD_CMAKE_ARGS": ";".join(arguments),
            **({"_PYTHON_HOST_PLATFORM": f"linux-{self.machine}"} if self.is_foreign else {}),
        }

    @property
    def _target(self) -> str:
        return f"-target {self.triple}"


def make_tools() -> Path:
    tools = make_environment("tools", Path(sys.executable))
    run(tools, "-m", "pip", "install", "--quiet", "--requirement", ROOT / "packaging" / "requirements.txt")
    return tools


def build(tools: Path, python: Path, sdist: Path, target: Target | None, name: str) -> None:
    """Builds a wheel from the source distribution and repairs it into dist/. Without ``target``: for this system."""
    raw = WORK / "raw" / name
    shutil.rmtree(raw, ignore_errors=True)
    builder = make_environment(f"build-{name}", python)
    print(f"\n== {name}: building for {target.triple if target else 'this system'}", flush=True)
    settings = {"SKBUILD_BUILD_DIR": str(WORK / f"cmake-{name}"), **(target.environment(tools) if target else {})}
    run(builder, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", raw, sdist, **settings)
    (wheel,) = raw.glob("*.whl")
    run(tools, "-m", "auditwheel", "repair", "--wheel-dir", DIST, wheel, PATH=f"{tools.parent}:{os.environ['PATH']}")


def build_offline(pythons: dict[str, Path], sdist: Path) -> None:
    """Tests that the source distribution builds without a network, given the build tools and the system's compiler."""
    version, python = next(iter(pythons.items()))
    print(f"\n== {version}: building the source distribution without a network", flush=True)
    builder = make_environment("offline", python)
    requires = [line for line in (ROOT / "pyproject.toml").read_text().splitlines() if line.startswith("requires = ")]
    wanted = [word.strip(' "') for word in requires[0].partition("[")[2].rstrip("]").split(",")]
    run(builder, "-m", "pip", "install", "--quiet", *wanted, "cmake", "ninja")
    command = ["-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    path = f"{builder.parent}:{os.environ['PATH']}"
    run(builder, *command, "--wheel-dir", WORK / "raw" / "offline", sdist, PATH=path)


# -- testing ---------------------------------------------------------------------------------------------


def wheel_for(version: str) -> Path:
    """Returns the path of the wheel in dist/, so that pip does not take a package from an index."""
    tag = "abi3" if parsed(version) >= STABLE_ABI else "cp" + version.replace(".", "")
    (wheel,) = DIST.glob(f"*-{tag}-*_{platform.machine()}.whl")
    return wheel


def try_wheel(name: str, python: Path, wheel: Path, constraints: Iterable[str | Path] = ()) -> None:
    """Installs and tests a wheel in a fresh environment. Only its programs are on the path, so nothing is compiled."""
    stranger = make_environment(f"try-{name}", python)
    print(f"\n== {name}: installing and trying the wheel", flush=True)
    only = {"PATH": str(stranger.parent)}
    run(stranger, "-m", "pip", "install", "--quiet", "--only-binary", ":all:", wheel, *constraints, **only)
    run(stranger, ROOT / "packaging" / "smoke.py", **only)


def make_environment(name: str, python: Path) -> Path:
    """Creates a fresh virtual environment. Returns its interpreter."""
    folder = WORK / name
    subprocess.run([python, "-m", "venv", "--clear", folder], check=True)
    return folder / "bin" / "python"


def run(python: Path, *arguments: str | Path, **variables: str) -> None:
    """Runs Python with the environment's own packages only, in a folder without the checkout's modules."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "SKBUILD_BUILD_DIR")}
    subprocess.run([python, *arguments], cwd=WORK, env={**environment, **variables}, check=True)


if __name__ == "__main__":
    main()
