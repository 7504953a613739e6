"""Sampling side by side: parllel, its peers and the ideal, interleaved on one machine.

    make bench-peers            or    python benchmarks/peers/run.py [--quick] [--only NAME] [--rounds N]

Every side is a server in a process of its own, with the Python that its library needs, and obeys JSON
lines: `venvs.py` makes those Pythons, `server.py` and `client.py` are the two ends of the lines,
`sides/` holds one library a file, `driver.py` takes turns, `goals.py` holds the table to fill.
"""
