"""Runs Stable-Baselines3's tutorial on multiprocessing unedited, also with remuda's class in the place of its own.

The source is the notebook `3_multiprocessing.ipynb` of araffin/rl-tutorial-jnrr19, branch sb3, at the commit in
`SOURCE`. The script runs its cells up to the end of the first experiment: A2C learns for 5,000 steps on 1, 2, 4, 8 and
16 CartPoles, three times each, and the notebook measures the time of `learn`. Lines for IPython (`!pip`, `%matplotlib`)
are left out. The notebook has a `DummyVecEnv` for one env, and a `SubprocVecEnv` with start_method="fork" for more. For
remuda's turns the name `SubprocVecEnv` stands for `remuda.sb3.SubprocVecEnv`: `remuda` has a worker for each core,
`remuda-1-per-env` one for each env. `DummyVecEnv` is the notebook with that class in both places.

A turn is the whole experiment, about 40 seconds. The whole run takes a quarter of an hour.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias
from unittest import mock

from fetched import Source, cells, columns
from harness.options import parse_options
from harness.session import Session
from harness.tables import Block, conditions, table

from remuda._system.cores import usable_cores

SOURCE = Source(
    "araffin/rl-tutorial-jnrr19",
    "5e126ee02b0e174ac8da10748ccf3138db030b1d",
    "3_multiprocessing.ipynb",
    "dbbc8c06363f681dfe127e8bfa782fcc9f29fb12c83d2f229a806b05802d129a",
)
VEC_ENVS = "stable_baselines3.common.vec_env"
Experiment: TypeAlias = "dict[int, float]"
"""Training steps a second by the number of envs."""


def main() -> None:
    options = parse_options(__doc__, rounds=5, more=SOURCE.add_option)
    code = first_experiment(SOURCE.fetch(options.source))
    try:
        contenders = classes()
    except ModuleNotFoundError as error:
        sys.exit(f"{error}: install benchmarks/requirements.txt")
    session = Session(options)
    turns = {name: functools.partial(run, code, make) for name, make in contenders.items()}
    found = [rates for _, rates in session.measured(["the notebook"], lambda what: session.rounds(what, turns))]
    session.publish("published/sb3_multiprocessing", markdown(found, session), found)


def classes() -> dict[str, Callable[..., Any]]:
    """Returns what stands for the name `SubprocVecEnv` in the notebook, by contender."""
    sb3, ours = importlib.import_module(VEC_ENVS), importlib.import_module("remuda.sb3")
    return {
        "SubprocVecEnv": sb3.SubprocVecEnv,
        "DummyVecEnv": lambda env_fns, start_method: sb3.DummyVecEnv(env_fns),
        "remuda-1-per-env": ours.SubprocVecEnv,
        "remuda": lambda env_fns, **options: ours.SubprocVecEnv(
            env_fns, num_workers=min(usable_cores(), len(env_fns)), **options
        ),
    }


def first_experiment(notebook: Path) -> str:
    """Returns the code of a notebook up to the first cell that fills ``training_times``, that cell included."""
    cells_of_code = (cell for cell in json.loads(notebook.read_text())["cells"] if cell["cell_type"] == "code")
    lines: list[str] = []
    for cell in cells_of_code:
        lines += [line for line in "".join(cell["source"]).splitlines() if not line.startswith(("!", "%"))]
        if any("training_times.append" in line for line in lines):
            return "\n".join(lines)
    raise SystemExit(f"{notebook}: expected a cell that fills training_times, got none")


def run(code: str, make: Callable[..., Any]) -> Experiment:
    """Runs the experiment, with ``make`` in the place of `SubprocVecEnv`."""
    names: dict[str, Any] = {"__name__": "notebook"}
    replaced = mock.patch.object(importlib.import_module(VEC_ENVS), "SubprocVecEnv", make)
    with replaced, contextlib.redirect_stdout(sys.stderr):
        exec(code, names)
    rates = (names["TRAIN_STEPS"] / seconds for seconds in names["training_times"])
    return dict(zip(names["PROCESSES_TO_TEST"], rates, strict=True))


def markdown(found: Sequence[Mapping[str, Sequence[Experiment]]], session: Session) -> Iterator[Block]:
    for rates in found:
        sizes = list(next(iter(rates.values()))[0])
        by_size = [{name: [one[size] for one in each] for name, each in rates.items()} for size in sizes]
        rows = ([str(size), *cells(some)] for size, some in zip(sizes, by_size, strict=True))
        yield table(["envs, training steps/s", *columns(by_size[0])], rows)
        yield f"{conditions(session.options.rounds)} With one env, all are the notebook's `DummyVecEnv`."


if __name__ == "__main__":
    main()
