"""Every two compatible features of a pool, tested in one pool beside a serial twin that leads the same random life."""

from __future__ import annotations

import itertools
import random
import time
from pathlib import Path

import features
import lives
import pytest
from drawn import MINUTES, SEED
from features import FACTORS, REFUSALS, SLOTS, Combination, Refusal
from scripted_envs import scripted, vectors

from remuda import Pool


def name(combination: Combination) -> str:
    return " ".join(f"{k}={v}" for k, v in combination.items() if v != FACTORS[k][0]) or "plain"


@pytest.mark.parametrize("combination", features.covering(), ids=name)
def test_features_work_together(combination: Combination, tmp_path: Path) -> None:
    lives.compare(combination, SEED, tmp_path)


@pytest.mark.skipif(not MINUTES, reason="draws more than pairs, for as long as there is time: make soak")
@pytest.mark.watchdog(600 + 60 * MINUTES)
def test_any_features_work_together(tmp_path: Path) -> None:
    end = time.monotonic() + 60 * MINUTES
    for seed in itertools.count(SEED * 1_000_000):
        draw = random.Random(seed)
        combination = {factor: draw.choice(values) for factor, values in FACTORS.items()}
        if features.is_refused(combination):
            continue
        print(f"seed {seed}: {name(combination)}")
        (tmp_path / str(seed)).mkdir()
        lives.compare(combination, seed, tmp_path / str(seed))
        if time.monotonic() > end:
            break


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: " ".join(f"{f}={v}" for f, v in refusal.choices))
def test_incompatible_features_are_refused(refusal: Refusal, tmp_path: Path) -> None:
    arguments = features.pool_arguments(features.plain(*refusal.choices), tmp_path)
    width = arguments["vector_size"] or 1
    env_fns = scripted(SLOTS + arguments["spares"], tmp_path, width)
    env_fns = vectors(env_fns, width, arguments["autoreset"]) if width > 1 else env_fns
    with pytest.raises(ValueError, match=refusal.says), Pool(env_fns, **arguments) as pool:
        assert ("reset_options", True) in refusal.choices, "the pool should have been refused"
        pool.set_reset_options({"level": 1})


def test_the_document_lists_all_pairs() -> None:
    text = features.DOCUMENT.read_text()
    assert features.with_tables(text) == text, "run tests/features.py"
