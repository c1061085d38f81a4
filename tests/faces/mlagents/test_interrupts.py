"""Interrupts of the ML-Agents face, such as Ctrl-C: after one at any line, a reset works, and all workers step on."""

from __future__ import annotations

import itertools
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from drawn import MINUTES
from interrupting import Interrupt, interrupting
from mlagents_envs.exception import UnityTimeOutException
from mlagents_face_envs import CrowdEnv, Policy, faulty, manager, original, steps_of, unity

from remuda import StateError, mlagents

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.watchdog(300 + 600 * MINUTES)]

FOLDER = Path(mlagents.__file__).parent
CALLERS = tuple(str(FOLDER / name) for name in ("agents.py", "step_queue.py", "subprocess_env_manager.py"))
STRIDE = 1 if MINUTES else 11  # the distance of the lines, of which a loop runs each many times


def begin(env_factory: Any) -> Any:
    made = manager(env_factory, backend="serial")
    made.set_policy("blue", Policy(2, (3, 2)))
    return made


def use(made: Any) -> None:
    """Calls all methods. After the third step, the envs have the behaviour "red"."""
    made.reset({"gravity": 1.0})
    made.set_env_parameters({"wind": 2.0})
    made.on_training_started("blue", original.TrainerSettings())
    for _ in range(4):
        made.get_steps()
    _ = made.training_behaviors
    made.reset({"gravity": 2.0})


@pytest.mark.parametrize("fails", [False, True])
def test_after_an_interrupt_at_any_line_a_reset_works(fails: bool, tmp_path: Path) -> None:
    for n in itertools.count(0, STRIDE):
        once = faulty(unity(UnityTimeOutException), path=tmp_path / str(n), kind=CrowdEnv)
        made = begin(once if fails else CrowdEnv)
        with interrupting(n, CALLERS, unit="line") as hit, suppress(Interrupt):
            use(made)
        assert made.reset({}) == 2, hit
        for worker_id in range(2):
            assert len(steps_of(made, worker_id, 3)) == 3
        assert made.training_behaviors.keys() == {"blue", "red"}, hit
        made.close()
        if not hit:
            return


def test_after_an_interrupted_step_the_envs_must_be_reset() -> None:
    made = begin(CrowdEnv)
    made.reset({})
    made.set_policy("blue", InterruptedPolicy())
    with pytest.raises(Interrupt):
        made.get_steps()
    made.set_policy("blue", Policy(2, (3, 2)))
    for _ in range(2):
        with pytest.raises(StateError, match="expected a reset after an interrupt"):
            made.get_steps()
    assert made.training_behaviors.keys() == {"blue"}
    with pytest.raises(StateError, match="expected a reset after an interrupt"):
        made.get_steps()
    made.reset({})
    assert len(made.get_steps()) == 2
    made.close()


class InterruptedPolicy(Policy):
    """Acts for worker 0. An interrupt comes while it acts for worker 1."""

    def __init__(self) -> None:
        super().__init__(2, (3, 2))

    def get_action(self, steps: Any, worker_id: int) -> Any:
        if worker_id == 1:
            raise Interrupt
        return super().get_action(steps, worker_id)
