"""Benchmarks of vector envs against one another: used by ``remuda bench`` and by ``benchmarks/``.

The path of a measurement: a `Workload` defines the env, a `Plan` the conditions, and `registry` the
contenders. `race` builds them all, steps them in interleaved rounds, and fills a `Result`. `report` makes a
report of it, which `remuda._reports` shows.
"""
