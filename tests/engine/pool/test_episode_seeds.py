"""With seeding="per_episode" an env's rows depend only on the seed, the env id and the episode number, and not on the
number of workers, the backend or crashes of other envs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
from accidents import die, once, raise_value_error
from failing import MODES, final_info, formula
from gymnasium import spaces
from pairs import each
from pool_envs import DiceEnv, SampleEnv, assert_same, counting, hooked
from programs import kill

from remuda import EnvError, FaultPolicy, Pool, StateError, WorkerDiedError, load_record

RESTART = FaultPolicy("restart", backoff=0)
RENEWAL = FaultPolicy("raise", renew_every=2)

Row: TypeAlias = tuple[bytes, float, bool, bool, "int | None"]

per_episode = partial(Pool, seeding="per_episode", log_advice=False)


def seeds_in(infos: Any) -> list[Any]:
    return [info.get("episode_seed") for info in infos]


class Journal:
    """Resets and steps a pool, and records the rows of each env in order."""

    def __init__(self, pool: Pool, seed: int | None = None) -> None:
        self.pool = pool
        self.rows: list[list[Row]] = [[] for _ in range(pool.num_envs)]
        self._steps = 0
        self._resetting: set[int] = set()  # in the background
        self.reset(seed=seed)

    def reset(self, **arguments: Any) -> None:
        self._note(self.pool.reset(**arguments))

    def step(self, times: int = 1) -> None:
        """Steps all envs that are not resetting. With autoreset="disabled" it also resets envs that ended their
        episode.
        """
        for _ in range(times):
            self._steps += 1
            there = [i for i in range(self.pool.num_envs) if i not in self._resetting]
            if there:
                self.pool.send([self._steps] * len(there), None if len(there) == self.pool.num_envs else there)
            batch = self.pool.recv()
            self._note(batch)
            ended = batch.env_ids[batch.terminations | batch.truncations].tolist()
            if self.pool.autoreset == "disabled" and ended:
                self.reset(env_ids=ended)
            self._resetting = set(ended if self.pool.autoreset == "background" else ())

    def _note(self, batch: Any) -> None:
        for i, env_id in enumerate(batch.env_ids.tolist()):
            flags = bool(batch.terminations[i]), bool(batch.truncations[i])
            seed = batch.infos[i].get("episode_seed")
            self.rows[env_id].append((batch.obs[i].tobytes(), float(batch.rewards[i]), *flags, seed))

    def seeds(self, env_id: int) -> list[int]:
        """Returns the seeds of the env's episodes."""
        return [row[4] for row in self.rows[env_id] if row[4] is not None]

    def check_seeds(self, seed: int) -> None:
        """Asserts that each env had more than four episodes, with the seeds that follow from `seed`."""
        for i in range(self.pool.num_envs):
            seeds = self.seeds(i)
            assert len(seeds) > 4
            assert seeds == [formula(seed, i, n) for n in range(len(seeds))]
            assert {type(seed) for seed in seeds} == {int}


def play(backend: Any, num_workers: int, mode: Any, **options: Any) -> list[list[Row]]:
    with per_episode([DiceEnv] * 5, backend=backend, num_workers=num_workers, autoreset=mode, **options) as pool:
        journal = Journal(pool, seed=11)
        journal.step(30)
        pool.discard()
        journal.reset()  # in the middle of episodes
        journal.step(10)
        pool.discard()
        journal.reset(options={"a": 1})
        journal.step(10)
        return journal.rows


# -- the seeds themselves --------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_seeds_follow_the_documented_formula(mode: Any) -> None:
    with per_episode([DiceEnv] * 3, backend="serial", num_workers=2, autoreset=mode) as pool:
        journal = Journal(pool, seed=42)
        assert pool.get_attr("last_seed") == [formula(42, i, 0) for i in range(3)]
        journal.step(60)
        journal.check_seeds(42)
        assert pool.get_attr("last_seed") == [journal.seeds(i)[-1] for i in range(3)]
        assert pool.get_attr("info") == [{}] * 3  # the seeds were not written to the env's own dict


def test_resets_without_a_seed_continue_the_sequence() -> None:
    with per_episode([DiceEnv] * 3, backend="serial") as pool:
        assert seeds_in(pool.reset(seed=5).infos) == [formula(5, i, 0) for i in range(3)]
        assert seeds_in(pool.reset().infos) == [formula(5, i, 1) for i in range(3)]
        assert seeds_in(pool.reset(env_ids=[1]).infos) == [formula(5, 1, 2)]
        assert seeds_in(pool.reset(seed=[8, None, 9]).infos) == [formula(8, 0, 0), formula(5, 1, 3), formula(9, 2, 0)]
        assert seeds_in(pool.reset(options={"a": 1}).infos) == [formula(8, 0, 1), formula(5, 1, 4), formula(9, 2, 1)]
        assert sorted(seeds_in(pool.reset(seed=5, env_ids=[2, 0]).infos)) == sorted(
            [formula(5, 2, 0), formula(5, 0, 0)]
        )
        assert seeds_in(pool.reset().infos) == [formula(5, 0, 1), formula(5, 1, 5), formula(5, 2, 1)]


@pytest.mark.parametrize("seed", [0, 2**31, 2**100, np.int64(7), np.uint8(200)])
def test_seeds_of_any_size(seed: Any) -> None:
    with per_episode([DiceEnv] * 2, backend="serial") as pool:
        assert seeds_in(pool.reset(seed=seed).infos) == [formula(int(seed), i, 0) for i in range(2)]
        assert seeds_in(pool.reset(seed=[seed, seed]).infos) == [formula(int(seed), i, 0) for i in range(2)]


def test_without_a_seed_the_pool_draws_one() -> None:
    seen = []
    for _ in range(2):
        with per_episode([DiceEnv] * 3, backend="serial") as pool:
            seen += seeds_in(pool.reset(seed=[None, 4, None]).infos) + seeds_in(pool.reset().infos)
            assert pool.get_attr("last_seed") == seen[-3:]
    known = [formula(4, 1, 0), formula(4, 1, 1)]
    assert [seed for seed in seen if seed in known] == known * 2
    assert len(set(seen)) == 12 - 2


def test_a_refused_reset_changes_no_seed() -> None:
    with per_episode([DiceEnv] * 2, backend="serial") as pool:
        pool.reset(seed=1)
        expected = pool.action_spaces[0].sample()
        pool.reset(seed=1)
        for seed, message in ((-1, "for env 0, got -1"), ([1, -7], "for env 1, got -7")):
            with pytest.raises(ValueError, match=f"^expected a seed from 0 up {message}"):
                pool.reset(seed=seed)
        pool.send([0], env_ids=[1])
        with pytest.raises(StateError, match="in flight|last result"):
            pool.send_reset(seed=2)
        assert pool.action_spaces[0].sample() == expected
        pool.recv()
        assert seeds_in(pool.reset().infos) == [formula(1, i, 1) for i in range(2)]


# -- bit for bit -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [*MODES, "background"])
def test_trajectories_do_not_depend_on_workers_and_backend(mode: Any) -> None:
    expected = play("serial", 1, mode)
    assert any(row[2] for row in expected[0]) and any(row[3] for rows in expected for row in rows)
    assert play("serial", 5, mode) == play("process", 2, mode, max_concurrency=1) == expected


@pytest.mark.parametrize("mode", [*MODES, "background"])
def test_spares_have_their_own_seeds(mode: Any) -> None:
    expected = play("serial", 5, mode, spares=2)
    seeds = [row[4] for rows in expected for row in rows if row[4] is not None]
    assert len(set(seeds)) == len(seeds) > 20
    assert {formula(11, spare, 0) for spare in (3, 4)} <= set(seeds)


@each(in_advance=[True, False], backend=["process", "serial"])
def test_an_unused_reset_in_advance_uses_no_seed(backend: Any, in_advance: bool) -> None:
    with per_episode(counting(3, length=1), backend=backend, autoreset="disabled", spares=1) as pool:
        pool.reset(seed=7)
        pool.step([1, 1])
        # a worker resets in advance only after it has answered its first message
        for _ in range(2 if in_advance else 0):
            pool.call("pid")
        assert seeds_in(pool.reset(options={}).infos) == [formula(7, i, 1) for i in range(2)]
        assert seeds_in(pool.reset(seed=[3, 4, 5]).infos) == [formula(3, 0, 0), formula(4, 1, 0)]
        pool.step([1, 1])
        assert seeds_in(pool.reset().infos) == [formula(5, 2, 0), formula(3, 0, 1)]


# -- where infos contain the seed --------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_only_the_first_row_of_an_episode_has_its_seed(mode: Any) -> None:
    with per_episode(counting(2, length=2), backend="serial", autoreset=mode) as pool:
        assert seeds_in(pool.reset(seed=9).infos) == [formula(9, 0, 0), formula(9, 1, 0)]
        for episode in (1, 2, 3):
            following = [formula(9, i, episode) for i in range(2)]
            assert seeds_in(pool.step([1, 1]).infos) == [None, None]
            ended = pool.step([2, 2])
            assert "episode_seed" not in final_info(ended, 0)
            if mode == "same_step":
                assert seeds_in(ended.infos) == following
            else:
                assert seeds_in(ended.infos) == [None, None]
                begun = pool.reset() if mode == "disabled" else pool.step([3, 3])
                assert seeds_in(begun.infos) == following
                assert begun.infos.stack()["episode_seed"].tolist() == following


@pytest.mark.parametrize("mode", MODES)
def test_gymnasiums_rule_reports_no_seeds_and_seeds_no_autoreset(mode: Any) -> None:
    with Pool(counting(2, length=1), backend="serial", autoreset=mode) as pool:
        assert pool.seeding == "gymnasium"
        assert seeds_in(pool.reset(seed=5, options={"x": 1}).infos) == [None, None]
        assert pool.get_attr("last_seed") == [5, 6]
        batch = pool.step([1, 1])
        if mode == "next_step":
            batch = pool.step([1, 1])
        elif mode == "disabled":
            batch = pool.reset()
        assert seeds_in(batch.infos) == [None, None]
        assert pool.get_attr("last_seed") == [None, None]
        assert pool.get_attr("last_options") == [None, None]


# -- faults ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("policy", "backend", "num_workers"),
    [(RESTART, "serial", None), (RENEWAL, "process", 1), (RENEWAL, "process", 3)],
)
def test_rebuilt_and_renewed_envs_continue_the_sequence_of_seeds(
    policy: FaultPolicy, backend: Any, num_workers: int | None, mode: Any, tmp_path: Path
) -> None:
    fails = once(tmp_path / "failed", raise_value_error, when=lambda env: env.steps == 2)
    env_fns = hooked(3, length=3, step=fails) if policy is RESTART else counting(3, length=2)
    with per_episode(env_fns, backend=backend, num_workers=num_workers, autoreset=mode, faults=policy) as pool:
        journal = Journal(pool, seed=7)
        journal.step(20)
        journal.check_seeds(7)
        if policy is RENEWAL:
            assert max(pool.get_attr("episodes")) <= 2


def test_the_successor_of_a_dead_spare_uses_its_seed() -> None:
    with per_episode(counting(3, length=1), spares=1, faults=RESTART) as pool:
        pool.reset(seed=7)
        pool.reset(seed=8)
        kill(pool, 2)
        assert seeds_in(pool.reset(seed=9).infos) == [formula(9, 0, 0), formula(9, 1, 0)]
        pool.step([1, 1])
        assert seeds_in(pool.step([1, 1]).infos) == [formula(9, 2, 0), formula(9, 0, 1)]


@pytest.mark.parametrize("act", [die, raise_value_error])
def test_a_failed_reset_uses_its_seed(act: Any, tmp_path: Path) -> None:
    """The next attempt uses the next seed, because the env may fail with this seed each time."""
    env_fns = hooked(2, reset=once(tmp_path / "failed", act))
    with (
        per_episode(env_fns, num_workers=None) as pool,
        pytest.raises((EnvError, WorkerDiedError), match=f"seed {formula(7, 1, 0)}"),
    ):
        pool.reset(seed=7)
    (tmp_path / "failed.0").unlink()
    with per_episode(env_fns, faults=RESTART) as pool:
        assert seeds_in(pool.reset(seed=7).infos) == [formula(7, 0, 0), formula(7, 1, 1)]
        assert seeds_in(pool.reset().infos) == [formula(7, 0, 1), formula(7, 1, 2)]


@pytest.mark.parametrize("mode", MODES)
def test_errors_and_crash_records_have_the_seed_and_options_of_the_episode_and_a_reset_the_next_seed(
    mode: Any, tmp_path: Path
) -> None:
    fails = once(tmp_path / "failed", raise_value_error, when=lambda env: env.episodes == 3)
    env_fns = hooked(2, length=2, step=fails)
    with per_episode(env_fns, backend="serial", autoreset=mode, crash_dir=tmp_path / "records") as pool:
        pool.set_reset_options({"level": 4})
        journal = Journal(pool, seed=7)
        with pytest.raises(EnvError) as raised:
            journal.step(20)
        where = raised.value.failures[0].where
        assert where is not None and raised.value.record is not None
        assert (where.seed, where.resets_since_seed) == (formula(7, 1, 2), 0)
        record = load_record(raised.value.record)
        assert record.start is not None
        assert (record.start.seed, record.start.options, record.calls) == (where.seed, {"level": 4}, 0)
        pool.discard()
        assert seeds_in(pool.reset(env_ids=[1]).infos) == [formula(7, 1, 3)]


# -- random actions ----------------------------------------------------------------------------------------


def draw(pool: Pool, times: int = 5) -> list[list[Any]]:
    spaces_ = (pool.single_action_space, *pool.action_spaces)
    return [[space.sample() for _ in range(times)] for space in spaces_]


BOX = spaces.Dict(push=spaces.Box(-1, 1, (3,)), key=spaces.Discrete(9))


@pytest.mark.parametrize("make", [DiceEnv, lambda: SampleEnv(spaces.Discrete(2), BOX)])
def test_a_seed_makes_random_actions_reproducible(make: Callable[[], Any]) -> None:
    drawn = []
    for backend, num_workers in (("process", 3), ("serial", 1)):
        with per_episode([make] * 3, backend=backend, num_workers=num_workers) as pool:  # type: ignore[arg-type]
            pool.reset(seed=4)
            drawn.append(draw(pool))
            pool.reset()
            assert str(draw(pool)) != str(drawn[0])
            pool.reset(seed=4)
            drawn.append(draw(pool))
            pool.reset(seed=[4, None, 4])
            pool.reset(seed=5, env_ids=[1])
            one, first, second, third = draw(pool)
            assert_same([one, first, third], [drawn[0][i] for i in (0, 1, 3)])
            assert str(second) != str(drawn[0][2])  # another seed
    for other in drawn[1:]:
        assert_same(other, drawn[0])
    assert len({str(sequence) for sequence in drawn[0]}) == 4


def test_the_envs_own_action_spaces_are_not_seeded() -> None:
    with per_episode([DiceEnv] * 2, backend="serial") as pool:
        for env_id, own in enumerate(pool.get_attr("action_space")):
            assert own is not pool.action_spaces[env_id]
        before = pool.apply(lambda env: env.action_space.seed(1) and env.action_space.np_random.bit_generator.state)
        pool.reset(seed=4)
        assert pool.apply(lambda env: env.action_space.np_random.bit_generator.state) == before


@pytest.mark.parametrize(("seeding", "seed"), [("gymnasium", 4), ("per_episode", None)])
def test_nothing_else_seeds_an_action_space(seeding: Any, seed: int | None) -> None:
    with Pool([DiceEnv] * 2, backend="serial", seeding=seeding) as pool:
        for space in (pool.single_action_space, *pool.action_spaces):
            space.seed(1)
        expected = draw(pool)
        for space in (pool.single_action_space, *pool.action_spaces):
            space.seed(1)
        pool.reset(seed=seed)
        assert draw(pool) == expected
