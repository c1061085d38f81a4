"""Running crash records again: used by ``remuda replay``.

The path of a replay: `plan` lists the resets and steps of a `Record`. `player` starts and watches another process, in
which `play` follows the plan: `RecordedCode` loads the code of the record, if the user allows it, a `Harness` puts one
env behind the loop that a worker has, and `play` reports an `Outcome`. `diagnosis` compares that with the record.
`debug` follows the plan in the caller's process, with a debugger.
"""
