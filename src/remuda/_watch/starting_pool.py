"""A pool of another process that is still building its envs."""

from __future__ import annotations

import os
from pathlib import Path

from remuda._watch.owner import Owner, name_of
from remuda._wire.build_board import BuildBoard, EnvBuild, NoBoardError


class StartingPool:
    """Reads the board that its workers write on.

    Attributes:
        card: Whose envs are built.
        owner: The process.
    """

    def __init__(self, board: BuildBoard, file: os.stat_result) -> None:
        self.card, self._board = board.card, board
        self.owner = Owner(board.card.owner, board.card.started, file)

    @classmethod
    def open(cls, path: Path) -> StartingPool:
        """Raises OSError or NoBoardError."""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            file = os.fstat(fd)
            return cls(BuildBoard.open(fd, writes=False), file)
        except ValueError as error:  # it was made shorter just now
            raise NoBoardError(str(error)) from error
        finally:
            os.close(fd)

    @property
    def is_open(self) -> bool:
        """Whether its envs are still being built."""
        return self.owner.has_file

    def end_in_words(self) -> str:
        """Of one that is not being started any more."""
        return self.owner.end_in_words(name_of(self.card), "is not being started any more")

    def builds(self) -> list[EnvBuild]:
        """How far each env is: first those that are being built, the longest ahead, then those that have not begun."""
        return sorted(self._board.builds(), key=lambda build: (build.is_built, -(build.seconds or 0.0)))

    def close(self) -> None:
        """Lets go of the memory."""
        self._board.close()


def state_of(build: EnvBuild) -> str:
    """In a word or two."""
    if build.seconds is None:
        return "has not begun"
    return "is built" if build.is_built else "is being built"
