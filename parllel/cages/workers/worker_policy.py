"""What acts for the environments of a cage where they are, so that a batch needs no signal on the way.

    main                               worker, for each group
    set_policy(make) ----------------> make_policy(make): an object of its own
    use_batch(k), with a command ----> the function that `rebind_policy` returned
    start_rollout(T) ----------------> start_batch(), then for each t: step(t) writes action row t,
                                       the environments step and write observation row t + 1

Then no process waits for another until its rows are full.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

from parllel.buffers.batches import follows_batches, moving
from parllel.buffers.samples import Samples
from parllel.buffers.tree import buffer_arrays


class WorkerPolicy(Protocol):
    """Act for some columns of a batch.

    Made in the process that steps them, one object for each group. A cage knows nothing else of it: where
    parameters and noise come from is between it and what made it.

    A policy may have a method `use_batch(number)`, which is then called in place of `bind` where another
    batch of a buffer that holds several becomes the current one.
    """

    def bind(self, samples: Samples, columns: slice) -> None:
        """Take the batch, whose memory all processes share, and the columns to act for."""

    def start_batch(self) -> None:
        """Prepare for row 0: what the main process wrote before the rollout is there."""

    def step(self, t: int) -> None:
        """Read `agent.observation[t, columns]`; write the action and agent info of that row."""


def rebind_policy(policy: WorkerPolicy, samples: Samples, columns: slice) -> Callable[[int], None]:
    """Return a function that switches a policy to another batch of the samples that it is bound to."""
    # Looked up once, as `use_batch` runs while main waits for the first row of a batch.
    arrays = moving(buffer_arrays(samples))

    def use_batch(number: int) -> None:
        for array in arrays:  # only main has rotated them, so this process has to follow
            array.block.show(number)
        if follows_batches(policy):
            policy.use_batch(number)  # type: ignore[attr-defined]
        else:
            policy.bind(samples, columns)

    return use_batch


# Pickled by cloudpickle, with the buffers that it holds by name.
MakePolicy: TypeAlias = Callable[[], WorkerPolicy]


def make_policy(make: MakePolicy) -> WorkerPolicy:
    """Return a policy; TypeError unless it looks like one."""
    policy = make()
    # In the worker at once, rather than by an AttributeError in the middle of a rollout.
    missing = [name for name in ("bind", "start_batch", "step") if not hasattr(policy, name)]
    if missing:
        raise TypeError(
            f"policy: expected an object with bind, start_batch and step, got {policy!r} without {missing}"
        )
    return policy
