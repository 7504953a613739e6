"""Policies that act in the environments' processes, so that a whole batch needs no signals in between.

    main                               worker, for each group
    set_policy(make) ----------------> make_policy(make): a separate policy
    use_batch(k), with a command ----> the function that `rebind_policy` returned
    start_rollout(T) ----------------> start_batch(), then for each t: step(t) writes action row t,
                                       the environments step and write observation row t + 1

No process waits for another until all its rows are filled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

from parllel.buffers.batches import follows_batches, moving
from parllel.buffers.samples import Samples
from parllel.buffers.tree import buffer_arrays


class WorkerPolicy(Protocol):
    """Acts for some columns of a batch.

    One policy per group is made in the process that steps these columns. The cage uses only this
    interface; how a policy obtains parameters and noise is up to the function that makes it.

    A policy may also have a method `use_batch(number)`. If it does, this is called instead of
    `bind` when the current batch of a buffer with several batches changes.

    It may have a method `compiled_acts()`, which returns a `parllel.types.CompiledActs` after
    `start_batch`. With compiled environments, one compiled call then acts and steps through all
    rows, and `step` is not called.
    """

    def bind(self, samples: Samples, columns: slice) -> None:
        """Bind to the batch, in shared memory, and to the columns to act for."""

    def start_batch(self) -> None:
        """Prepare for row 0. All data that the main process wrote before the rollout are visible here."""

    def step(self, t: int) -> None:
        """Read `agent.observation[t, columns]`, and write the action and agent_info of that row."""


def rebind_policy(policy: WorkerPolicy, samples: Samples, columns: slice) -> Callable[[int], None]:
    """Return a function that switches a policy to another batch of its bound samples."""
    # Looked up once: `use_batch` runs while main waits for the first row of a batch.
    arrays = moving(buffer_arrays(samples))

    def use_batch(number: int) -> None:
        for array in arrays:  # rotated only in main, so this process must follow
            array.block.show(number)
        if follows_batches(policy):
            policy.use_batch(number)  # type: ignore[attr-defined]
        else:
            policy.bind(samples, columns)

    return use_batch


# Pickled by cloudpickle; buffers that it holds are pickled by name.
MakePolicy: TypeAlias = Callable[[], WorkerPolicy]


def make_policy(make: MakePolicy) -> WorkerPolicy:
    """Make a policy. Raises TypeError if it lacks a method of WorkerPolicy."""
    policy = make()
    # Checked now rather than by an AttributeError in the middle of a rollout.
    missing = [name for name in ("bind", "start_batch", "step") if not hasattr(policy, name)]
    if missing:
        raise TypeError(
            f"policy: expected an object with bind, start_batch and step, got {policy!r}, which "
            f"lacks {missing}"
        )
    return policy
