"""Signals that a scheduler sends to every process of a job: the pool survives those that the program survives."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from programs import Script, Watched, end_process

NUMBERS = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM, signal.SIGXCPU)

PROGRAM = """
import multiprocessing, time

def handle(number):
    signal.signal(number, lambda *_: seen.append(number))

def ignore(number):
    signal.signal(number, signal.SIG_IGN)

def block(number):
    signal.pthread_sigmask(signal.SIG_BLOCK, [number])

def count_usr2(env):
    env.usr2 = 0
    def count(*_):
        env.usr2 += 1
    signal.signal(signal.SIGUSR2, count)

def end_children(env):
    # An exec'd program must not inherit ignored signals, and a forked child must not survive them.
    program = subprocess.Popen(["sleep", "inf"])
    program.terminate()
    forked = multiprocessing.get_context("fork").Process(target=signal.pause)
    forked.start()
    forked.terminate()
    forked.join()
    return [program.wait(), forked.exitcode, len(signal.pthread_sigmask(signal.SIG_BLOCK, []))]

seen = []
reader, writer = os.pipe()
os.set_blocking(writer, False)
signal.set_wakeup_fd(writer)  # as event loops do
ignore(signal.SIGTERM), block(signal.SIGUSR1)  # before the pool is made
pool = Pool(hooked(2, build=count_usr2), start_method=METHOD)
pool.reset()
for survive in (ignore, block, handle):
    for number in NUMBERS:
        survive(number)
    for number in NUMBERS:
        say(pool.call("poke"))
        sys.stdin.readline()  # the signal is sent to all processes now
        assert pool.step([3, 4]).rewards.tolist() == [3, 4]
    signal.pthread_sigmask(signal.SIG_UNBLOCK, NUMBERS)
assert sorted(seen) == sorted(os.read(reader, 1000)) == sorted(NUMBERS), seen
say([pids(pool), pool.apply(end_children), pool.get_attr("usr2", env_ids=[1])])
sys.stdin.readline()
signal.signal(signal.SIGUSR1, signal.SIG_DFL)
say("default")
sys.stdin.readline()
try:
    pool.step([3, 4])
except WorkerDiedError as error:
    say([error.worker, error.exitcode])
signal.pause()
"""


def test_a_pool_survives_the_signals_that_its_program_survives(
    start_method: Any, script: Callable[..., Script]
) -> None:
    run = script(f"METHOD = {start_method!r}\nNUMBERS = {list(map(int, NUMBERS))}\n{PROGRAM}")
    first: set[int] = set()
    for number in NUMBERS * 3:
        assert run.read_line() == ["poked", "poked"]
        first = first or set(run.family())
        for pid in first:
            os.kill(pid, number)
        run.write_line()
    (pid, _), ends, usr2 = run.read_line()
    assert set(run.family()) == first
    assert ends == [[-signal.SIGTERM, -signal.SIGTERM, 0]] * 2
    assert usr2 == [3]  # a handler of the env is called
    run.write_line()

    # The program does not survive the signal: it has the usual effect on a worker, too.
    assert run.read_line() == "default"
    end_process(pid, signal.SIGUSR1)
    run.write_line()
    assert run.read_line() == [0, -signal.SIGUSR1]
    watched = Watched(run.family())
    for pid in watched.pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGUSR1)
    watched.await_end()
    assert run.await_end() == (-signal.SIGUSR1, "", "")
