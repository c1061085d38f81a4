"""The ``remuda`` command: one file a subcommand."""
