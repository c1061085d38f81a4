"""The code of the pages on clusters runs, on an existing cluster or on one that the first pool starts."""

from __future__ import annotations

from pathlib import Path

import pytest
import test_docs
from cluster.conftest import TwoNodes
from doc_pages import Reader


@pytest.mark.parametrize("name", test_docs.ON_CLUSTERS)
def test_code_runs(cluster: TwoNodes, name: str, tmp_path: Path) -> None:
    address = "local" if name == "reference/ray.md" else cluster.address
    with Reader(test_docs.PATHS, address) as reader:
        test_docs.run_code(test_docs.ROOT / "docs" / name, reader, tmp_path)
