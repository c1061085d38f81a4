"""The ``remuda`` command: one file for each subcommand."""
