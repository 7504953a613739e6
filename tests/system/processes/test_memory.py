from __future__ import annotations

import mmap
import os

import numpy as np
import pytest

from parllel.system.processes.memory import own_memory

MB = 2**20


def test_memory_that_is_not_shared_counts():
    before = own_memory()
    kept = np.ones(8 * MB, np.float64)
    assert 60 * MB < own_memory() - before < 70 * MB
    assert own_memory(os.getpid()) >= own_memory() - MB
    del kept
    assert own_memory() - before < 10 * MB


def test_memory_that_is_shared_does_not():
    before = own_memory()
    with mmap.mmap(
        -1, 64 * MB
    ) as shared:  # anonymous and shared with children, as arrays of workers are
        np.frombuffer(shared, np.float64)[:] = 1
        assert own_memory() - before < 10 * MB


def test_a_process_that_does_not_exist():
    with pytest.raises(ProcessLookupError, match="process 4194305"):
        own_memory(2**22 + 1)  # above the largest number
