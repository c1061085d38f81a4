"""The benchmarks' common part: command line, interleaved rounds, the noise rule, tables, and publishing into README.md.

A benchmark is a small file beside this folder. It declares contenders and workloads, measures them in the rounds of a
`Session`, and hands the session the lines of its table.
"""
