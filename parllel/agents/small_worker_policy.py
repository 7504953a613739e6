"""Small policy that acts in the worker processes of a cage.

main process    start_batch: publishes parameters to SharedParameters, writes agent.noise
worker          start_batch: loads parameters if their version is new, and the noise
                step: reads observations and noise, writes actions of its own columns
"""

from __future__ import annotations

from collections.abc import Callable

from parllel.agents.shared_parameters import NEVER, SharedParameters
from parllel.agents.small_policy import SmallPolicy
from parllel.arrays.batch_views import BatchViews
from parllel.buffers.batches import batch_number
from parllel.buffers.samples import Samples
from parllel.errors import WrongStateError
from parllel.types import CompiledActs


class SmallWorkerPolicy:
    """Acts for some columns with parameters and noise that the main process writes to shared memory.

    Return it from the function passed to `SynchronizedProcessCage.set_policy`. The worker does not need the
    framework in which the policy is trained.

    Args:
        make: function that makes the policy.
        shared: the policy's parameters, in the order of `SmallPolicy.parameters`.
    """

    def __init__(self, make: Callable[[], SmallPolicy], shared: SharedParameters) -> None:
        self._policy = make()
        self._shared = shared
        self._version = NEVER
        self._columns = slice(0, 0)

    def bind(self, samples: Samples, columns: slice) -> None:
        """Set the batch with its noise field, and the columns to act for.

        Raises:
            ValueError: for the reasons given in `SmallPolicy.bind`, or if there is no noise field.
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
        """Switch to batch `number` of a buffer that holds several."""
        self._policy.use_batch(number)
        self._noise = self._noises.rows(number)

    def start_batch(self) -> None:
        """Load the parameters if they are new, and the noise."""
        if not hasattr(self, "_noise"):
            raise WrongStateError("SmallWorkerPolicy: no batch is bound; call bind first")
        # Copied to private memory, so that acting never reads what another process may be writing.
        self._version = self._shared.load(self._policy.parameters, self._version)
        self._policy.start_batch(self._noise)

    def compiled_acts(self) -> CompiledActs:
        """Return the policy in a form that compiled environments can call. Call `start_batch` first."""
        return self._policy.compiled_acts()

    def step(self, t: int) -> None:
        """Act on row `t`."""
        self._policy.step(t, self._columns)
