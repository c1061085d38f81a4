"""The benchmarks' common part: command line, interleaved rounds, the noise rule, tables, results.json and its pages.

A benchmark is a small file beside this folder. It declares contenders and workloads, measures them in the rounds of a
`Session`, and hands the session its tables and notes.
"""
