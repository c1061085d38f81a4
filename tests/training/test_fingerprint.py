"""Fingerprints of init states: equal for equal values, in every process; different for different values."""

from __future__ import annotations

import dataclasses
import enum
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from task_envs import Walk

from remuda import Task, evaluate_tasks
from remuda._training.tasks.fingerprint import Fingerprint


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Place(NamedTuple):
    x: int
    data: bytes


@dataclasses.dataclass
class Scene:
    color: Color
    parts: Any


def fingerprint(value: Any) -> str:
    return Fingerprint().of([value])


SHARED = np.arange(3.0)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1, "b": 2.5}, {"b": 2.5, "a": 1}),
        ({"x", "y", 3, None}, {None, 3, "y", "x"}),
        ([SHARED, SHARED], [SHARED, SHARED.copy()]),
        (np.arange(6).reshape(2, 3), np.asfortranarray(np.arange(6).reshape(2, 3))),
        (np.arange(6)[::2], np.array([0, 2, 4])),
        (Scene(Color.RED, [1, (2,)]), Scene(Color.RED, [1, (2,)])),
        (np.array([{"a": 1}, None], object), np.array([{"a": 1}, None], object)),
    ],
)
def test_equal_values_have_equal_fingerprints(one: Any, other: Any) -> None:
    assert fingerprint(one) == fingerprint(other)


def test_different_values_have_different_fingerprints() -> None:
    values = [
        *(None, True, 1, 1.0, "1", b"1", float("nan"), -0.0, 0.0),
        *([1], (1,), {1}, {1: 1}, [[1]], [1, 1], range(1)),
        *(np.array([1]), np.array([1], np.int32), np.array([[1]]), np.int64(1), np.array(["1"])),
        *(Color.RED, Color.BLUE, Place(1, b"a"), Place(1, b"b"), Scene(Color.RED, 1), Scene(Color.BLUE, 1)),
        *(Path("a"), Path("b"), np.array([1, 2], object), np.array([1, "2"], object)),
    ]
    assert len({fingerprint(value) for value in values}) == len(values)


def test_tensors_are_compared_by_their_values() -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.arange(6.0).reshape(2, 3)
    views = [tensor, torch.arange(12.0)[:6].reshape(2, 3), tensor.T.contiguous().T, tensor.clone().requires_grad_()]
    assert len(set(map(fingerprint, views))) == 1
    others = [tensor + 1, tensor.double(), tensor.reshape(3, 2), tensor.bfloat16(), tensor.bfloat16() + 1]
    assert len(set(map(fingerprint, [tensor, *others]))) == 6


def test_values_without_a_form_are_left_out_and_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    options: Any = {"episodes": 1, "num_envs": 1, "backend": "serial", "results": tmp_path / "a.jsonl", "label": "x"}
    for _ in range(2):
        task = Task("walk", Anywhere, init_states=[{"at": object(), "seed": 3}])
        evaluate_tasks(lambda obs: np.zeros((len(obs), 2)), [task], **options)
    assert "their init states were compared without the values of object" in caplog.text
    cyclic = list[Any]()
    cyclic.append(cyclic)
    found = Fingerprint()
    assert found.of(cyclic) and found.left_out == {"a value that contains itself"}


class Anywhere(Walk):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return super().reset(seed=seed)
