"""Checks of the parts that a sampler is built from: handler, actions, transforms and buffer."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from parllel.agents.action_check import check_action_space
from parllel.agents.agent import Agent
from parllel.agents.handler import Handler
from parllel.arrays.array import Array
from parllel.arrays.block import Block
from parllel.arrays.switching import SwitchingArray
from parllel.buffers.batches import count_batches, moving
from parllel.buffers.samples import Samples
from parllel.cages.cage_interface import CageInterface
from parllel.cages.owners import Owners
from parllel.transforms.transform import BatchTransform, StepTransform, Transform
from parllel.types import BatchSpec

_USED = Owners()


def check_handler(handler: Any) -> None:
    """Check that `handler` is a Handler. Raises TypeError."""
    if not isinstance(handler, Handler):
        hint = "; pass TorchHandler(agent) or NumpyHandler(agent)"
        raise TypeError(
            f"handler: expected a Handler, got {handler!r}{hint if isinstance(handler, Agent) else ''}"
        )


def check_actions(handler: Handler, cage: CageInterface) -> None:
    """Check that the agent acts in the action space of the environments. Raises ValueError."""
    # One cage is enough, as CageColumns has compared their spaces.
    check_action_space(handler.agent, cage.spaces.action, cage.spaces.name)


def check_transforms(step_transforms: Any, batch_transforms: Any = ()) -> None:
    """Check that the lists hold only StepTransforms and only BatchTransforms. Raises TypeError."""
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
    """Check that `samples` is a buffer [T, B]. Raises TypeError or ValueError."""
    if not isinstance(samples, Samples):
        raise TypeError(f"samples: expected Samples(agent, env), got {type(samples).__name__}")
    reward = samples.env.reward
    if not isinstance(reward, Array) or reward.shape[:2] != batch_spec.shape:
        raise ValueError(f"samples: expected [T, B] = {batch_spec.shape}, env.reward is {reward!r}")


def moving_blocks(arrays: Sequence[Array]) -> list[Block]:
    """Return the memory blocks of all arrays that hold several batches.

    Raises:
        ValueError: if only some arrays switch, or they hold different numbers of batches.
    """
    switching = [isinstance(array, SwitchingArray) for array in arrays]
    if any(switching) and not all(switching):
        raise ValueError("samples: expected arrays that all switch, or none; got a mixture")
    count_batches(arrays)
    return [array.block for array in moving(arrays)]


def claim_parts(
    sampler: Any,
    handler: Handler | None,
    samples: Samples,
    transforms: Sequence[Transform] = (),
) -> None:
    """Claim parts for exclusive use by a sampler, until `release_parts`.

    handler: the handler of a training sampler. None for an evaluation, which shares its handler and
        transforms with training.

    Raises:
        ValueError: if another open sampler has claimed one of the parts, or a transform is given
            twice.
    """
    _check_given_once(transforms)
    # A handler is bound to one buffer. The memory of a recurrent agent belongs to one set of environments,
    # even if another handler has the same agent.
    parts: list[tuple[str, Any, str]] = [
        ("samples", samples.env.reward.block, "allocate a buffer for each sampler")
    ]
    if handler is not None:
        parts.append(("handler", handler, "make a handler for each, of the same agent if you like"))
        if handler.agent.recurrent:
            hint = "it remembers one set of environments; give each sampler an agent of its own"
            parts.append(("handler.agent", handler.agent, hint))
        hint = "make one for each; an EvalSampler shares those of training"
        parts += [(type(one).__name__, one, hint) for one in transforms]
    for name, part, hint in parts:
        other = _USED.owner_of(part)
        if other not in (None, sampler):
            raise ValueError(
                f"{name}: expected one that this {type(sampler).__name__} has to itself, got that of another "
                f"{type(other).__name__}; {hint}, or close the other sampler first"
            )
    for _, part, _ in parts:
        _USED.claim(part, sampler)


def release_parts(sampler: Any) -> None:
    """Release all parts of a sampler."""
    _USED.release(sampler)


def _check_given_once(transforms: Sequence[Transform]) -> None:
    for i, transform in enumerate(transforms):
        if any(transform is other for other in transforms[:i]):
            raise ValueError(
                f"transforms: expected each once, got the same {type(transform).__name__} twice; what it "
                "keeps would count every batch twice"
            )


def warn_of_discounts(transforms: Sequence[Transform]) -> None:
    """Warn if transforms use different discount factors for the same rewards."""
    discounts = {type(one).__name__: getattr(one, "discount", None) for one in transforms}
    found = {name: value for name, value in discounts.items() if isinstance(value, float)}
    if len(set(found.values())) > 1:
        listed = ", ".join(f"{name}({discount})" for name, discount in found.items())
        warnings.warn(
            f"transforms: expected one discount for all, got {listed}: rewards would be scaled by returns "
            "of a different horizon than the agent learns; give all the same discount",
            stacklevel=4,
        )
