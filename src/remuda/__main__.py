"""``python -m remuda``: the ``remuda`` command."""

from __future__ import annotations

from remuda.cli.app import main

if __name__ == "__main__":
    main()
