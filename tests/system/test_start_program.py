from __future__ import annotations

import pytest
from python_code import output_of

PROGRAM = """
import gc

if {start}:
    from parllel.system.start_program import start_program
    start_program()

collections = []
gc.callbacks.append(lambda phase, info: collections.append(info["generation"]))
kept = [[] for _ in range(5_000)]
while_it_runs = len(collections)
import atexit
atexit.register(lambda: print(while_it_runs, end=" "))

class Cycle:
    def __init__(self):
        self.own = self

    def __del__(self):
        print("searched", end=" ")

Cycle()
"""


@pytest.mark.parametrize("start", [False, True])
def test_a_program_is_not_searched_for_cycles_as_it_starts_and_ends(start):
    n_collections, *searched = output_of(PROGRAM.format(start=start)).split()
    assert (int(n_collections) > 0, searched) == (not start, [] if start else ["searched"])
