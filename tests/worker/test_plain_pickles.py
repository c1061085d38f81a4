"""Pickles for digests are equal for equal values, in every process."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from remuda._worker.plain_pickles import plain_pickle

PROGRAM = """
from types import SimpleNamespace
from remuda._worker.plain_pickles import plain_pickle
names = {f"name {n}" for n in range(100)}
print(plain_pickle(SimpleNamespace(names=names, nested=[frozenset([frozenset(names), 1])])).hex())
"""


@dataclass
class Held:
    value: Any


def test_the_order_of_sets_does_not_count() -> None:
    found = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in "123"
    }
    assert len(found) == 1


def test_tensors_count_by_their_values() -> None:
    torch = pytest.importorskip("torch")
    one, same = torch.arange(6.0).reshape(2, 3), torch.arange(6.0).reshape(2, 3)
    assert plain_pickle(Held(one)) == plain_pickle(Held(same))
    others = [one + 1, one.reshape(3, 2), one.double(), torch.arange(12.0).reshape(2, 6)[:, ::2], one.numpy()]
    assert all(plain_pickle(Held(one)) != plain_pickle(Held(other)) for other in others)
    for odd in (torch.tensor(True), torch.tensor(2, dtype=torch.bfloat16), torch.zeros(0), one[:, 1]):
        assert plain_pickle(odd) == plain_pickle(odd.clone())


def test_other_values_are_distinguished() -> None:
    values = [{1}, frozenset([1]), {1, 2}, Held(1), Held(2), Held(np.ones(2)), Held({"a"}), Held({"b"})]
    assert len({plain_pickle(value) for value in values}) == len(values)
