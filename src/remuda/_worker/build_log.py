"""Notes which env a worker is building, for whoever looks at the pool that is being started."""

from __future__ import annotations

from collections.abc import Callable

from remuda._wire.build_board import BuildBoard


class BuildLog:
    """Writes on a board, if there is one."""

    def __init__(self, board: BuildBoard | None = None, look_up: Callable[[], object] = lambda: None) -> None:
        """`look_up`: called between two envs, for those who are to show something meanwhile."""
        self._board, self._look_up = board, look_up

    def begin(self, slot: int) -> None:
        """An env is being built from now on. `slot`: its first."""
        if self._board is not None:
            self._board.begin(slot // self._board.card.width)
        self._look_up()

    def end(self, slot: int) -> None:
        """It is built."""
        if self._board is not None:
            self._board.end(slot // self._board.card.width)

    def close(self) -> None:
        """Lets go of the board, where that is its own."""
        if self._board is not None:
            self._board.close()
        self._board = None
