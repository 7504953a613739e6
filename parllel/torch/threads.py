"""How many threads PyTorch computes with on the CPU.

Its default, a thread for each core, makes training of small networks two to six times as slow as one thread:
an operation takes less time than its threads need to synchronise, and on a busy machine all wait for the
slowest. The number applies to the whole process, so it is chosen once for all models in it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

import torch
from torch import nn

SMALL = 200_000  # parameters: two networks with two layers of 256 units are below
_BY_ENVIRONMENT = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
# Read when this is imported, to recognise a number that a script sets afterwards.
_default = torch.get_num_threads()
_chosen: int | None = None  # by set_threads


def set_threads(models: Iterable[nn.Module], threads: int | None = None) -> int:
    """Set the number of PyTorch's threads for models on the CPU, and return it.

    threads: None chooses: one where all models have fewer than 200 000 parameters, else PyTorch's default.
        A number that was chosen before, by `torch.set_num_threads`, OMP_NUM_THREADS or MKL_NUM_THREADS,
        is kept.

    Raises:
        ValueError: if `threads` is less than one.
    """
    global _chosen
    if threads is not None:
        if threads < 1:
            raise ValueError(f"threads: expected at least 1, got {threads}")
        torch.set_num_threads(threads)
        return threads
    now = torch.get_num_threads()
    # The environment is asked as well, since PyTorch's default is then the chosen number itself.
    if any(name in os.environ for name in _BY_ENVIRONMENT) or now not in (_default, _chosen):
        return now
    sizes = [sum(p.numel() for p in model.parameters()) for model in models]
    if not sizes or _chosen == _default:  # a large model has its threads, whatever comes after it
        return now
    _chosen = 1 if max(sizes) < SMALL else _default
    torch.set_num_threads(_chosen)
    return _chosen
