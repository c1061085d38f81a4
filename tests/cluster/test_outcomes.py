"""After a fault, a command has the same answer on a cluster as on one machine."""

from __future__ import annotations

from typing import Any

import pytest
from answers import DEATHS, EXCEPTIONS, MODES, SEQUENCES, answers, possible
from pairs import each

import remuda

pytestmark = pytest.mark.usefixtures("kept_actors")


@each(sequence=SEQUENCES, autoreset=[mode for mode in MODES if mode != "background"])
def test_answers_are_those_of_one_machine(autoreset: Any, sequence: tuple[str, ...]) -> None:
    fates = possible(sequence, DEATHS + EXCEPTIONS)
    (expected,) = answers(fates[:1], sequence, autoreset=autoreset)
    backend = remuda.Ray(shards=1, cpus_per_shard=len(fates))
    seen = answers(fates, sequence, backend=backend, num_workers=len(fates), autoreset=autoreset)
    assert seen == [expected] * len(fates)
