"""Runs `remuda bench`, with all libraries of `peers` as values of `--against`."""

from __future__ import annotations

import sys

from peers import PEERS

from remuda._bench import registry
from remuda.cli.app import main

if __name__ == "__main__":
    registry.PEERS.update(PEERS)
    main(["bench", *sys.argv[1:]])
