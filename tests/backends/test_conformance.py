"""Every backend gives the same results: the core behaviours of a pool, compared with the serial backend.

Other tests check the rules in detail, on one backend if the backend is not their subject.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from pool_envs import CountingEnv, DiceEnv, HookedEnv, TextEnv, counting, hooked, levelled, with_infos
from spare_envs import step as step_some
from spare_envs import uneven
from state_envs import WalkEnv
from vector_envs import plain

from remuda import Batch, ClosedError, EnvError, FaultPolicy, Pool, StateError

OpenPool = Callable[..., Pool]
PLACES = [("process", 1), ("process", 3), ("thread", 2)]
MODES = ("next_step", "same_step", "disabled", "background")
BOTH: Any = {
    "episodes": lambda env: env.unwrapped.episodes,
    "twice": (lambda env: [env.unwrapped.steps] * 2, ((2,), int)),
}


def rows(batch: Batch) -> list[Any]:
    """Returns the rows of a batch in the order of the env ids, as plain data."""
    found = []
    for i in np.argsort(batch.env_ids).tolist():
        obs = batch.obs[i]
        flags = bool(batch.terminations[i]), bool(batch.truncations[i])
        final = None if batch.final_obs is None or not any(flags) else np.asarray(batch.final_obs[i]).tolist()
        extras = {name: column[i].tolist() for name, column in batch.extras.items()}
        row = np.asarray(obs).tolist(), float(batch.rewards[i]), *flags, final, extras, repr(in_order(batch.infos[i]))
        found.append((int(batch.env_ids[i]), *row))
    return found


def in_order(info: Any) -> Any:
    """Returns an info with sorted keys, because their order may differ."""
    return {key: in_order(info[key]) for key in sorted(info)} if isinstance(info, dict) else info


def error_of(call: Callable[[], Any], kind: type[Exception]) -> tuple[Any, ...]:
    """Returns what the error of a call says."""
    with pytest.raises(kind) as raised:
        call()
    failures = [
        (f.env_id, f.worker, f.operation, f.type_name, f.message) for f in getattr(raised.value, "failures", ())
    ]
    return kind, str(raised.value).splitlines()[0], failures


def steps(pool: Pool, num: int, first: int = 0) -> list[Any]:
    return [rows(pool.step((np.arange(pool.num_envs) + i) % 5)) for i in range(first, first + num)]


# -- courses: each returns all that it has received --------------------------------------------------------


def episodes(open_pool: OpenPool, **options: Any) -> list[Any]:
    """Many short episodes with random numbers, in any autoreset mode."""
    with open_pool([DiceEnv] * 4, **options) as pool:
        batch = pool.reset(seed=3)
        found = [rows(batch)]
        for i in range(30):
            ended = batch.terminations | batch.truncations
            if pool.autoreset == "disabled" and ended.any():
                found.append(rows(pool.reset(env_ids=batch.env_ids[ended])))
            batch = pool.step([i] * 4)
            found.append(rows(batch))
            if pool.pending:  # envs that reset in the background
                found.append(rows(pool.recv()))
        return found


def some_envs(open_pool: OpenPool) -> list[Any]:
    with open_pool(counting(4, length=3)) as pool:
        pool.reset(seed=3, env_ids=[2, 0])
        found = [rows(pool.reset(env_ids=[1, 3]))]
        for i in range(8):
            pool.send([i], env_ids=[3])
            pool.send([10 + i, 20 + i], env_ids=[1, 0])
            found.append(pool.pending)
            received = [*rows(pool.recv(min_envs=1, max_envs=1)), *rows(pool.recv())]
            found += [sorted(received, key=lambda row: row[0]), pool.pending]
            found.append(pool.step([5, 6], env_ids=[2, 1]).env_ids.tolist())
        pool.send([1] * 4)
        pool.discard()
        pool.request_obs(env_ids=[2, 0])
        found += [rows(pool.recv()), pool.get_attr("total_steps"), pool.get_attr("last_seed")]
        return [*found, pool.stats().steps, pool.stats().batches]


def infos(open_pool: OpenPool) -> list[Any]:
    """Numbers, arrays, texts and dicts that come and go."""

    def info(tag: int, count: int) -> Any:
        late = {"late": "x" * count, "deep": {"tag": tag, "list": [count]}} if count % 3 == tag else {}
        return {"count": count, "vector": np.full(2, count / 4), **late}

    with open_pool(with_infos(3, info, length=4), autoreset="same_step") as pool:
        batches = [pool.reset(seed=1), *(pool.step([0, 1, 0]) for _ in range(12))]
        return [*map(rows, batches), *(repr(in_order(batch.infos.stack())) for batch in batches)]


def objects(open_pool: OpenPool) -> list[Any]:
    """Observations and actions without columns."""
    with open_pool([TextEnv, partial(TextEnv, 3), TextEnv]) as pool:
        found = [pool.reset(options={"text": "long" * 3000}).obs]
        found += [pool.step((word, word * 2000, "")).obs for word in ("one", "two", "")]
        pool.request_obs()
        return [*found, pool.recv().obs]


def errors(open_pool: OpenPool) -> list[Any]:
    def raises(env: Any, action: Any = 9) -> None:
        if action == 9:
            raise ValueError(f"told env {env.tag} to")

    hooks = {"step": raises, "autoreset": raises, "call": raises}
    with open_pool(hooked(4, length=6, **hooks)) as pool:
        pool.reset(seed=3)
        found: list[Any] = [error_of(lambda: pool.step([1, 9, 8, 1]), EnvError)]
        found += [sorted(rows(pool.recv())), error_of(lambda: pool.step([1] * 4), StateError)]
        found += [error_of(lambda: pool.reset(env_ids=[2, 1]), EnvError), rows(pool.recv())]
        found += [error_of(lambda: pool.call("poke"), EnvError)]
        found += [pool.pending, rows(pool.step([7, 8], env_ids=[3, 0]))]
    found.append(error_of(lambda: pool.step([1] * 4), ClosedError))
    fns = [CountingEnv, lambda: HookedEnv(build=raises), CountingEnv]
    return [*found, error_of(lambda: open_pool(fns), EnvError)]


def restarts(open_pool: OpenPool, **options: Any) -> list[Any]:
    def raises(env: Any, action: int) -> None:
        if action == 9:
            raise ValueError("told to")

    with open_pool(
        hooked(4, which=(1, 3), length=5, step=raises), faults=FaultPolicy("restart", backoff=0), **options
    ) as pool:
        found = [rows(pool.reset(seed=3))]
        pool.set_attr("tag", 7, lasting=True)
        for i in range(12):
            found.append([row[:-1] for row in rows(pool.step([1, 9 if i == 2 else 2, 3, 9 if i == 7 else 4]))])
        return [*found, pool.get_attr("tag"), pool.stats().restarts]


def calls(open_pool: OpenPool) -> list[Any]:
    with open_pool(counting(3)) as pool:
        found: list[Any] = [pool.call("echo", 1, x=2), pool.call("tag", env_ids=[2, 0])]
        pool.reset()
        pool.send([1, 2, 3])
        asked = [pool.call_async("echo", i) for i in range(100)]
        asked.append(pool.apply_async(lambda env, a: env.tag + a, env_ids=[2, 1], per_env_args=[(10,), (20,)]))
        found += [call.result() for call in reversed(asked)] + [rows(pool.recv())]
        pool.set_attr("tag", 7)
        pool.set_attrs("tag", [8, 9], env_ids=[2, 0])
        return [*found, pool.get_attr("tag"), [frame.tolist() for frame in pool.render()]]


def states(open_pool: OpenPool, **options: Any) -> list[Any]:
    with open_pool([partial(WalkEnv, tag) for tag in range(3)], **options) as pool:
        found = [rows(pool.reset(seed=3)), *steps(pool, 5)]
        saved = pool.get_state(state_fns="attributes")
        found += steps(pool, 9)
        found += [rows(pool.set_state(saved[::-1])), *steps(pool, 9)]
        return [*found, rows(pool.fork_state(1, [0, 2], state_fns="attributes")), *steps(pool, 5)]


def replacements(open_pool: OpenPool) -> list[Any]:
    with open_pool(counting(3)) as pool:
        found = [rows(pool.reset(seed=3)), *steps(pool, 2)]
        pool.replace([2, 0], [partial(CountingEnv, 20), partial(CountingEnv, 10)])
        return [*found, *steps(pool, 3), pool.get_attr("tag"), pool.get_attr("last_seed")[1]]


def rollouts(open_pool: OpenPool, parts: int, **options: Any) -> list[Any]:
    found = []
    with open_pool(levelled(4, length=3), extras=BOTH, **options) as pool:
        pool.reset(seed=3)
        for _ in range(2):
            rollout = pool.rollout(7, parts=parts)
            for step in rollout:
                step.act(step.env_ids + step.obs[:, 2], value=step.obs[:, 2] / 2)
            arrays = [rollout.obs, rollout.actions, rollout.rewards, rollout.terminations, rollout.truncations]
            arrays += [rollout.valid, *rollout.columns.values(), *rollout.extras.values()]
            found += [array.tolist() for array in arrays]
    return found


def parts(open_pool: OpenPool) -> list[Any]:
    with open_pool(counting(6, length=4)) as pool:
        found = []
        split = pool.split(2)
        for part in split:
            part.send_reset(seed=5)
        for i in range(9):
            for part in split:
                found.append(rows(part.recv()))
                part.send(part.env_ids + i)
        pool.discard()
        return [*found, rows(pool.reset())]


def spares(open_pool: OpenPool, mode: Any) -> list[Any]:
    with open_pool(uneven(7), spares=3, autoreset=mode, extras=BOTH, num_workers=None) as pool:
        batch = pool.reset(seed=2)
        found = [rows(batch)]
        for _ in range(25):
            batch = step_some(pool, mode, batch)
            found.append(rows(batch))
        return found


def reset_options(open_pool: OpenPool, **options: Any) -> list[Any]:
    with open_pool(levelled(3, length=2), **options) as pool:
        pool.set_reset_options({"level": 5})
        found = [rows(pool.reset(seed=3)), *steps(pool, 4)]
        pool.set_reset_options([{"level": 7}, {}], env_ids=[2, 0])
        found += steps(pool, 5)
        return [*found, rows(pool.reset(options=[{"level": 2}, None, {}])), *steps(pool, 5)]


def vector_envs(open_pool: OpenPool, mode: Any) -> list[Any]:
    with open_pool(plain(3, 2, 2, mode), vector_size=2, autoreset=mode) as pool:
        return [
            rows(pool.reset(seed=3)),
            *steps(pool, 9),
            pool.call("poke", 2),
            rows(pool.step([1, 2], env_ids=[2, 3])),
        ]


def held_batches(open_pool: OpenPool) -> list[Any]:
    """More batches than frames are held, also when the pool is closed."""
    with open_pool(counting(3, length=4), frames=3) as pool:
        held = [pool.reset(seed=3), *(pool.step([i] * 3) for i in range(9))]
        held[1].obs[:] = 77
        again = steps(pool, 5)
    return [*map(rows, held), *again]


COURSES: dict[str, Callable[[OpenPool], list[Any]]] = {
    **{f"episodes {mode}": partial(episodes, autoreset=mode) for mode in MODES},
    "episodes with seeds": partial(episodes, seeding="per_episode"),
    "episodes with resets in advance": partial(episodes, resets_ahead=True),
    "episodes one worker at a time": partial(episodes, max_concurrency=1),
    "some envs": some_envs,
    "infos": infos,
    "objects": objects,
    "errors": errors,
    "restarts": restarts,
    "restarts in the same step": partial(restarts, autoreset="same_step", seeding="per_episode"),
    "calls": calls,
    "states": states,
    "states in the same step": partial(states, autoreset="same_step", seeding="per_episode"),
    "replacements": replacements,
    "rollouts": partial(rollouts, parts=1),
    "rollouts in parts": partial(rollouts, parts=2, autoreset="same_step"),
    "parts": parts,
    **{f"spares {mode}": partial(spares, mode=mode) for mode in MODES},
    "reset options": reset_options,
    "reset options in the same step": partial(reset_options, autoreset="same_step", resets_ahead=False),
    "vector envs": partial(vector_envs, mode="next_step"),
    "vector envs in the same step": partial(vector_envs, mode="same_step"),
    "held batches": held_batches,
}


@pytest.mark.parametrize("name", COURSES)
@pytest.mark.parametrize(("backend", "num_workers"), PLACES)
def test_a_backend_gives_the_results_of_the_serial_backend(name: str, backend: Any, num_workers: int) -> None:
    pool_on = partial(Pool, num_workers=num_workers, log_advice=False)
    expected = COURSES[name](partial(pool_on, backend="serial"))
    assert COURSES[name](partial(pool_on, backend=backend)) == expected
