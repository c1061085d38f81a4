"""remuda.evaluate_tasks plays each unit like a loop over one env, with any number of envs, faults and interruptions."""

from __future__ import annotations

import io
import json
import math
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from zlib import crc32

import accidents
import gymnasium
import numpy as np
import pytest
from drawn import nightly
from gymnasium import spaces
from task_envs import Closing, DeadlyToLoad, Flat, Mortal, Walk, kills

import remuda
from remuda import FaultPolicy, Task, TaskResults, evaluate_tasks

EPISODES = 13
INIT_STATES = [0.5, -2.0, -7.0]
AT_ONCE = FaultPolicy(backoff=0.0)
serially = partial(evaluate_tasks, num_envs=1, backend="serial")


def tasks_of(*makes: Any) -> list[Task]:
    """Returns tasks that differ in their envs, and in all that a task can have."""
    return [
        Task("plain", makes[0]),
        Task("from a state", makes[1 % len(makes)], init_states=INIT_STATES, instruction="walk"),
        Task("short", makes[2 % len(makes)], max_steps=3, success=lambda info: "is_success" in info),
    ]


WALKS = tasks_of(Walk, partial(Walk, 2.0), partial(Walk, -1.0))


class Recurrent:
    """A policy with a state and noise of its own for each episode."""

    calls = 0

    def __init__(self, interrupt_at: int | None = None) -> None:
        self._interrupt_at = interrupt_at

    def initial_state(self, count: int) -> Any:
        return np.zeros((count, 2))

    def act(self, obs: Any, context: remuda.PolicyContext) -> Any:
        self.calls += 1
        if self.calls == self._interrupt_at:
            raise KeyboardInterrupt
        noise = np.array([unit.rng.normal(size=2) for unit in context.units])
        context.state = 0.5 * context.state + noise + 0.01 * obs[:, :2]
        return context.state


def play_alone(task: Task, episode: int, policy: Any, seed: int = 3) -> dict[str, Any]:
    """Plays an episode in a plain loop, and returns what its row must have."""
    env = task.make()
    number = int(np.random.SeedSequence(seed, spawn_key=(episode,)).generate_state(1)[0]) & 0x7FFFFFFF
    stream = np.random.SeedSequence(seed, spawn_key=(episode, crc32(task.name.encode())))
    init_state = None if task.init_states is None else episode % len(task.init_states)
    unit = remuda.Unit(task.name, episode, number, init_state, task.instruction, np.random.default_rng(stream))
    context = remuda.PolicyContext(np.zeros(1, np.int64), np.ones(1, bool), unit.rng, units=(unit,))
    context.state = policy.initial_state(1)
    options = None if init_state is None else {"init_state": INIT_STATES[init_state]}
    (obs, info), total, steps, over, terminated = env.reset(seed=number, options=options), 0.0, 0, False, False
    while not over:
        obs, reward, terminated, truncated, info = env.step(policy.act(obs[None], context)[0])
        total, steps = total + reward, steps + 1
        over = terminated or truncated or steps == task.max_steps
    success = task.success(info) if callable(task.success) else info[task.success]
    row = {"task": task.name, "episode": episode, "seed": number, "init_state": init_state, "status": "done"}
    return row | {"success": success, "return": total, "length": steps, "terminated": terminated}


@pytest.fixture(scope="module")
def expected() -> list[dict[str, Any]]:
    return [play_alone(task, episode, Recurrent()) for task in WALKS for episode in range(EPISODES)]


def without_faults(results: TaskResults) -> list[dict[str, Any]]:
    return [{key: row[key] for key in row if key not in ("attempts", "faults")} for row in results.rows]


@pytest.mark.parametrize("num_envs", [1, 3, 5])
def test_rows_equal_those_of_a_plain_loop(num_envs: int, expected: Any, tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    options: Any = {"num_envs": num_envs, "min_envs": num_envs}
    results = evaluate_tasks(Recurrent(), WALKS, episodes=EPISODES, seed=3, results=file, label="still", **options)
    assert without_faults(results) == expected
    assert {row["attempts"] for row in results.rows} == {1}
    assert TaskResults.load(file).rows == results.rows
    assert {row["success"] for row in results["plain"].rows} == {True, False}


DEATHS = {"build": 2, "step": 1}, 3 * 2 + 38  # one of the 39 episodes ends before its second step
MANY_DEATHS = {"build": 41, "reset": 1, "step": 1}, 3 * 41 + 39 + 38


@pytest.mark.parametrize(
    ("deaths", "total"), [DEATHS, pytest.param(*MANY_DEATHS, marks=[nightly, pytest.mark.watchdog(900)])]
)
def test_kills_and_interruptions_change_nothing(deaths: Any, total: int, expected: Any, tmp_path: Path) -> None:
    folder, file = tmp_path / "kills", tmp_path / "results.jsonl"
    folder.mkdir()
    tasks = tasks_of(*(partial(Mortal, folder, str(scale), deaths, scale) for scale in (1.0, 2.0, -1.0)))
    play = partial(evaluate_tasks, tasks=tasks, episodes=EPISODES, seed=3, label="still")
    run = partial(play, results=file, num_envs=3, attempts=100, faults=AT_ONCE)
    for interrupt_at in (10, 30, 50):
        with pytest.raises(KeyboardInterrupt):
            run(Recurrent(interrupt_at))
    results = run(Recurrent())
    assert kills(folder) >= total  # an interrupted episode may begin again
    assert without_faults(results) == without_faults(TaskResults.load(file)) == expected


def chunked(obs: Any, context: remuda.PolicyContext) -> Any:
    return np.stack([np.outer([1.0, 0.5, 0.25], unit.rng.normal(size=2)) for unit in context.units])


class OneByOne:
    """Returns the actions of `chunked` one at a time, for one env."""

    def initial_state(self, count: int) -> Any:
        self._queue = list[Any]()

    def act(self, obs: Any, context: remuda.PolicyContext) -> Any:
        self._queue = self._queue or list(chunked(obs, context)[0])
        return [self._queue.pop(0)]


@pytest.mark.parametrize("backend", ["process", "thread", "serial"])
def test_chunks_of_actions_have_a_queue_for_each_env(backend: Any) -> None:
    run = partial(evaluate_tasks, chunked, WALKS[:1], episodes=9, seed=3, chunk=3, backend=backend)
    results = run(num_envs=4, min_envs=2)
    assert without_faults(results) == [play_alone(WALKS[0], episode, OneByOne()) for episode in range(9)]
    with pytest.raises(remuda.InvalidActionError, match=r"expected actions of shape \(2, 2, ...\).*got \(2, 3, 2\)"):
        run(num_envs=2, min_envs=2, chunk=2)


def test_chunks_of_actions_may_be_lists() -> None:
    run = partial(serially, tasks=WALKS[:1], episodes=3, num_envs=2, seed=3, chunk=3)
    assert run(lambda obs, context: chunked(obs, context).tolist()).rows == run(chunked).rows
    with pytest.raises(remuda.InvalidActionError, match="expected actions of shape .*got lists of different lengths"):
        run(lambda obs: [[0.0], [0.0, 0.0]])


class Counting:
    """A policy whose actions are the number of steps in its state. `fresh` returns initial states."""

    def __init__(self, fresh: Any) -> None:
        self.initial_state = fresh

    def act(self, obs: Any, context: remuda.PolicyContext) -> Any:
        context.state = context.state + 1
        return np.repeat(context.state, 2, axis=1)


def test_initial_states_are_not_written() -> None:
    zeros = np.zeros((3, 1))
    run = partial(evaluate_tasks, tasks=WALKS[:1], episodes=9, num_envs=3, backend="serial", label="counting")
    expected = run(Counting(lambda k: np.zeros((k, 1)))).rows
    for fresh in (lambda k: zeros[:k], lambda k: np.broadcast_to(zeros[0], (k, 1))):
        assert run(Counting(fresh)).rows == expected
    assert not zeros.any()


def test_a_policy_may_return_chunks_in_the_same_array_again() -> None:
    kept = np.zeros((4, 3, 2))

    def into_the_same_array(obs: Any, context: remuda.PolicyContext) -> Any:
        kept[: len(obs)] = chunked(obs, context)
        return kept[: len(obs)]

    run = partial(serially, tasks=WALKS[:1], episodes=9, num_envs=4, seed=3, chunk=3)
    assert run(into_the_same_array).rows == run(chunked).rows


def test_an_action_of_a_chunk_has_the_shape_of_the_space() -> None:
    run = partial(serially, tasks=WALKS[:1], episodes=1, chunk=2, label="wrong")
    with pytest.raises(remuda.InvalidActionError, match=r"expected an array of shape \(2,\) .* at actions, got"):
        run(lambda obs: np.zeros((len(obs), 2, 5)))


def still(obs: Any) -> Any:
    return np.zeros((len(obs), 2))


def test_without_a_label_it_is_the_name_of_the_policy_and_a_digest_of_its_weights(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")

    class Net(torch.nn.Module):  # type: ignore[misc]
        def __init__(self, weight: float) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.tensor([weight]))

        def forward(self, obs: Any) -> Any:
            return torch.zeros((len(obs), 2), dtype=torch.float64)

    play = partial(serially, tasks=WALKS, episodes=1, results=tmp_path / "a.jsonl")
    first = play(Net(1.0))
    assert first.label is not None
    assert play(Net(1.0)).rows == first.rows
    with pytest.raises(ValueError, match="expected .* with label="):
        play(Net(2.0))
    others = partial(play, results=tmp_path / "b.jsonl")
    assert others(still).label == "still"
    with pytest.raises(ValueError, match=r"label='.*lambda>', got label='still'"):
        others(lambda obs: still(obs))


def test_the_policy_is_called_for_min_envs(tmp_path: Path) -> None:
    sizes = list[int]()
    counting = lambda obs: (sizes.append(len(obs)), still(obs))[1]  # noqa: E731
    evaluate_tasks(counting, WALKS[:1], episodes=12, num_envs=4, min_envs=4, backend="thread")
    assert sizes[0] == 4 and set(sizes[:8]) == {4}  # later, fewer envs play
    run = partial(evaluate_tasks, still, WALKS, episodes=5, backend="thread")
    results = [run(num_envs=n, min_envs=m) for n, m in ((4, 4), (2, 1))]
    assert results[0].rows == results[1].rows


class Told(gymnasium.Env[Any, Any]):
    """Has leaves of all kinds in its observations, and rewards the action that all of them tell."""

    observation_space = spaces.Dict(
        {"number": spaces.Discrete(99), "pair": spaces.Tuple((spaces.Box(0, 99, (2,)), spaces.Text(2)))}
    )
    action_space = spaces.Box(0, 999, (), np.float64)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        assert seed is not None
        self._left = 10 + seed % 7
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward = float(action == 3 * self._left)
        self._left -= 1
        return self._observe(), reward, not self._left, False, {"is_success": True}

    def _observe(self) -> Any:
        return {"number": np.int64(self._left), "pair": (np.full(2, self._left, np.float32), str(self._left))}


@pytest.mark.parametrize("min_envs", [1, 2, 3])
def test_observations_may_have_any_structure(min_envs: int) -> None:
    def as_told(obs: Any) -> Any:
        numbers, (pairs, texts) = obs["number"], obs["pair"]
        assert (numbers.dtype, pairs.dtype, pairs.shape) == (np.int64, np.float32, (len(texts), 2))
        return numbers + pairs[:, 0] + np.array([float(text) for text in texts])

    results = evaluate_tasks(as_told, [Task("told", Told)], episodes=9, num_envs=3, min_envs=min_envs, backend="thread")
    assert [row["return"] for row in results.rows] == [row["length"] for row in results.rows]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists the memory of a process in /proc")
def test_an_error_that_is_kept_keeps_no_memory_of_the_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    recv, some_wait = remuda.Pool.recv, list[bool]()

    def failing(pool: remuda.Pool, *arguments: Any) -> remuda.Batch:
        if any(some_wait):
            raise KeyboardInterrupt  # while one env resets, and the observations of others wait for the policy
        batch = recv(pool, *arguments)
        some_wait.append(0 < batch.dones.sum() < len(batch))
        return batch

    monkeypatch.setattr(remuda.Pool, "recv", failing)
    with pytest.raises(KeyboardInterrupt) as kept:
        evaluate_tasks(
            lambda obs: np.zeros(len(obs["number"])), [Task("told", Told)], episodes=9, num_envs=3, min_envs=3
        )
    assert kept.tb is not None and "memfd:remuda" not in Path("/proc/self/maps").read_text()
    monkeypatch.undo()
    unknown = [Task("walk", Walk, success="no such key")]
    with pytest.raises(ValueError, match="no such key") as kept:
        evaluate_tasks(still, unknown, episodes=3, num_envs=2, min_envs=2)
    assert kept.tb is not None and "memfd:remuda" not in Path("/proc/self/maps").read_text()
    with pytest.raises(ValueError, match="no such key") as kept:
        remuda.evaluate(still, [Walk] * 2, episodes=3, success="no such key")
    assert kept.tb is not None and "memfd:remuda" not in Path("/proc/self/maps").read_text()


def fail(*_: Any) -> Any:
    raise AssertionError("this is not called")


def test_a_torn_last_line_is_cut_and_its_unit_played_again(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    run = partial(serially, still, WALKS, episodes=3, results=file, label="still")
    first = run()
    whole = file.read_bytes()
    for cut in (1, 30, len(whole) - 20):  # within the last row, and within the line of the run
        file.write_bytes(whole[:-cut])
        left = file.read_bytes().count(b"\n") - 1
        if left > 0:
            assert len(TaskResults.load(file)) == left
        assert run().rows == first.rows
        assert file.read_bytes() == whole


def test_a_file_of_another_run_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    run = partial(serially, still, episodes=2, results=file, label="still")
    run(tasks=WALKS)
    text = file.read_text()
    moved = Task("from a state", Walk, init_states=[0.5, -2.0, -7.5], instruction="walk")
    for change, expected in (
        ({"seed": 1}, "seed=1, got seed=0"),
        ({"chunk": 2}, "chunk=2, got chunk=None"),
        ({"label": "moving"}, "label='moving', got label='still'; give each run a file"),
        ({"episodes": 1}, r"at least the 2 episodes .*, got episodes=1; remuda.TaskResults.load"),
        ({"tasks": WALKS[:2]}, "with tasks="),
        (
            {"tasks": [Task("plain", Walk), replace(WALKS[1], make=Walk), Task("short", Walk, max_steps=4)]},
            "with tasks=",
        ),
        ({"tasks": [WALKS[0], moved, WALKS[2]]}, "with tasks="),
    ):
        with pytest.raises(ValueError, match=expected):
            run(**{"tasks": WALKS, **change})
    assert file.read_text() == text
    for content in (b"a model", b"a text\n", b"[1]\n", b'{"seed": 1}\n'):
        file.write_bytes(content)
        with pytest.raises(ValueError, match=r"expected .* (in|to have|in line 1 of) "):
            run(tasks=WALKS)
        assert file.read_bytes() == content
    file.write_text(text + text.splitlines(keepends=True)[1])
    for read in (partial(run, tasks=WALKS), partial(TaskResults.load, file)):
        with pytest.raises(ValueError, match=r"a second one for episode 0 of task 'plain' in line 8"):
            read()


def test_more_episodes_extend_a_file_and_a_finished_run_starts_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "sub" / "results.jsonl"
    run = partial(serially, still, WALKS, num_envs=2, results=file, label="still")
    few = run(episodes=2)
    assert not caplog.text
    more = run(episodes=5)
    assert "6 of 15 units of 'still' are in" in caplog.text and str(file) in caplog.text
    assert more.rows == serially(still, WALKS, episodes=5).rows
    assert [row for row in more.rows if row["episode"] < 2] == [*few.rows]
    loaded = TaskResults.load(file)
    assert (loaded.rows, loaded.episodes, loaded.label) == (more.rows, 5, "still")
    text = file.read_text()
    again = serially(fail, [replace(task, make=fail) for task in WALKS], episodes=5, results=file, label="still")
    assert again.rows == more.rows and file.read_text() == text


def test_units_with_faults_are_played_again_if_requested(tmp_path: Path) -> None:
    bad, good = Task("walk", accidents.raise_value_error), Task("walk", Walk)
    run = partial(serially, still, episodes=3, results=tmp_path / "a.jsonl", label="still")
    assert len(run([bad, WALKS[0]], attempts=1, faults=AT_ONCE).faulted) == 3
    assert len(run([good, WALKS[0]]).faulted) == 3
    results = run([good, WALKS[0]], retry_faulted=True)
    assert results.rows == serially(still, [good, WALKS[0]], episodes=3).rows
    assert TaskResults.load(tmp_path / "a.jsonl").rows == results.rows


def test_a_file_that_another_run_uses_is_refused(tmp_path: Path) -> None:
    run = partial(serially, tasks=WALKS, episodes=1, results=tmp_path / "a.jsonl", label="x")
    errors = list[remuda.StateError]()

    def starting_another(obs: Any) -> Any:
        with pytest.raises(remuda.StateError, match="expected a file of results that no other run uses") as raised:
            run(still)
        errors.append(raised.value)
        return still(obs)

    results = run(starting_another)
    assert errors and run(fail).rows == results.rows  # it is free again


class Clumsy(Walk):
    """Calls a function in each reset, and in each step, where a result of it replaces that of the step."""

    def __init__(self, *, reset: Any = lambda: None, step: Any = lambda _: None) -> None:
        super().__init__()
        self._in_reset, self._in_step = reset, step

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self._in_reset()
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        usual = super().step(action)
        return self._in_step(self) or usual


RaisesInReset = partial(Clumsy, reset=accidents.raise_value_error)
HangsInReset = partial(Clumsy, reset=accidents.wait_for_ever)


@pytest.mark.parametrize(
    ("act", "backend", "kind"),
    [
        (accidents.raise_value_error, "process", "exception"),
        (accidents.raise_value_error, "serial", "exception"),
        (accidents.raise_value_error, "thread", "exception"),
        (lambda _: (np.zeros(7), 0.0, False, False, {}), "process", "exception"),
        (accidents.wait_for_ever, "process", "timeout"),
    ],
)
def test_a_unit_with_a_fault_is_played_again(act: Any, backend: Any, kind: str, tmp_path: Path) -> None:
    hook = accidents.once(tmp_path / "acted", act, lambda env: env.steps == 2, skip=1)
    faults = FaultPolicy(step_timeout=1.0 if kind == "timeout" else None, backoff=0.0)
    run = partial(evaluate_tasks, still, episodes=6, num_envs=2)
    results = run([Task("walk", partial(Clumsy, step=hook))], faults=faults, backend=backend)
    assert without_faults(results) == without_faults(run([Task("walk", Walk)], backend="serial"))
    assert sorted(row["attempts"] for row in results.rows) == [1, 1, 1, 1, 1, 2]
    for row in results.rows:
        assert row["attempts"] == 1 + len(row["faults"])
        assert all(text.startswith(f"{kind} in step: ") for text in row["faults"])


class Goals(Walk):
    """Has rewards that are vectors, without a `reward_space`."""

    def __init__(self, rewards: Any, reward_space: Any = None) -> None:
        super().__init__()
        self._rewards, self.reward_space = rewards, reward_space

    def step(self, action: Any) -> Any:
        obs, _, *results = super().step(action)
        return obs, self._rewards, *results


def test_rewards_may_be_vectors_of_another_length_in_each_task() -> None:
    goals = {"array": np.array([1, 0.5], np.float32), "list": [1, 2, 3], "one": np.array([2.0]), "number": 4}
    tasks = [Task(name, partial(Goals, rewards)) for name, rewards in goals.items()]
    tasks.append(Task("declared", partial(Goals, goals["array"], spaces.Box(0, 1, (2,)))))
    results = serially(still, [*tasks, WALKS[0]], episodes=2, num_envs=2)
    assert not results.faulted
    for row in (row for row in results.rows if row["task"] != "plain"):
        expected = np.array(goals["array" if row["task"] == "declared" else row["task"]], float) * row["length"]
        assert row["return"] == (expected.item() if expected.size == 1 else expected.tolist())
    assert results["plain"].rows == serially(still, WALKS[:1], episodes=2).rows


class Chosen(Walk):
    """Has `choices` actions, and requires the last one, as a scalar."""

    def __init__(self, choices: int, nested: bool) -> None:
        super().__init__()
        self._last, space = choices - 1, spaces.Discrete(choices)
        self.action_space: Any = spaces.Dict({"b": space, "a": spaces.MultiBinary(2)}) if nested else space

    def step(self, action: Any) -> Any:
        choice = action["b"] if isinstance(action, dict) else action
        assert type(choice) is np.int64 and choice == self._last
        return super().step(np.zeros(2))


class Passing(Walk):
    """Is at its goal in the second step alone. An episode has four steps."""

    def step(self, action: Any) -> Any:
        obs, reward, *_ = super().step(action)
        return obs, reward, False, self.steps == 4, {"at_goal": self.steps == 2} if self.steps > 1 else {}


@pytest.mark.parametrize("success", ["at_goal", lambda info: info.get("at_goal", False)])
def test_a_unit_may_end_at_its_first_success(success: Any) -> None:
    run = partial(serially, still, episodes=3, num_envs=2)
    for until_success, expected in ((False, (False, 4, False)), (True, (True, 2, True))):
        results = run([Task("pass", Passing, success=success, until_success=until_success)])
        assert [(row["success"], row["length"], row["terminated"]) for row in results.rows] == [expected] * 3


@pytest.mark.parametrize("space", [spaces.MultiBinary(2), spaces.MultiDiscrete([2, 2])], ids=str)
def test_the_choices_of_actions_with_several_numbers_are_checked(space: Any) -> None:
    class Several(Walk):
        def __init__(self) -> None:
            super().__init__()
            self.action_space = space

        def step(self, action: Any) -> Any:
            assert action.tolist() == [0, 1]
            return super().step(np.zeros(2))

    def act(last: int, obs: Any) -> Any:
        return np.tile(np.array([0, last], space.dtype), (len(obs), 1))

    tasks = [Task("several", Several)]
    assert not serially(partial(act, 1), tasks, episodes=2).faulted
    with pytest.raises(remuda.InvalidActionError, match=r"expected 0 <= action <= 1 at actions\[1\], got 2"):
        serially(partial(act, 2), tasks, episodes=2)


@pytest.mark.parametrize("nested", [False, True])
def test_each_task_has_its_own_choices_in_any_order(nested: bool) -> None:
    few, many = Task("few", partial(Chosen, 3, nested)), Task("many", partial(Chosen, 7, nested))

    def last(obs: Any, context: remuda.PolicyContext) -> Any:
        choices = np.array([{"few": 2, "many": 6}[unit.task] for unit in context.units])
        return {"b": choices, "a": np.ones((len(obs), 2), np.int8)} if nested else choices

    def always_6(obs: Any) -> Any:
        return {"b": np.full(len(obs), 6), "a": np.ones((len(obs), 2), np.int8)} if nested else np.full(len(obs), 6)

    run = partial(serially, episodes=2, num_envs=2)
    for tasks in ([few, many], [many, few]):
        assert not run(last, tasks).faulted
        with pytest.raises(remuda.InvalidActionError, match=r"expected 0 <= action <= 2 at .*, got 6; .* task 'few'"):
            run(always_6, tasks)


def test_returns_that_are_no_numbers_are_json(tmp_path: Path) -> None:
    tasks = [Task(str(reward), partial(Goals, reward)) for reward in (math.nan, math.inf)]
    tasks += [Task("vector", partial(Goals, [-math.inf, 1.0]))]
    file = tmp_path / "a.jsonl"
    results = serially(still, tasks, episodes=1, results=file, label="x")
    for line in file.read_text().splitlines():
        json.loads(line, parse_constant=pytest.fail)
    loaded = TaskResults.load(file)
    assert repr([row["return"] for row in loaded.rows]) == repr([row["return"] for row in results.rows])
    assert results.rows[2]["return"] == [-math.inf, results.rows[2]["length"]]


def test_an_interrupt_says_what_is_kept(tmp_path: Path) -> None:
    run, file = partial(serially, tasks=WALKS, episodes=3), tmp_path / "a.jsonl"
    with pytest.raises(KeyboardInterrupt) as raised:
        run(Recurrent(10), results=file, label="x")
    kept = len(TaskResults.load(file))
    assert kept > 0 and str(raised.value) == f"{kept} of 9 units of 'x' are in {file}; the same command continues"
    assert len(raised.traceback) == 2 and raised.value.__suppress_context__
    with pytest.raises(KeyboardInterrupt, match="^$"):
        run(Recurrent(10))


@pytest.mark.parametrize("fault", [False, "valve 3"])
def test_an_env_may_have_the_key_fault(fault: Any) -> None:
    class Valves(Walk):
        def step(self, action: Any) -> Any:
            *results, info = super().step(action)
            return *results, info | {"fault": fault, "final_info": {}}

    run = partial(serially, still, episodes=5, num_envs=2)
    assert run([Task("walk", Valves)]).rows == run([Task("walk", Walk)]).rows


UNCLEAR = r"expected success\(info\) of episode 0 of task 'walk' .*, got 0.5"


@pytest.mark.parametrize(
    ("policy", "tasks", "error", "text"),
    [
        (still, [WALKS[0], Task("flat", Flat)], remuda.SpaceMismatchError, r"of task 'flat' .*shape \(4,\) instead"),
        (still, [WALKS[0], Task("none", lambda: None)], remuda.InvalidEnvError, "make of task 'none' .*, got None"),
        (still, [Task("walk", accidents.raise_value_error)], remuda.EnvError, "ValueError in build: broken"),
        (lambda obs, context: context.rng.random(2), WALKS, remuda.StateError, r"context.units\[i\].rng"),
        (still, [Task("short", Walk, max_steps=1)], ValueError, "episode 0 of task 'short' to have the key 'is_succ"),
        (still, [Task("walk", Walk, success=lambda _: 0.5)], ValueError, UNCLEAR),
        (still, [Task("walk", Walk, success=lambda _: 0.5, until_success=True)], ValueError, UNCLEAR),
        (still, [Task("walk", Walk, success=lambda _: 1 // 0, until_success=True)], ZeroDivisionError, "by zero"),
    ],
)
def test_mistakes_of_the_caller_are_raised_and_make_no_row(
    policy: Any, tasks: list[Task], error: type[Exception], text: str, tmp_path: Path
) -> None:
    file = tmp_path / "a.jsonl"
    with pytest.raises(error, match=text):
        evaluate_tasks(policy, tasks, episodes=2, num_envs=1, results=file, label="x")
    assert not file.exists() or len(TaskResults.load(file)[tasks[-1].name]) == 0


@pytest.mark.parametrize(
    ("arguments", "error", "expected"),
    [
        ({"tasks": []}, ValueError, "at least one task"),
        ({"tasks": [Walk]}, TypeError, "sequence of remuda.Task"),
        ({"tasks": [WALKS[0], WALKS[0]]}, ValueError, "different names"),
        ({"seed": None}, ValueError, "got None"),
        ({"min_envs": 3}, ValueError, "min_envs to be an int from 1 to 2"),
        ({"chunk": 0}, ValueError, "chunk"),
        ({"attempts": 0}, ValueError, "attempts"),
        ({"autoreset": "same_step"}, ValueError, "without autoreset="),
        ({"faults": "raise"}, ValueError, "got 'raise'"),
        ({"num_worker": 1}, TypeError, "num_workers"),
        ({"policy": 1}, TypeError, "policy"),
        ({"label": ""}, TypeError, "label to be a text"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], error: type[Exception], expected: str) -> None:
    with pytest.raises(error, match=expected):
        evaluate_tasks(**{"policy": still, "tasks": WALKS, "episodes": 1, "num_envs": 2, **arguments})


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"name": ""}, ValueError),
        ({"make": 1}, TypeError),
        ({"success": 1}, TypeError),
        ({"max_steps": 0}, ValueError),
        ({"init_states": []}, ValueError),
        ({"init_states": 5}, TypeError),
        ({"init_states": "ab"}, TypeError),
        ({"init_states": iter([1])}, TypeError),
    ],
)
def test_wrong_tasks(arguments: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match="expected "):
        Task(**{"name": "walk", "make": Walk, **arguments})


def test_videos_have_the_names_of_tasks(tmp_path: Path) -> None:
    tasks = [Task("to the left/right", partial(Walk, render_mode="rgb_array"), max_steps=2, success=lambda info: True)]
    evaluate_tasks(still, tasks, episodes=3, num_envs=2, video_folder=tmp_path / "videos", video_episodes=[0, 2])
    found = sorted(path.name for path in (tmp_path / "videos").iterdir())
    assert found == ["to-the-left-right-episode-0.mp4", "to-the-left-right-episode-2.mp4"]
    with pytest.raises(remuda.InvalidEnvError, match="render_mode='rgb_array' for videos of 'plain', got None"):
        evaluate_tasks(still, WALKS[:1], episodes=1, num_envs=1, video_folder=tmp_path / "others")
    with pytest.raises(ValueError, match=r"got 'a \(b\)' and 'a \[b\]'"):
        serially(still, [Task("a (b)", Walk), Task("a [b]", Walk)], episodes=1, video_folder=tmp_path / "none")
    assert not (tmp_path / "none").exists()


class Transparent(Walk):
    def render(self) -> Any:
        return np.zeros((16, 16, 4), np.uint8)


def test_a_picture_that_is_none_is_a_mistake_and_no_fault_of_the_episode(tmp_path: Path) -> None:
    task = Task("walk", partial(Transparent, render_mode="rgb_array"))
    with pytest.raises(remuda.InvalidEnvError, match=r"expected render\(\) to return .* got \(16, 16, 4\) and uint8"):
        serially(still, [task], episodes=2, video_folder=tmp_path)


class WithoutOptions(Walk):
    def reset(self, *, seed: int | None = None) -> tuple[Any, dict[str, Any]]:  # type: ignore[override]
        return super().reset(seed=seed)


def test_an_env_without_options_is_reset_without_them() -> None:
    results = serially(still, [Task("walk", WithoutOptions)], episodes=3)
    assert results.rows == serially(still, [Task("walk", Walk)], episodes=3).rows


def test_a_task_that_makes_no_single_env_is_refused() -> None:
    for make in (lambda: Walk, lambda: gymnasium.make_vec("CartPole-v1", num_envs=2)):
        with pytest.raises(
            remuda.InvalidEnvError, match="expected make of task 'wrong' to return a gymnasium.Env, got"
        ):
            serially(still, [Task("wrong", make)], episodes=1, attempts=1)


@pytest.mark.parametrize("backend", ["thread", "serial"])
def test_a_task_that_makes_the_same_env_again_is_refused(backend: Any) -> None:
    shared, run = Walk(), partial(evaluate_tasks, still, episodes=2, backend=backend)
    with pytest.raises(remuda.InvalidEnvError, match="expected make of task 'walk' to return an env of its own"):
        run([Task("walk", lambda: shared)], num_envs=2)
    assert len(run([Task("walk", lambda: shared)], num_envs=1)) == 2  # one after another


def test_the_number_of_workers_is_not_tried_out(caplog: pytest.LogCaptureFixture) -> None:
    run = partial(evaluate_tasks, still, WALKS[:1], episodes=2, num_envs=2, label="x")
    assert run(num_workers="auto").rows == run().rows
    assert not caplog.records


@pytest.mark.parametrize("num_envs", [1, 3])
def test_a_task_whose_reset_kills_costs_only_its_units(num_envs: int, tmp_path: Path) -> None:
    deadly = Task("deadly", partial(Mortal, tmp_path, "deadly", {"reset": 1000}))
    tasks = [WALKS[0], deadly, WALKS[2]]
    results = evaluate_tasks(still, tasks, episodes=4, num_envs=num_envs, faults=AT_ONCE)
    for row in results["deadly"].rows:
        assert (row["status"], row["attempts"], row["success"], row["return"]) == ("fault", 3, None, None)
    assert all(text.startswith("death in reset: ") for row in results.faulted for text in row["faults"])
    assert kills(tmp_path) == 12 and len(results.faulted) == 4
    alone = evaluate_tasks(still, [WALKS[0], WALKS[2]], episodes=4, num_envs=1)
    assert results["plain"].rows + results["short"].rows == alone.rows
    assert results.success_rate == alone.success_rate


@pytest.mark.parametrize(
    ("make", "backend", "fault"),
    [
        (accidents.raise_value_error, "process", "exception in "),
        (accidents.raise_value_error, "serial", "exception in "),
        (RaisesInReset, "process", "exception in "),
        (RaisesInReset, "thread", "exception in "),
        (HangsInReset, "process", "timeout in reset: "),
    ],
)
def test_a_task_that_cannot_begin_has_faults_on_each_backend(make: Any, backend: Any, fault: str) -> None:
    faults = FaultPolicy(reset_timeout=2.0 if make is HangsInReset else None, backoff=0.0)
    tasks = [Task("bad", make), WALKS[0]]
    results = evaluate_tasks(still, tasks, episodes=2, num_envs=2, attempts=2, backend=backend, faults=faults)
    assert [row["attempts"] for row in results.faulted] == [2, 2] and len(results["plain"].faulted) == 0
    assert all(text.startswith(fault) for row in results.faulted for text in row["faults"])
    assert "(2 ended by faults)" in repr(results)


@pytest.mark.parametrize(("accident", "backend"), [(accidents.raise_value_error, "serial"), (accidents.die, "process")])
def test_results_outlive_an_error_of_closing(accident: Any, backend: Any, caplog: pytest.LogCaptureFixture) -> None:
    run = partial(evaluate_tasks, still, episodes=3, num_envs=2, backend=backend, faults=AT_ONCE)
    results = run([Task(name, partial(Closing, accident)) for name in ("a", "b")])
    assert without_faults(results) == without_faults(run([Task(name, Walk) for name in ("a", "b")]))
    assert " close" in caplog.text
    evaluation = remuda.evaluate(still, [partial(Closing, accident)] * 2, episodes=3, backend=backend, num_workers=None)
    assert len(evaluation) == 3
    with pytest.raises(ZeroDivisionError):
        evaluate_tasks(lambda obs: 1 // 0, [Task("a", partial(Closing, accident))], episodes=1, num_envs=1)


def test_a_kill_while_workers_start_is_an_attempt(tmp_path: Path) -> None:
    task = Task("walk", DeadlyToLoad(tmp_path / "loads", (0, 2)))  # in the worker that shows the spaces, and then
    results = evaluate_tasks(still, [task], episodes=2, num_envs=1, attempts=2)
    assert [row["attempts"] for row in results.rows] == [1, 1]
    with pytest.raises(remuda.WorkerDiedError):
        task = Task("walk", DeadlyToLoad(tmp_path / "others", (0, 1)))
        evaluate_tasks(still, [task], episodes=2, num_envs=1, attempts=2)


def test_faults_of_other_envs_in_a_worker_do_not_count(tmp_path: Path) -> None:
    mortal = Task("walk", partial(Mortal, tmp_path, "walk", {"step": 1}))
    run = partial(evaluate_tasks, still, episodes=6, num_envs=3)
    results = run([mortal], num_workers=1, attempts=2, faults=AT_ONCE)
    assert without_faults(results) == without_faults(run([Task("walk", Walk)], backend="serial"))
    assert max(row["attempts"] for row in results.rows) > 2  # with the faults of others


def test_the_bar_has_the_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.setenv("COLUMNS", "100")
    tasks = [Task("good", Walk, success=lambda info: True), Task("bad", RaisesInReset)]
    serially(still, tasks, episodes=2, attempts=1, progress=True)
    assert "4/4" in stderr.getvalue() and "100 % success, 2 by faults" in stderr.getvalue()
