"""Ways to make a cage for the tests, and to bind it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from parllel.buffers import Samples
from parllel.cages import Cage, ProcessCage, SynchronizedProcessCage, VectorizedCage
from parllel.testing import CountingEnv
from parllel.testing.cages.cage_hooks import run_groups
from parllel.testing.cages.row_reference import make_samples


def forked(env_factory: Callable[[], Any], **options: Any) -> ProcessCage:
    return ProcessCage(env_factory, start_method="fork", **{"timeout_s": 20.0, **options})


def synchronized(factories: Sequence[Callable[[], Any]], **options: Any) -> SynchronizedProcessCage:
    """Make a cage of two workers, if no other number is given."""
    settings = {"n_workers": 2, "start_method": "fork", "timeout_s": 20.0}
    settings["seeds"] = range(len(factories))
    return SynchronizedProcessCage(factories, **{**settings, **options})


# One environment, or two, of which a SynchronizedProcessCage steps one here and one in its worker.
ONE_OF_EACH: dict[str, Any] = {
    "Cage": lambda factory: Cage(factory, seed=3),
    "ProcessCage": lambda factory: forked(factory, seed=3),
    "VectorizedCage": lambda factory: VectorizedCage([factory] * 2, seeds=[3, 4]),
    "SynchronizedProcessCage": lambda factory: synchronized(
        [factory] * 2, n_workers=1, participate=True, n_main=1
    ),
}

MAKERS: dict[str, Callable[..., Any]] = {"Cage": Cage, "ProcessCage": forked}


def bind(cage: Any, env: Any = None, T: int = 4) -> Samples:
    """Bind a cage to samples of its own, for environments like this one."""
    samples = make_samples(env or CountingEnv(), T, cage.n, storage="managed")
    cage.set_samples_buffer(samples, slice(0, cage.n))
    return samples


def begin(cage: Any) -> Samples:
    """Bind a cage of CountingEnvs, and reset it."""
    samples = bind(cage)
    run_groups(cage, "start_reset", 0)
    return samples


def arrived(cage: Any) -> list[list[Any]]:
    """Return the actions of each environment."""
    return [cage.actions] if cage.n == 1 and not isinstance(cage.actions[0], list) else cage.actions
