"""Known envs in a pool, through resets and faults, have the rows of a loop that plays each of them by hand."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import accidents
import numpy as np
import pytest
from accidents import once
from pairs import each, pairwise
from programs import kill

pytest.importorskip("pettingzoo")
pytest.importorskip("mpe2")

from mpe2 import simple_spread_v3, simple_tag_v3
from parallel_envs import Crowd
from pettingzoo.butterfly.cooperative_pong import cooperative_pong
from pettingzoo.butterfly.pistonball import pistonball
from pettingzoo.utils import BaseParallelWrapper

from remuda import FaultPolicy
from remuda.pettingzoo import vector

MODES = ("next_step", "same_step", "disabled", "background")
KINDS: dict[str, tuple[Callable[[], Any], int]] = {  # with the number of steps to make
    "simple_spread": (partial(simple_spread_v3.parallel_env, max_cycles=7), 30),
    "simple_tag": (partial(simple_tag_v3.parallel_env, max_cycles=5, continuous_actions=True), 30),  # unequal spaces
    "pistonball": (partial(pistonball.parallel_env, n_pistons=4, max_cycles=4), 10),
    "cooperative_pong": (partial(cooperative_pong.parallel_env, max_cycles=5, render_mode="rgb_array"), 12),
}


class Leaving(Crowd):
    """A Crowd whose episodes depend on their seed alone."""

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.episode = -1
        return super().reset(seed, options)


class Follower:
    """Plays an env by hand beside a slot of a pool, and compares the slot's rows. Each episode has a new env.

    It knows the seed of each episode from the infos.
    """

    def __init__(self, make: Callable[[], Any], agents: list[str]) -> None:
        self.make, self.agents, self.env = make, agents, Any
        self.there, self.numbers = list[str](), dict[str, tuple[float, bool, bool]]()
        self.obs, self.final, self.state = dict[str, Any](), dict[str, Any](), None
        self.faults = self.episodes = 0

    def step(self, actions: dict[str, Any], info: dict[str, Any], *, ends_at_once: bool) -> None:
        """Follows a row. `info`: that of the row. `ends_at_once`: whether autoreset is "same_step"."""
        old = info.get("final_info", info)
        if "fault" in old:
            self.faults += 1
            self.numbers = dict.fromkeys(self.there, (0.0, False, True))
            self.there = []  # the last observations are repeated
        elif "episode_seed" in info and "final_info" not in info:
            self.numbers = {}
        else:
            self.obs, *numbers, infos = self.env.step({agent: actions[agent] for agent in self.there})
            self.numbers = {agent: tuple(each[agent] for each in numbers) for agent in self.there}
            assert {agent: own for agent, own in old.items() if agent in self.agents} == {
                a: i for a, i in infos.items() if i
            }
            self.there, self.state = list(self.env.agents), self.env.state()
        assert bool(self.there) or "episode_seed" in info or not ends_at_once
        if "episode_seed" in info:
            self.final, self.env = self.obs, self.make()
            self.obs, _ = self.env.reset(seed=info["episode_seed"])
            self.there, self.episodes, self.state = list(self.env.agents), self.episodes + 1, self.env.state()

    def check(self, envs: Any, row: int, results: Any) -> None:
        obs, *numbers, _ = results
        self._check_obs(obs, self.obs, row)
        for agent in self.agents:
            assert tuple(each[agent][row] for each in numbers) == self.numbers.get(agent, (0, 0, 0)), agent
            assert envs.alive[agent][row] == (agent in self.there)
        if envs.state is not None:
            np.testing.assert_array_equal(envs.state[row], self.state)

    def check_final(self, envs: Any, row: int) -> None:
        self._check_obs(envs.final_obs, self.final, row)

    def _check_obs(self, obs: Any, expected: Any, row: int) -> None:
        for agent in self.agents:
            for shown, own in leaves(obs[agent], expected.get(agent)):
                np.testing.assert_array_equal(shown[row], np.zeros_like(shown[row]) if own is None else own)


KINDS["leaving"] = Leaving, 60


def leaves(shown: Any, own: Any) -> list[tuple[Any, Any]]:
    if isinstance(shown, dict):
        return [pair for key in shown for pair in leaves(shown[key], None if own is None else own[key])]
    return [(shown, own)]


def compare(make: Callable[[], Any], steps: int, accident: Any = None, kill_at: int = -1, **options: Any) -> int:
    """Plays envs in a pool and compares all rows. Returns the number of faults."""
    rng = np.random.default_rng(1)
    fragile = make if accident is None else partial(Fragile, make, accident)
    spares, mode = options.get("spares", 0), options["autoreset"]
    env_fns = [fragile, *[make] * (1 + spares)]
    with vector(env_fns, seeding="per_episode", num_workers=None, log_advice=False, **options) as envs:
        agents = list(envs.possible_agents)
        followers = [Follower(make, agents) for _ in range(2)]
        results = envs.reset(seed=7)
        for row, follower in enumerate(followers):
            follower.step({}, results[1][row], ends_at_once=False)
            follower.check(envs, row, (results[0], *[dict.fromkeys(agents, np.zeros(2))] * 3, None))
        stepped, sent = [0, 1], dict[int, dict[str, Any]]()
        for i in itertools.count():
            if i >= steps and min(follower.episodes for follower in followers) > 1:
                break
            if 0 <= kill_at <= i and 0 in stepped and followers[0].there:  # in an episode, between two steps
                kill(envs.pool, 0)
                kill_at = -1
            over = [row for row in stepped if not followers[row].there]
            if mode == "disabled" and over:
                obs, infos = envs.reset(env_ids=over)
                for row, env in enumerate(over):
                    followers[env].step({}, infos[row], ends_at_once=False)
                    followers[env]._check_obs(obs, followers[env].obs, row)
            ready = [row for row in stepped if mode != "background" or followers[row].there]
            if ready:
                actions = {agent: np.stack([draw(envs, agent, rng) for _ in ready]) for agent in agents}
                envs.send(actions, ready)
                sent.update({env: {agent: actions[agent][i] for agent in agents} for i, env in enumerate(ready)})
            results = envs.recv(order="slot") if mode != "background" else envs.recv(min_envs=1, order="slot")
            stepped = envs.env_ids.tolist()
            for row, env in enumerate(stepped):
                followers[env].step(sent[env], results[4][row], ends_at_once=mode == "same_step")
                followers[env].check(envs, row, results)
                if (
                    mode == "same_step"
                    and "final_info" in results[4][row]
                    and "fault" not in results[4][row]["final_info"]
                ):
                    followers[env].check_final(envs, row)
            if mode == "background":  # envs that are in flight are received later
                stepped = [env for env in stepped if followers[env].there]
        return sum(follower.faults for follower in followers)


def draw(envs: Any, agent: str, rng: np.random.Generator) -> Any:
    space = envs.single_action_space(agent)
    space.seed(int(rng.integers(2**31)))
    return space.sample()


class Fragile(BaseParallelWrapper):  # type: ignore[misc, type-arg]
    """A parallel env with an accident in its steps."""

    def __init__(self, make: Callable[[], Any], accident: Callable[[Any], None]) -> None:
        super().__init__(make())
        self.accident = accident

    def step(self, actions: Any) -> Any:
        self.accident(self)
        return super().step(actions)


@pytest.mark.parametrize(
    ("kind", "mode", "backend"),
    [
        *(("leaving", *way) for way in zip(MODES, ("process", "thread", "serial", "process"), strict=True)),
        *zip(list(KINDS)[:4], MODES, ["process"] * 4, strict=True),
    ],
)
def test_rows_are_those_of_a_loop(kind: str, mode: Any, backend: Any) -> None:
    assert compare(*KINDS[kind], autoreset=mode, backend=backend, state=kind == "leaving") == 0


@each(
    mode__options=[("same_step", {"spares": 2}), ("next_step", {"spares": 2}), ("next_step", {"resets_ahead": True})],
    kind=["simple_tag", "leaving"],
)
def test_rows_are_those_of_a_loop_with_resets_in_advance(kind: str, mode: Any, options: Any) -> None:
    assert compare(*KINDS[kind], autoreset=mode, **options) == 0


@pairwise(mode=MODES, accident=[accidents.leave, accidents.raise_value_error, None], kind=["simple_spread", "leaving"])
def test_rows_are_those_of_a_loop_through_faults(kind: str, accident: Any, mode: Any, tmp_path: Path) -> None:
    accident = None if accident is None else once(tmp_path / "once", accident, skip=4)
    faults = FaultPolicy("restart", backoff=0)
    kill_at = 11 if accident is None else -1
    assert compare(*KINDS[kind], accident, kill_at, autoreset=mode, faults=faults, state=True) == 1


def live(kills: tuple[int, ...]) -> list[Any]:
    """Returns the observations and rewards of two envs. `kills`: the steps before which a worker is killed."""
    rows, actions = list[Any](), np.random.default_rng(0)
    policy = FaultPolicy("resume", max_restarts=1000, backoff=0)
    with vector([simple_spread_v3.parallel_env] * 2, num_workers=None, faults=policy) as envs:
        envs.reset(seed=0)
        for step in range(60):
            if step in kills:
                kill(envs.pool, step % 2)
            obs, rewards, *_ = envs.step({agent: actions.integers(0, 5, 2) for agent in envs.possible_agents})
            rows.append([{agent: of[agent].tolist() for agent in of} for of in (obs, rewards)])
            envs.agent_returns()
        assert envs.pool.stats().restarts == len(kills)
    return rows


def test_resumed_episodes_have_the_same_rows_also_if_they_began_without_a_seed() -> None:
    assert live((5, 30, 41)) == live(())
