"""Benchmarks: one question per file; `make bench` answers all of them and keeps the figures."""
