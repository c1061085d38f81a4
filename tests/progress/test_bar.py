"""Progress bars while envs are built: shown in a terminal, apart from other output, and removed at the end."""

from __future__ import annotations

import io
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pool_envs import make_gates
from programs import Script

from remuda._progress import bar

if sys.platform != "linux":
    pytest.skip("it needs worker processes, and a pseudo-terminal", allow_module_level=True)

from watched import starting_program, terminal_of

BAR = re.compile(r"^building envs \S+ (\d)/4 \d:\d\d:\d\d", re.MULTILINE)


def counts(*wanted: str) -> Callable[[str], object]:
    return lambda text: (shown := BAR.search(text)) and shown[1] in wanted


@pytest.mark.parametrize(
    ("num_workers", "options", "end"),
    [
        (4, {"start_method": "fork"}, "built"),
        (4, {"backend": "thread"}, "built"),
        (1, {"backend": "serial"}, "built"),
        (4, {}, "replaced"),
    ],
    ids=str,
)
def test_the_bar_counts_the_built_envs_and_names_the_others(
    num_workers: int, options: Any, end: str, tmp_path: Path
) -> None:
    first, second = make_gates(tmp_path, 2)
    patience = bar.PATIENCE if "start_method" in options else 0.0
    replaces = end == "replaced"
    code = starting_program([None, None, first, second], repr(options), patience=patience, replaces=replaces)
    with terminal_of(code.replace("num_workers=4", f"num_workers={num_workers}"), tmp_path) as shown:
        text = shown.await_text(counts("2"))
        assert re.search(r"2/4 \d:\d\d:\d\d waits for envs 2, 3 *$", text, re.MULTILINE)
        first.let_pass()
        shown.await_text(lambda text: counts("3")(text) and "waits for env 3" in text)
        second.let_pass()
        text = shown.await_text(lambda text: end in text and "building" not in text)
        assert text.split() == [end]
        shown.press("\n")
        assert shown.await_end()[0] == 0


def test_log_lines_of_workers_appear_above_the_bar(tmp_path: Path) -> None:
    gate, other = make_gates(tmp_path, 2)
    with terminal_of(starting_program([None, gate, None, other], words="mind the gap"), tmp_path) as shown:
        shown.await_text(counts("2"))
        gate.let_pass()
        text = shown.await_text(lambda text: "mind the gap" in text and counts("2")(text))
        log_line, bar_line, *rest = [line.rstrip() for line in text.splitlines()]
        assert log_line == "log: mind the gap" and BAR.match(bar_line) and not any(rest)
        gate.let_pass()
        other.let_pass()
        shown.await_text(lambda text: "built" in text and "building" not in text)
        shown.press("\n")
        code, text = shown.await_end()
        assert code == 0 and text.split("\n")[0].rstrip() == "log: mind the gap"


@pytest.mark.parametrize("how", ["a factory raises", "Ctrl-C"])
def test_the_bar_disappears_after_an_error(how: str, tmp_path: Path) -> None:
    gate, other = make_gates(tmp_path, 2)
    code = starting_program([None, gate, None, other])
    code = code.replace("return CountingEnv()", "return 1 / 0 if gate else CountingEnv()", 1)
    with terminal_of(code, tmp_path) as shown:
        shown.await_text(counts("2"))
        if how == "Ctrl-C":
            shown.process.send_signal(signal.SIGINT)
        else:
            gate.let_pass()
            other.let_pass()
        status, text = shown.await_end()
    assert status != 0 and "building envs" not in text
    assert ("KeyboardInterrupt" if how == "Ctrl-C" else "ZeroDivisionError") in text


@pytest.mark.parametrize("variables", [{"REMUDA_PROGRESS": "0"}, {"TERM": "dumb"}], ids=lambda one: next(iter(one)))
def test_the_bar_can_be_switched_off(variables: dict[str, str], tmp_path: Path) -> None:
    (gate,) = make_gates(tmp_path, 1)
    with terminal_of(starting_program([None, gate, None, None], words="said"), tmp_path, **variables) as shown:
        gate.let_pass()
        gate.let_pass()
        text = shown.await_text(lambda text: "built" in text)
        assert text.split() == ["log:", "said", "built"]
        shown.press("\n")
        shown.await_end()


def test_without_a_terminal_the_log_names_the_envs_that_are_missing(
    script: Callable[..., Script], tmp_path: Path
) -> None:
    gate, other = make_gates(tmp_path, 2)
    code = starting_program([None, gate, None, other]).replace('log: %(message)s")', 'log: %(message)s", level="INFO")')
    code = code.replace("PATIENCE = patience", "LOG_PATIENCE = patience").replace('print("built")', 'say("built")')
    running = script(code)
    gate.await_arrival()
    other.await_arrival()
    gate.open()
    other.open()
    assert running.read_line() == "built"
    running.write_line()
    status, _, err = running.await_end()
    assert (status, err) == (0, "log: 0 of 4 envs are built after 0 s; missing: envs 0-3\n")


def test_a_second_bar_hides_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stderr(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(sys, "stderr", stderr := Stderr())
    one, other = bar.Bar("one", 3, True), bar.Bar("other", 3, True)
    one.show(1)
    other.show(2)
    # stderr is replaced by a proxy that redraws the second bar after other output
    assert "one" in stderr.getvalue() and sys.stderr is not stderr
    one.hide()  # the first bar is hidden already
    bar.make_way()
    assert sys.stderr is stderr
    # the cursor is visible again
    assert stderr.getvalue().count("\x1b[?25l") == stderr.getvalue().count("\x1b[?25h") == 2
