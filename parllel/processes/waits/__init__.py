"""Words in shared memory that processes wait for: spin a little, then sleep until the writer wakes them.

lines   int32 [n_lines, 16] in shared memory, each line 64 bytes: its word, a word of ours, payload
Wait    load, post, wait and wake on those lines; three ways to do it behind one interface
"""

from parllel.processes.waits.berths import Berths
from parllel.processes.waits.compiled_wait import CompiledWait
from parllel.processes.waits.futex_wait import FutexWait
from parllel.processes.waits.make_wait import available_kinds, make_wait
from parllel.processes.waits.semaphore_wait import SemaphoreWait
from parllel.processes.waits.wait import LINE_BYTES, LINE_WORDS, Wait

__all__ = [
    "LINE_BYTES",
    "LINE_WORDS",
    "Berths",
    "CompiledWait",
    "FutexWait",
    "SemaphoreWait",
    "Wait",
    "available_kinds",
    "make_wait",
]
