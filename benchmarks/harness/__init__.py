"""Harness shared by all benchmarks: measurement, statistics, and storage of results.

`measure` times two ways to do the same work in pairs, `turns` several in rounds, `child` holds what runs in a
process of another interpreter. `interval` says how far a median can be trusted, `answers` turns values into
lines of a table, `results` keeps reports, and `machine` describes what they were measured on.
Nothing here imports a benchmark; `benchmarks.command` makes programs of them, `benchmarks.pages` pages of
docs.
"""
