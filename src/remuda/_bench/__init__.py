"""The benchmark harness: used by ``remuda bench``, by ``remuda demo`` and by the scripts in ``benchmarks/``.

A `Workload` is an env, a `Plan` has the settings, and a `Contender` is a way to step the envs. `race` builds all
contenders, steps them in interleaved rounds, and returns a `Result`. `report` makes a table, a chart and JSON of it.
"""
