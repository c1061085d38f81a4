"""Native code of an env that runs wild: over our shared memory, and into our socket."""

from __future__ import annotations

import ctypes
import os
import socket
import stat
from pathlib import Path
from typing import Any

import pytest
from failing import MODES, final_info, once
from pool_envs import TextEnv, hooked

from remuda import BrokenPoolError, CorruptReplyError, FaultPolicy, Pool

PAGE = 4096


def overwrite_memory(*_: Any) -> None:
    """All that is not observation or action, as far as it is certain: doorbells, meters and rings come first."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        if "/memfd:remuda (deleted)" in line:
            begin = int(line.split("-")[0], 16)
            ctypes.memset(begin + 64, 0xA5, 2 * PAGE)


def write_to_socket(*_: Any) -> None:
    """As a library does that closes, or writes to, descriptors which it does not own."""
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        try:
            if stat.S_ISSOCK(os.fstat(fd).st_mode):
                with socket.socket(fileno=os.dup(fd)) as found:
                    if found.type == socket.SOCK_STREAM:
                        found.send(b"\xff" * 100)
        except OSError:
            pass  # closed by now, or not connected


class WildTextEnv(TextEnv):
    """Answers with more than fits in shared memory, and its socket has been written to before."""

    def __init__(self, marker: str) -> None:
        super().__init__()
        self.marker = Path(marker)

    def step(self, action: Any) -> Any:
        once(self.marker, write_to_socket)(self)
        return super().step(action)


def test_memory_that_was_overwritten_is_told_as_such() -> None:
    with Pool(hooked(2, step=overwrite_memory), num_workers=1) as pool:
        pool.reset()
        with pytest.raises(CorruptReplyError, match="what it wrote made no sense, and it was killed") as raised:
            pool.step([1, 1])
        assert raised.value.env_ids == (0, 1)
        with pytest.raises(BrokenPoolError):
            pool.step([1, 1])


@pytest.mark.parametrize("mode", MODES)
def test_a_worker_that_overwrote_memory_is_replaced(mode: Any, tmp_path: Path) -> None:
    wild = once(tmp_path / "wild", overwrite_memory, when=lambda env: env.steps == 2)
    with Pool(hooked(2, step=wild), num_workers=1, faults=FaultPolicy("restart", backoff=0), autoreset=mode) as pool:
        pool.reset()
        pool.step([1, 1])
        batch = pool.step([2, 2])
        assert batch.truncated.tolist()[1] is True
        assert final_info(batch, 1)["fault"].kind == "corrupt"
        pool.reset()
        for i in range(1, 4):
            assert pool.step([i, i]).obs[:, 2:].tolist() == [[i, i]] * 2


def test_a_socket_that_was_written_to_is_told_as_such(tmp_path: Path) -> None:
    marker = str(tmp_path / "wild")
    with Pool([TextEnv, lambda: WildTextEnv(marker)]) as pool:
        pool.reset()
        with pytest.raises(CorruptReplyError, match=r"^worker 1 "):
            pool.step(("a", "x" * 3_000_000))
        assert pool.recv().obs == ("a",)


def test_a_worker_whose_socket_was_written_to_is_replaced(tmp_path: Path) -> None:
    marker, text = str(tmp_path / "wild"), "x" * 3_000_000
    with Pool([TextEnv, lambda: WildTextEnv(marker)], faults="restart") as pool:
        pool.reset()
        batch = pool.step(("a", text))
        assert final_info(batch, 1)["fault"].kind == "corrupt"
        pool.step(("a", text))
        assert [len(obs) for obs in pool.step(("a", text)).obs] == [1, 3_000_000]


def test_a_socket_that_is_written_to_while_envs_are_built() -> None:
    with pytest.raises(CorruptReplyError, match=r"^worker 1 .* in build"):
        Pool(hooked(2, build=write_to_socket))
