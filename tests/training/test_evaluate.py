"""remuda.evaluate plays the first episodes to start, the same for any number of workers and despite faults.

remuda.evaluate_async evaluates a copy of the policy in a thread, while the program continues.
"""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from accidents import once, raise_value_error
from gymnasium import spaces
from pool_envs import CountingEnv, counting

import remuda
from remuda import EnvError, FaultPolicy, Pool, RestartLimitError, StateError, evaluate, evaluate_async


class Lottery(gymnasium.Env[Any, Any]):
    """The seed decides the length of the episode, and each step's reward is that length: long episodes return more.

    With a `length`, each episode has this length, and the rewards are the actions.
    """

    observation_space = spaces.Box(0, 100, (1,), np.float64)
    action_space = spaces.Discrete(2)

    def __init__(self, length: int | None = None) -> None:
        self._given = length

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.length = self._given or int(self.np_random.choice([1, 20]))
        self.steps = 0
        return np.array([self.length], float), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        over = self.steps == self.length
        info = {"is_success": self.length > 1} if over else {}
        reward = float(action if self._given else self.length)
        return np.array([self.np_random.random()]), reward, over, False, info


class Failing(Lottery):
    """Kills its worker in the fourth step of each episode, ``deaths`` times, or in a reset with the option "deaths"."""

    def __init__(self, folder: Path, deaths: int = 0, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._folder, self._deaths = folder, deaths

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self._died, self._options = self._folder / f"died-{seed}", options
        self._die_up_to((options or {}).get("deaths", 0))
        return super().reset(seed=seed)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self.steps == 3:
            self._die_up_to(self._deaths)
        *results, info = super().step(action)
        return *results, info | {"options": self._options}

    def _die_up_to(self, deaths: int) -> None:
        before = self._died.stat().st_size if self._died.exists() else 0
        if before < deaths:
            self._died.write_bytes(b"x" * (before + 1))
            os.kill(os.getpid(), signal.SIGKILL)


class Letters(CountingEnv):
    """Has observations and actions with several leaves. Some leaves have no column."""

    def __init__(self, tag: int, length: int) -> None:
        super().__init__(tag, length)
        self.observation_space = spaces.Dict({"count": spaces.Discrete(100), "text": spaces.Text(5)})
        self.action_space = spaces.Tuple((spaces.Text(5), spaces.MultiDiscrete([9, 9])))

    def observe(self) -> Any:
        return {"count": self.steps * 10 + self.tag, "text": "abcdefgh"[self.steps : self.steps + 2]}

    def step(self, action: Any) -> Any:
        assert action[0] == self.observe()["text"] and action[1].tolist() == [self.steps, self.tag]
        return super().step(self.steps)


def never(obs: Any) -> Any:
    return np.zeros(len(obs), int)


def seed_of(seed: int, episode: int) -> int:
    return int(np.random.SeedSequence(seed, spawn_key=(episode,)).generate_state(1)[0]) & 0x7FFFFFFF


def alone(episode: int, seed: int = 3) -> tuple[float, int]:
    """Returns the return and length of an episode. The length is also the reward of each step."""
    env = Lottery()
    env.reset(seed=seed_of(seed, episode))
    return env.length**2, env.length


@pytest.mark.parametrize(("num_workers", "episodes"), [(1, 23), (2, 23), (5, 23), (5, 2)])
def test_each_episode_is_determined_by_its_seed(num_workers: int, episodes: int) -> None:
    result = evaluate(never, [Lottery] * 5, episodes=episodes, seed=3, num_workers=num_workers)
    assert list(zip(result.returns, result.lengths, strict=True)) == [alone(episode) for episode in range(episodes)]
    assert result.seeds.tolist() == [seed_of(3, episode) for episode in range(episodes)]
    assert result.env_ids.tolist() == [episode % 5 for episode in range(episodes)]
    assert [info["is_success"] for info in result.infos] == (result.returns > 1).tolist()
    assert result.terminated.all() and len(result) == episodes and result.seed == 3


@pytest.mark.parametrize("autoreset", ["next_step", "same_step", "disabled"])
def test_an_existing_pool_plays_the_same_and_stays_open(autoreset: Any) -> None:
    expected = evaluate(never, [Lottery] * 3, episodes=10, seed=3, backend="serial")
    with Pool([Lottery] * 3, backend="serial", autoreset=autoreset) as pool:
        for episodes in (10, 2, 10):
            result = evaluate(never, pool, episodes=episodes, seed=3)
            assert result.returns.tolist() == expected.returns[:episodes].tolist()
            assert result.infos == expected.infos[:episodes]
        with pytest.raises(TypeError, match=r"expected no options for a pool that there is already, got \['faults'\]"):
            evaluate(never, pool, episodes=1, faults="restart")
        assert len(pool.reset(seed=0)) == 3


class OwnKeys(Lottery):
    """Has infos under keys that remuda also writes. Raises in a second step, once over all envs with this `mark`."""

    def __init__(self, mark: Path, fault: Any) -> None:
        super().__init__(length=3)
        self._fail, self._fault = once(mark, raise_value_error, lambda env: env.steps == 2), fault

    def step(self, action: Any) -> Any:
        *results, info = super().step(action)
        self._fail(self)
        return *results, info | {"fault": self._fault, "final_info": 0.5}


@pytest.mark.parametrize("fault", [False, "valve 3", None])
@pytest.mark.parametrize("autoreset", ["next_step", "same_step", "disabled"])
def test_keys_of_an_env_that_remuda_also_writes_are_the_envs_own(autoreset: Any, fault: Any, tmp_path: Path) -> None:
    options: Any = {"faults": FaultPolicy("restart", backoff=0), "backend": "serial", "autoreset": autoreset}
    fns = [lambda: OwnKeys(tmp_path / "mark", fault)] * 2
    result = evaluate(never, fns, episodes=4, seed=3, success="is_success", **options)
    assert result.infos == ({"is_success": True, "fault": fault, "final_info": 0.5},) * 4
    assert result.success_rate == 1 and result.lengths.tolist() == [3] * 4
    assert [fault.kind for fault in result.faults] == ["exception"]


def test_leaves_of_every_kind_reach_the_policy_with_a_row_for_each_env() -> None:
    shapes = set()

    def echo(obs: Any) -> Any:
        shapes.add((len(obs["count"]), len(obs["text"])))
        return tuple(obs["text"]), np.stack([obs["count"] // 10, obs["count"] % 10], axis=1)

    lengths = [3, 1, 5, 2]
    fns = [partial(Letters, env, length) for env, length in enumerate(lengths)]
    result = evaluate(echo, fns, episodes=7, backend="serial")
    assert shapes == {(4, 4)}
    assert result.lengths.tolist() == [*lengths, *lengths[:3]]


@pytest.mark.parametrize("autoreset", ["next_step", "same_step", "disabled"])
def test_an_episode_that_a_fault_cut_off_is_played_again(autoreset: Any, tmp_path: Path) -> None:
    expected = evaluate(never, [Lottery] * 3, episodes=9, seed=3, backend="serial")
    fns = [lambda: Failing(tmp_path, deaths=1)] * 3
    options: Any = {"faults": FaultPolicy("restart", backoff=0), "autoreset": autoreset, "num_workers": 2}
    result = evaluate(never, fns, episodes=9, seed=3, success="is_success", **options)
    assert result.returns.tolist() == expected.returns.tolist() and result.lengths.tolist() == expected.lengths.tolist()
    assert result.successes is not None and result.successes.tolist() == (result.returns > 1).tolist()
    assert len(result.faults) >= 2 and {fault.kind for fault in result.faults} == {"death"}
    assert f"{len(result.faults)} played again" in repr(result)


ENDLESS = FaultPolicy("restart", backoff=0, max_restarts=1000)


def test_deaths_caused_by_another_env_do_not_count_against_an_episode(tmp_path: Path) -> None:
    fns = [lambda: Failing(tmp_path, deaths=2, length=5), lambda: Lottery(length=20)]
    result = evaluate(never, fns, episodes=6, seed=3, num_workers=1, faults=ENDLESS)
    assert result.lengths.tolist() == [5, 20] * 3
    cut_off = [fault for fault in result.faults if fault.env_id == 1]
    assert len(cut_off) > 3 and all(fault.shared for fault in cut_off)


def test_the_error_names_the_episode_and_its_own_faults_alone(tmp_path: Path) -> None:
    fns = [lambda: Lottery(length=20), lambda: Failing(tmp_path, deaths=3, length=5)]
    with pytest.raises(RestartLimitError, match=r"the playing of one episode") as raised:
        evaluate(never, fns, episodes=6, seed=3, num_workers=1, faults=ENDLESS)
    assert f"here episode 1, which env 1 plays from seed {seed_of(3, 1)})" in str(raised.value)
    assert [(fault.env_id, fault.shared) for fault in raised.value.faults] == [(1, False)] * 3


def test_the_drawn_seeds_repeat_the_episodes_in_any_order() -> None:
    first = evaluate(never, [Lottery] * 2, episodes=8, backend="serial")
    again = evaluate(never, [Lottery] * 2, episodes=8, seed=first.seed, backend="serial")
    assert again.returns.tolist() == first.returns.tolist() and again.seeds.tolist() == first.seeds.tolist()
    turned = evaluate(never, [Lottery] * 3, episodes=8, seeds=first.seeds[::-1].tolist(), backend="serial")
    assert turned.returns.tolist() == first.returns[::-1].tolist()


def test_the_interval_holds_the_mean_and_narrows_with_less_confidence() -> None:
    result = evaluate(never, [Lottery] * 4, episodes=40, seed=3, backend="serial")
    low, high = result.interval()
    assert result.returns.min() < low < result.mean < high < result.returns.max()
    assert low < result.interval(0.5)[0] < result.mean < result.interval(0.5)[1] < high
    standard_error = result.std / np.sqrt(40)
    assert high - low == pytest.approx(2 * 1.96 * standard_error, rel=0.1)
    with pytest.raises(ValueError, match="between 0 and 1"):
        result.interval(95)
    assert result.successes is None
    with pytest.raises(StateError, match="give remuda.evaluate"):
        _ = result.success_rate


@pytest.mark.parametrize("success", ["is_success", lambda info: np.array([info["is_success"]])])
def test_successes_have_a_rate_and_an_interval(success: Any) -> None:
    result = evaluate(never, [Lottery] * 3, episodes=20, seed=3, backend="serial", success=success)
    assert result.successes is not None and result.successes.tolist() == (result.returns > 1).tolist()
    assert result.success_rate == result.successes.mean()
    low, high = result.success_interval()
    with pytest.raises(ValueError, match="expected confidence to be between 0 and 1"):
        result.success_interval(1)
    assert 0 < low < result.success_interval(0.5)[0] < result.success_rate < high < 1
    assert f"success {100 * result.success_rate:.1f} % (95 %: {100 * low:.1f} to {100 * high:.1f})" in repr(result)


@pytest.mark.parametrize("autoreset", ["next_step", "same_step", "disabled"])
def test_episodes_have_the_given_seeds_and_options(autoreset: Any, tmp_path: Path) -> None:
    seeds, options = np.array([5, 9, 5, 2, 9]), [None, {"level": 1}, {"level": 2}, None, {"level": 4}]
    fns = [lambda: Failing(tmp_path, length=2)] * 2
    with Pool(fns, backend="serial", autoreset=autoreset) as pool:
        pool.set_reset_options({"level": 0})
        result = evaluate(never, pool, episodes=5, seeds=seeds, reset_options=options)
    assert result.seeds.tolist() == seeds.tolist()
    assert [info["options"] for info in result.infos] == [one or {"level": 0} for one in options]


@pytest.mark.parametrize("num_workers", [1, 2])
def test_an_episode_whose_reset_failed_is_begun_again(num_workers: int, tmp_path: Path) -> None:
    fns, options = [lambda: Failing(tmp_path, length=2)] * 2, [{"deaths": 2}, None, None, {"deaths": 1}]
    # with one worker, a neighbour's step is cut off
    faults = FaultPolicy("restart", resets="report", backoff=0, max_restarts=5 if num_workers == 1 else 0)
    arguments: Any = {"reset_options": options, "num_workers": num_workers, "faults": faults}
    result = evaluate(never, fns, episodes=4, seeds=range(4), **arguments)
    assert result.lengths.tolist() == [2] * 4
    assert [fault.operation for fault in result.faults if not fault.shared] == ["reset"] * 3


@pytest.mark.parametrize(
    ("returns", "text"),
    [
        (np.linspace(30, 54.64, 100), r"42\.32 \(95 %: 40\.\d\d to 43\.\d\d\)"),
        (np.linspace(-4000, 3000, 100), r"-500 \(95 %: -\d+ to -\d+\)"),
        (np.linspace(0, 1e-4, 100), r"0\.0000500 \(95 %: 0\.00004\d\d to 0\.00005\d\d\)"),
        (np.array([3.5]), r"3\.5"),
        (np.full(7, 0.1), r"0\.1 \(95 %: 0\.1 to 0\.1\)"),
        (np.array([1.0, np.nan]), r"nan \(95 %: nan to nan\)"),
        (np.stack([np.arange(9.0), np.zeros(9)], 1), r"\[4 0\] \(95 %: \[.* 0\] to \[.* 0\]\)"),
    ],
)
def test_a_mean_has_as_many_decimals_as_its_interval(returns: Any, text: str) -> None:
    n = len(returns)
    episodes = np.ones(n, np.int64)
    result = remuda.Evaluation(0, returns, episodes, np.ones(n, bool), episodes, episodes, ({},) * n)
    assert re.fullmatch(f"<Evaluation of {n} episodes: mean return {text}, mean length 1\\.0>", repr(result))


@pytest.mark.parametrize(
    ("seconds", "is_terminal", "has_rich", "progress", "shown"),
    [
        (3.0, True, True, None, True),
        (1.0, True, True, None, False),
        (3.0, False, True, None, False),
        (3.0, True, False, None, False),
        (3.0, True, True, False, False),
        (1.0, False, True, True, True),
    ],
)
def test_the_bar_appears_by_itself_if_the_evaluation_is_slow(
    seconds: float,
    is_terminal: bool,
    has_rich: bool,
    progress: bool | None,
    shown: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Stderr(io.StringIO):
        def isatty(self) -> bool:
            return is_terminal

    stderr, times = Stderr(), iter([0.0, 0.0])
    monkeypatch.setenv("TERM", "xterm")
    for name in ("REMUDA_PROGRESS", "REMUDA_WORKER_INDEX"):
        monkeypatch.delenv(name, raising=False)
    with Pool([Lottery] * 2, backend="serial") as pool:
        monkeypatch.setattr(sys, "stderr", stderr)
        monkeypatch.setattr("remuda._progress.bar.clock", lambda: next(times, seconds))
        if not has_rich:
            monkeypatch.setattr("remuda._progress.bar.find_spec", lambda _: None)
        evaluate(never, pool, episodes=5, seed=3, progress=progress)
    assert ("5/5" in stderr.getvalue()) is shown


def test_envs_that_render_no_pictures_are_refused() -> None:
    with pytest.raises(ValueError, match="expected envs with render_mode='rgb_array'"):
        evaluate(never, [Lottery] * 2, episodes=2, video_folder="x", backend="thread")


SYNCED = gymnasium.make_vec("CartPole-v1", 2, "sync")


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"envs": Lottery}, TypeError, r"a remuda.Pool, or a sequence of functions .* write \[make_env\] \* 8"),
        ({"envs": "CartPole-v1"}, TypeError, r"envs to be .* call remuda.make_vec\('CartPole-v1', num_envs=8\)"),
        ({"envs": SYNCED}, TypeError, r"expected envs to be .*SyncVectorEnv.*; write \[make_env\]"),
        ({"envs": None}, TypeError, "expected envs to be a remuda.Pool, or .* got None"),
        ({"policy": None}, TypeError, "expected policy to be a function of observations .* got None"),
        ({"episodes": "2"}, TypeError, "expected episodes to be an int from 1 up, got '2'"),
        ({"episodes": 0}, ValueError, "expected episodes to be an int from 1 up, got 0"),
        ({"seed": -1}, ValueError, "expected seed to be an int from 0 up, or None, got -1"),
        ({"seeds": 3}, TypeError, "expected seeds to be a list with one entry for each episode, got 3"),
        ({"seeds": [3]}, ValueError, "expected seeds to have an entry for each of 2 episodes, got 1"),
        ({"seeds": [3, -1]}, ValueError, r"expected seeds\[1\] to be an int from 0 to .*, got -1"),
        ({"reset_options": {"level": 1}}, TypeError, "expected reset_options to be a list with one entry for each"),
        ({"reset_options": [None, 3]}, TypeError, r"expected reset_options\[1\] to be a dict or None, got 3"),
        ({"success": 3}, TypeError, "expected success to be a key of infos or a function of an info, got 3"),
        ({"video_episodes": 0}, TypeError, r"expected video_episodes to be .* from 0 to 1, got 0; write \[0\]"),
        ({"video_folder": "videos", "video_episodes": [2]}, ValueError, r"from 0 to 1, got \[2\]"),
        ({"video_folder": "file"}, NotADirectoryError, "expected video_folder to be a folder, .* got the file"),
        ({"progress": "yes"}, TypeError, "expected progress to be True, False or None, got 'yes'"),
        ({"spares": 1}, ValueError, "expected a pool without spares"),
        ({"autoreset": "background"}, ValueError, "expected a pool without autoreset="),
        ({"seeding": "per_episode"}, ValueError, "expected a pool without seeding="),
        ({"vector_size": 2}, ValueError, "expected a pool without vector_size"),
        ({"video_episode": [0]}, TypeError, r"evaluate\(\) got .* 'video_episode'; did you mean video_episodes=\?"),
        ({"step_timeout": 5}, TypeError, r"evaluate\(\) got .*; did you mean faults=FaultPolicy\(step_timeout=...\)\?"),
    ],
)
def test_invalid_arguments_are_refused_before_anything_is_built(
    arguments: dict[str, Any], error: type[Exception], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    envs = [(tmp_path / "built").touch] * 2
    call = {"policy": never, "envs": envs, "episodes": 2, "backend": "thread", **arguments}
    with pytest.raises(error, match=message):
        evaluate(**call)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


class Remembering:
    """A policy that acts at random and records the number of steps that its state has counted."""

    def __init__(self) -> None:
        self.seen = list[tuple[int, int]]()

    def initial_state(self, k: int) -> Any:
        return np.zeros(k, np.int64)

    def act(self, obs: Any, context: remuda.PolicyContext) -> Any:
        self.seen += zip(context.env_ids.tolist(), context.state.tolist(), strict=True)
        context.state = context.state + 1
        return context.rng.integers(2, size=len(obs))


def test_a_policy_with_a_state_and_random_numbers_is_evaluated() -> None:
    results = []
    for workers in (1, 2):
        policy = Remembering()
        results.append(
            evaluate(policy, [lambda: Lottery(length=3)] * 2, episodes=6, seed=5, num_workers=workers).returns.tolist()
        )
        assert [steps for env, steps in policy.seen if env == 1] == [0, 1, 2] * 3
    assert results[0] == results[1] and len(set(results[0])) > 1


class Casting:
    """A policy whose states have another dtype than its initial states."""

    def initial_state(self, k: int) -> Any:
        return np.zeros(k, np.int64)

    def act(self, obs: Any, context: remuda.PolicyContext) -> Any:
        context.state = context.state + 0.5
        return np.zeros(len(obs), int)


@pytest.mark.parametrize("num_envs", [1, 2])
def test_states_of_another_dtype_are_refused(num_envs: int) -> None:
    with pytest.raises(TypeError, match=r"expected context.state .* of initial_state, .*'int64'.*, got .*'float64'"):
        evaluate(Casting(), [Lottery] * num_envs, episodes=4, backend="serial")


class Joining(Remembering):
    """A policy that returns one row of states for all envs."""

    def act(self, obs: Any, context: remuda.PolicyContext) -> Any:
        context.state = context.state[:1]
        return np.zeros(len(obs), int)


@pytest.mark.parametrize("min_envs", [2, 3])
def test_states_have_a_row_for_each_env(min_envs: int) -> None:
    task = remuda.Task("lottery", Lottery, success=lambda _: True)
    with pytest.raises(
        ValueError, match=r"expected context.state to have [23] rows, one for each env of the call, got 1"
    ):
        remuda.evaluate_tasks(Joining(), [task], episodes=3, num_envs=3, min_envs=min_envs, backend="serial")


class Nested(Lottery):
    observation_space = spaces.Dict({"a": Lottery.observation_space, "text": spaces.Text(9)})

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        obs, info = super().reset(seed=seed, options=options)
        return {"a": obs, "text": str(seed)}, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        obs, *rest = super().step(action)
        return {"a": obs, "text": str(self.steps)}, *rest


def test_a_policy_may_change_the_dict_of_its_observations() -> None:
    seen = list[Any]()

    def changing(obs: dict[str, Any]) -> Any:
        seen.append((obs["a"].copy(), obs.pop("text")))
        return np.zeros(len(obs.pop("a")), int)

    def reading(obs: dict[str, Any]) -> Any:
        seen.append((obs["a"].copy(), obs["text"]))
        return np.zeros(len(obs["a"]), int)

    run = partial(evaluate, envs=[Nested] * 3, episodes=7, seed=0, backend="serial")
    assert run(changing).returns.tolist() == run(reading).returns.tolist()
    half = len(seen) // 2
    assert repr(seen[:half]) == repr(seen[half:])


def test_an_action_that_does_not_fit_is_refused_alike_in_all_rounds() -> None:
    rounds = list[int]()

    def wrong_at_last(obs: Any) -> Any:
        rounds.append(len(obs))
        return np.zeros((len(obs), 5 if len(rounds) > 2 else 1), int)

    in_step, one_is_reset = [Lottery] * 2, [lambda: Lottery(length=1), Lottery]
    for envs in (in_step, one_is_reset):
        rounds.clear()
        with pytest.raises(remuda.InvalidActionError, match=r"expected an array of shape \(2,\)"):
            evaluate(wrong_at_last, envs, episodes=50, backend="serial")


# -- in a thread -----------------------------------------------------------------------------------------------


class Gated:
    """A policy that waits for `gate` before each action. The actions are `action`. Copies have the same gate."""

    def __init__(self, gate: threading.Event, action: int) -> None:
        self.gate, self.action = gate, action

    def __deepcopy__(self, _: Any) -> Gated:
        return Gated(self.gate, self.action)

    def act(self, obs: Any) -> Any:
        assert self.gate.wait(60)
        return np.full(len(obs), self.action)


def test_a_copy_of_the_policy_is_evaluated_while_the_program_continues() -> None:
    policy = Gated(threading.Event(), 1)
    with Pool(counting(2, 3), num_workers=1) as training:
        evaluation = evaluate_async(policy, counting(2, 3), episodes=4, seed=0, num_workers=1)
        policy.action = 2
        training.reset()
        training.step([1, 1])
        assert evaluation.running() and not evaluation.done()
        policy.gate.set()
        result = evaluation.result(60)
    assert result.returns.tolist() == [3, 3, 3, 3]
    policy.action = 1
    assert (
        result.seeds.tolist() == evaluate(policy, counting(2, 3), episodes=4, seed=0, num_workers=None).seeds.tolist()
    )


def test_seeds_options_and_successes_are_those_of_evaluate() -> None:
    def policy(obs: Any) -> Any:
        return np.ones(len(obs), int)

    arguments: Any = {"episodes": 2, "seeds": [4, 5], "reset_options": [None, {"level": 1}], "success": lambda _: True}
    result = evaluate_async(policy, counting(2, 3), backend="serial", **arguments).result(60)
    assert result.seeds.tolist() == [4, 5] and result.success_rate == 1
    with pytest.raises(ValueError, match="expected seeds to have an entry for each of 2 episodes, got 1"):
        evaluate_async(policy, counting(2, 3), episodes=2, seeds=[4])


def test_torch_modules_are_copied() -> None:
    torch = pytest.importorskip("torch")
    gate = threading.Event()

    class Constant(torch.nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.action = torch.nn.Parameter(torch.tensor(1.0))

        def forward(self, obs: Any) -> Any:
            assert gate.wait(60)
            return self.action.long().expand(len(obs))

        def ask(self, obs: Any) -> Any:
            return self.forward(obs).numpy()

    module = Constant()
    policies = [module, module.ask, partial(Constant.ask, module)]
    evaluations = [evaluate_async(one, counting(1, 3), episodes=1, backend="serial") for one in policies]
    with torch.no_grad():
        module.action.fill_(5)
    gate.set()
    assert [one.result(60).mean for one in evaluations] == [3, 3, 3]
    assert evaluate(module, counting(1, 3), episodes=1, num_workers=None).mean == 15


def test_a_pool_serves_one_evaluation_after_another() -> None:
    policy = Gated(threading.Event(), 1)
    with Pool(counting(2, 3), num_workers=1) as pool:
        first = evaluate_async(policy, pool, episodes=2)
        with pytest.raises(StateError, match=r"no other evaluation uses, got one in use: wait for its result\(\)"):
            evaluate_async(policy, pool, episodes=2)
        policy.gate.set()
        first.result(60)
        assert evaluate_async(policy, pool, episodes=3).result(60).returns.tolist() == [3, 3, 3]


def test_errors() -> None:
    with pytest.raises(ValueError, match="episodes"):
        evaluate_async(np.sign, counting(1), episodes=0)
    with pytest.raises(TypeError, match="expected policy to be a function"):
        evaluate_async(None, counting(1), episodes=1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"expected a policy that copy.deepcopy can copy, got partial \(.*pickle"):
        evaluate_async(partial(np.sign, threading.Lock()), counting(1), episodes=1)
    assert isinstance(evaluate_async(lambda obs: 1 / 0, counting(1), episodes=1).exception(60), ZeroDivisionError)
    broken = evaluate_async(lambda obs: [0], [BrokenEnv], episodes=1).exception(60)
    assert isinstance(broken, EnvError)


class BrokenEnv:
    def __init__(self) -> None:
        raise ValueError("broken")


def test_a_program_may_end_before_its_evaluation() -> None:
    program = """
import threading, numpy as np, remuda, gymnasium
acting, never = threading.Event(), threading.Event()
def policy(obs):
    acting.set()
    never.wait()
if __name__ == "__main__":
    remuda.evaluate_async(policy, [lambda: gymnasium.make("CartPole-v1")] * 2, episodes=2)
    assert acting.wait(60)
    print("ends")
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert (run.returncode, run.stdout) == (0, "ends\n"), run.stderr
    assert not run.stderr
