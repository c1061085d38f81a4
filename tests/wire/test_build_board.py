"""The build board of a starting pool can be read by other processes, and invalid boards are refused."""

from __future__ import annotations

import os
import sys

import pytest

from remuda._wire.build_board import BuildBoard, BuildCard, NoBoardError

CARD = BuildCard(os.getpid(), 7, "herd", "process", (2, 1), 4, 0)


def test_builds_are_recorded_from_begin_to_end() -> None:
    board = BuildBoard(CARD)
    board.begin(1)
    board.begin(2)
    board.end(2)
    first, second, third = board.builds()
    assert (first.env_id, first.worker, first.pid, first.seconds, first.is_built) == (0, 0, None, None, False)
    assert (second.env_id, second.worker, second.pid, second.is_built) == (4, 0, os.getpid(), False)
    assert (third.env_id, third.worker, third.is_built) == (8, 1, True)
    assert second.seconds is not None and third.seconds == board.builds()[2].seconds is not None
    assert board.num_built == 1
    board.begin(2)  # a second build
    assert board.num_built == 0
    board.close()
    board.close()


@pytest.mark.skipif(sys.platform != "linux", reason="it is a memory file")
def test_readers_and_writers_share_a_board() -> None:
    board = BuildBoard(CARD)
    reader, writer = BuildBoard.open(board.fd, writes=False), BuildBoard.open(board.fd, writes=True)
    writer.begin(0)
    assert reader.card == CARD and board.builds()[0].pid == reader.builds()[0].pid == os.getpid()
    with pytest.raises(ValueError, match="read-only"):
        reader.begin(1)
    for one in (reader, writer, board):
        one.close()


@pytest.mark.skipif(sys.platform != "linux", reason="it is a memory file")
@pytest.mark.parametrize("how", ["empty", "zeros", "cut off", "another version", "no card"])
def test_invalid_boards_are_refused(how: str) -> None:
    board = BuildBoard(CARD)
    text = os.pread(board.fd, 1 << 20, 0)
    other = os.memfd_create("other")
    changed = {
        "empty": b"",
        "zeros": bytes(len(text)),
        "cut off": text[:-3],
        "another version": text.replace(b'"version": 1', b'"version": 9'),
        "no card": text.replace(b'"name"', b'"nome"'),
    }
    os.write(other, changed[how])
    with pytest.raises(NoBoardError):
        BuildBoard.open(other, writes=False)
    os.close(other)
    board.close()
