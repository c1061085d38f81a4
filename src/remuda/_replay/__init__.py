"""Running crash records again: used by ``remuda replay``.

`plan` lists the resets and steps of a record. A `Player` builds the env and performs them, in a process of its own
that may die or hang, or in the caller's process under a debugger. `diagnosis` compares the `Outcome` with the record.
`script` writes a plan as a program without remuda.
"""
