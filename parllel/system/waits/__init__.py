"""Waits for words in shared memory: spin briefly, then sleep until the writer wakes the process.

    writer ---- post ----> word, in a line of shared memory ---- load, wait ----> any number of processes

lines   int32 [n_lines, 16] in shared memory, each line 64 bytes: its word, a word of the wait, payload
Wait    load, post, wait and wake on those lines: compiled, with the futex of Linux, or with semaphores
"""

from parllel.system.waits.make_wait import available_kinds, make_wait
from parllel.system.waits.wait import Wait

__all__ = [
    "Wait",
    "available_kinds",
    "make_wait",
]
