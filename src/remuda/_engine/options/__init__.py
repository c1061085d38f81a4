"""The options of a pool: their names, types, defaults, checks and meanings."""
