"""After a fault, each command has one answer, whatever has failed and whenever it was noticed."""

from __future__ import annotations

from typing import Any

import pytest
from answers import DEATHS, EXCEPTIONS, MODES, SEQUENCES, answers, possible


@pytest.mark.parametrize("sequence", SEQUENCES, ids="-".join)
@pytest.mark.parametrize("autoreset", MODES)
def test_answers_do_not_depend_on_the_fault(autoreset: Any, sequence: tuple[str, ...]) -> None:
    fates = possible(sequence, DEATHS + EXCEPTIONS)
    expected, *others = answers(fates, sequence, num_workers=len(fates), autoreset=autoreset)
    if exceptions := possible(sequence, EXCEPTIONS):
        for backend in ("thread", "serial"):
            others += answers(exceptions, sequence, backend=backend, autoreset=autoreset)
    assert others == [expected] * len(others)


@pytest.mark.parametrize(("fate", "first"), [(("before", "death"), "observe"), (("step", "exception"), "step")])
def test_the_end_is_reported_once_and_then_the_last_observation_repeated(fate: tuple[str, str], first: str) -> None:
    sequence = (first, "observe", "step", "observe", "reset", "step")
    (seen,) = answers([fate], sequence, autoreset="disabled")
    last = [1.0, 1.0]
    assert seen[0] == [(last, None, 0.0, False, True, True)]
    assert seen[1] == seen[3] == [(last, None, 0.0, False, False, None)]
    assert seen[2] == "expected envs that have been reset, got env ...; call reset first"
    assert seen[4][0][0] == [0.0, 0.0]
    assert seen[5][0][0] == [1.0, 2.0]
