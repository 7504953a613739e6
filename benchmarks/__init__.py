"""Benchmarks, one question per file. `make bench` runs all of them and stores the figures."""
