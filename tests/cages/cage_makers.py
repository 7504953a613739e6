"""Ways to make a cage for the tests, and to bind it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from parllel.buffers import Samples
from parllel.cages import Cage, ProcessCage
from parllel.testing.cages.row_reference import make_samples


def forked(env_factory: Callable[[], Any], **options: Any) -> ProcessCage:
    return ProcessCage(env_factory, start_method="fork", **{"timeout_s": 20.0, **options})


MAKERS: dict[str, Callable[..., Any]] = {"Cage": Cage, "ProcessCage": forked}


def bind(cage: Any, example: Any, T: int = 4, B: int = 1, column: int = 0) -> Samples:
    """Bind a cage to a column of new samples."""
    samples = make_samples(example, T, B)
    cage.set_samples_buffer(samples, slice(column, column + 1))
    return samples
