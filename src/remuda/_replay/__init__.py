"""Running crash records again: used by ``remuda replay``.

The path of a replay: `unpickle` loads what of a `Record` is code, if the user allows it; `plan` says what is to be
done; a `Harness` has one env behind the loop that a worker has; `play` follows the plan there in a process of its own,
which `player` starts and watches, and reports an `Outcome`; `diagnosis` compares that with the record. `debug` does the
same in the caller's process, with a debugger.
"""
