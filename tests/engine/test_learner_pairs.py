"""The second table of docs/incompatible-options.md: rollouts, columns, states and replacement with all features."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from remuda import FaultPolicy, Part, Pool

PAGE = Path(__file__).resolve().parents[2] / "docs" / "incompatible-options.md"


class Numbered(gymnasium.Env[Any, Any]):
    """An env that observes its number and the steps of its episode."""

    observation_space: spaces.Space[Any] = spaces.Box(-100, 100, (2,), np.int64)
    action_space = spaces.Discrete(10)

    def __init__(self, number: int = 0) -> None:
        self.number, self.steps = number, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self.seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return self.seen(), float(self.steps), False, False, {}

    def seen(self) -> Any:
        return np.array([self.number, self.steps])

    def get_state(self) -> Any:
        return self.steps

    def set_state(self, state: Any) -> None:
        self.steps = state


class Worded(Numbered):
    """A Numbered env that observes text."""

    observation_space = spaces.Text(10, charset="0123456789 ")

    def seen(self) -> Any:
        return f"{self.number} {self.steps}"


def vectors(first: int) -> Any:
    return gymnasium.vector.SyncVectorEnv([partial(Numbered, first + i) for i in range(2)])


def steps_of(env: Any) -> Any:
    """A function for `extras`: the steps of the env's episode."""
    return np.array([each.unwrapped.steps for each in env.envs]) if hasattr(env, "envs") else env.unwrapped.steps


ONE_EACH: dict[str, Any] = {"num_workers": None}
OPTIONS: dict[str, dict[str, Any]] = {
    '`autoreset="next_step"`': {"autoreset": "next_step"},
    '`autoreset="same_step"`': {"autoreset": "same_step"},
    '`autoreset="disabled"`': {"autoreset": "disabled"},
    '`autoreset="background"`': {"autoreset": "background", **ONE_EACH},
    "`spares`": {"spares": 1, **ONE_EACH},
    "`resets_ahead`": {"resets_ahead": True, **ONE_EACH},
    "`vector_size`": {"vector_size": 2},
    "`split`": {},
    "`renew_every`": {"faults": FaultPolicy("restart", renew_every=50), **ONE_EACH},
    "restarts": {"faults": "restart"},
    "`max_concurrency`": {"max_concurrency": 1},
    "per-episode seeds": {"seeding": "per_episode"},
    "`crash_dir`": {"crash_dir": "records"},
    "`lazy`": {"lazy": True},
    "shared workers": {"num_workers": 1},
    "threads": {"backend": "thread"},
    "processes": {"backend": "process"},
    "serial": {"backend": "serial"},
    "texts and graphs": {},
}


def fills_a_rollout(part: Part, make: Callable[[int], Any]) -> None:
    rollout = part.rollout(3)
    for step in rollout:
        step.act(np.ones(len(step.env_ids), int))
    assert rollout.valid.all() and rollout.obs[:, :, 1].tolist() == [[i] * part.num_envs for i in range(4)]


def computes(part: Part, make: Callable[[int], Any]) -> None:
    assert part.step(np.ones(part.num_envs, int)).extras["steps"].tolist() == [1] * part.num_envs


def takes_states(part: Part, make: Callable[[int], Any]) -> None:
    first, second = part.env_ids[:2].tolist()
    part.step([1], [first])
    batch = part.fork_state(first, [second])
    assert words(batch.obs[0])[1] == 1
    assert words(part.step([1], [second]).obs[0])[1] == 2
    assert words(part.set_state(part.get_state([first]), [first]).obs[0])[1] == 1


def replaces(part: Part, make: Callable[[int], Any]) -> None:
    width = 2 if hasattr(make(0)(), "envs") else 1
    ids = part.env_ids[:width].tolist()
    part.replace(ids, [make(50)])
    assert words(part.reset(env_ids=ids).obs[0])[0] == 50


def words(obs: Any) -> list[int]:
    """Returns the numbers in an observation."""
    return [int(word) for word in (obs.split() if isinstance(obs, str) else obs)]


FEATURES: list[Callable[[Part, Callable[[int], Any]], None]] = [fills_a_rollout, computes, takes_states, replaces]


NAMES = ("rollouts", "`extras`", "states", "`replace`")  # the features' names in the page


def refused() -> set[tuple[str, str]]:
    """Returns the pairs of a feature and an option that the page lists as incompatible."""
    rows = re.search(r"<!-- learner's pairs -->(.*?)<!-- end", PAGE.read_text(), re.DOTALL)
    assert rows is not None
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in rows[1].strip().split("\n")[2:]]
    return {
        (re.sub(r"\[(.*)\]\(.*\)", r"\1", name), other) for name, others, _ in lines for other in others.split(", ")
    }


def test_the_table_names_features_and_options() -> None:
    assert {name for name, _ in refused()} < set(NAMES)
    assert {other for _, other in refused()} < set(OPTIONS)


@pytest.mark.parametrize("feature", FEATURES, ids=lambda feature: feature.__name__)
@pytest.mark.parametrize("other", OPTIONS)
def test_a_pair_works_or_is_refused_as_documented(other: str, feature: Any, tmp_path: Path) -> None:
    goes = (NAMES[FEATURES.index(feature)], other) not in refused()
    options = {"num_workers": 2, "backend": "serial", **OPTIONS[other]}
    if "crash_dir" in options:
        options["crash_dir"] = tmp_path
    if feature is computes:
        options["extras"] = {"steps": (steps_of, ((), np.int64))}
    width, envs = options.get("vector_size", 1), 5 if "spares" in options else 4
    kind = Worded if other == "texts and graphs" else Numbered
    make: Callable[[int], Any] = lambda i: partial(vectors if width == 2 else kind, i)  # noqa: E731
    with Pool([make(i) for i in range(0, envs, width)], **options) as pool:
        part: Part = pool.split(2)[0] if other == "`split`" else pool
        part.reset(seed=1)
        if goes:
            feature(part, make)
        else:
            with pytest.raises(ValueError, match="expected"):
                feature(part, make)
            pool.reset() if part is pool else part.reset()  # nothing was sent
