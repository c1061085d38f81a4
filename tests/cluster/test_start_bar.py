"""The progress bar at the start of a pool with shards."""

from __future__ import annotations

import re
from pathlib import Path

from cluster.conftest import TwoNodes
from pool_envs import make_gates
from watched import starting_program, terminal_of


def test_the_bar_counts_and_names_the_envs_of_shards(cluster: TwoNodes, tmp_path: Path) -> None:
    (gate,) = make_gates(tmp_path, 1)
    where = f"Ray(shards=2, backend='serial', address={cluster.address!r})"
    code = starting_program([None, None, gate, None], f"dict(backend={where})").replace(", num_workers=4", "")
    with terminal_of(code, tmp_path) as shown:
        shown.await_text(
            lambda text: re.search(r"^building envs \S+ 2/4 \d:\d\d:\d\d waits for envs 2, 3 *$", text, re.M)
        )
        gate.let_pass()
        shown.await_text(lambda text: "built" in text and "building" not in text)
        shown.press("\n")
        assert shown.await_end()[0] == 0
