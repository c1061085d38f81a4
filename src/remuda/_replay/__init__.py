"""Running crash records again: used by ``remuda replay``.

The path of a replay: `plan` lists the resets and steps of a `Record`. `player` starts and watches another process, in
which `play` follows the plan. There `RecordedCode` loads the code of the record, if the user allows it, a `Harness`
runs one env in a worker's loop, and `play` reports an `Outcome`. `diagnosis` compares it with the record.
`debug` follows the plan in the caller's process, with a debugger.
"""
