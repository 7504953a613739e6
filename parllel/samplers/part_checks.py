"""Check the handler, the agent's actions, the transforms and the buffer that a sampler is built from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from parllel.agents import Agent, Handler, check_action_space
from parllel.arrays import Array, Block, SwitchingArray
from parllel.buffers import Samples, count_batches, moving
from parllel.cages import CageInterface
from parllel.transforms import BatchTransform, StepTransform
from parllel.types import BatchSpec


def check_handler(handler: Any) -> None:
    """Raise TypeError unless `handler` is a Handler."""
    if not isinstance(handler, Handler):
        hint = "; give TorchHandler(agent) or NumpyHandler(agent)"
        raise TypeError(
            f"handler: expected a Handler, got {handler!r}{hint if isinstance(handler, Agent) else ''}"
        )


def check_actions(handler: Handler, cage: CageInterface) -> None:
    """Raise ValueError unless the agent acts in the action space of the cage's environments."""
    # One cage stands for all, as CageColumns has compared their spaces.
    check_action_space(handler.agent, cage.spaces.action, cage.spaces.name)


def check_transforms(step_transforms: Any, batch_transforms: Any = ()) -> None:
    """Raise TypeError unless one list holds StepTransforms only, and the other BatchTransforms."""
    kinds = StepTransform, BatchTransform
    names = "step_transforms", "batch_transforms"
    for which, transforms in enumerate((step_transforms, batch_transforms)):
        for i, transform in enumerate(transforms):
            if not isinstance(transform, kinds[which]):
                other = isinstance(transform, kinds[1 - which])
                hint = f"; it belongs to {names[1 - which]}" if other else ""
                raise TypeError(
                    f"{names[which]}[{i}]: expected a {kinds[which].__name__}, got {transform!r}{hint}"
                )


def check_samples(samples: Samples, batch_spec: BatchSpec) -> None:
    """Raise TypeError or ValueError unless `samples` is a buffer [T, B]."""
    if not isinstance(samples, Samples):
        raise TypeError(f"samples: expected Samples(agent, env), got {type(samples).__name__}")
    reward = samples.env.reward
    if not isinstance(reward, Array) or reward.shape[:2] != batch_spec.shape:
        raise ValueError(f"samples: expected [T, B] = {batch_spec.shape}, env.reward is {reward!r}")


def moving_blocks(arrays: Sequence[Array]) -> list[Block]:
    """Return the memory of those arrays of a buffer that hold several batches.

    Raises:
        ValueError: if some arrays switch and others do not, or they hold different numbers of batches.
    """
    switching = [isinstance(array, SwitchingArray) for array in arrays]
    if any(switching) and not all(switching):
        raise ValueError("samples: expected arrays that all switch, or none; got a mixture")
    count_batches(arrays)
    return [array.block for array in moving(arrays)]
