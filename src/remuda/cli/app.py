"""The entry point of the ``remuda`` command.

Nothing but the standard library is imported at the top: a worker process started by ``spawn`` imports the
main script again, this file with it, and should not carry a command line's libraries along.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import typer

_EXTRAS = {"typer", "rich"}


def main() -> None:
    """Run the command; without its extras installed, say which ones in one line and exit with status 1."""
    try:
        app = build_app()
    except ModuleNotFoundError as missing:
        if missing.name not in _EXTRAS:
            raise
        sys.exit(f'the remuda command needs {missing.name}: pip install "remuda[bench]"')
    app()


def build_app() -> typer.Typer:
    """The command with its subcommands."""
    import typer

    from .bench import bench
    from .replay import replay

    app = typer.Typer(name="remuda", no_args_is_help=True, add_completion=False, pretty_exceptions_show_locals=False)
    app.callback()(_remuda)
    app.command()(bench)
    app.command()(replay)
    return app


def _remuda() -> None:
    """Steps many reinforcement-learning environments in parallel."""


if __name__ == "__main__":
    main()
