"""A small policy that acts in the processes of a cage."""

from __future__ import annotations

from collections.abc import Callable

from parllel.agents.shared_parameters import NEVER, SharedParameters
from parllel.agents.small_policy import SmallPolicy
from parllel.arrays.batch_views import BatchViews
from parllel.buffers.batches import batch_number
from parllel.buffers.samples import Samples
from parllel.errors import WrongStateError


class SmallWorkerPolicy:
    """Act for some columns with parameters and noise that the main process leaves in shared memory.

    It is what `SynchronizedProcessCage.set_policy` wants its function to return; the framework that the
    parameters come from is not needed.

    Args:
        make: makes the policy.
        shared: its parameters, as `SmallPolicy.parameters` lists them.
    """

    def __init__(self, make: Callable[[], SmallPolicy], shared: SharedParameters) -> None:
        self._policy = make()
        self._shared = shared
        self._version = NEVER
        self._columns = slice(0, 0)

    def bind(self, samples: Samples, columns: slice) -> None:
        """Take the batch, the field of noise in it, and the columns to act for.

        Raises:
            ValueError: as `SmallPolicy.bind` does, or if there is no such field.
        """
        noise = getattr(samples.agent, "noise", None)
        if noise is None:
            raise ValueError(
                "agent.noise: expected a field, as policies in workers read their noise from the batch; "
                "parllel_patterns.allocate_samples(..., noise=True) makes one"
            )
        self._policy.bind(samples)
        self._noises = BatchViews(noise)
        self._noise = self._noises.rows(batch_number([noise]))
        self._columns = columns

    def use_batch(self, number: int) -> None:
        """Go over to batch `number` of a buffer that holds several."""
        self._policy.use_batch(number)
        self._noise = self._noises.rows(number)

    def start_batch(self) -> None:
        """Take the parameters, if they are new, and the noise."""
        if not hasattr(self, "_noise"):
            raise WrongStateError("SmallWorkerPolicy: there is no batch; call bind first")
        # Into memory of its own: what other processes write is not read while this one acts.
        self._version = self._shared.load(self._policy.parameters, self._version)
        self._policy.start_batch(self._noise)

    def step(self, t: int) -> None:
        """Act on row `t`."""
        self._policy.step(t, self._columns)
