"""Check the handler, the agent's actions and the transforms that a sampler is built from."""

from __future__ import annotations

from typing import Any

from parllel.agents import Agent, Handler, check_action_space
from parllel.cages import CageInterface
from parllel.transforms import BatchTransform, StepTransform


def check_handler(handler: Any) -> None:
    """Raise TypeError unless `handler` is a Handler."""
    if not isinstance(handler, Handler):
        hint = "; give TorchHandler(agent) or NumpyHandler(agent)"
        raise TypeError(
            f"handler: expected a Handler, got {handler!r}{hint if isinstance(handler, Agent) else ''}"
        )


def check_actions(handler: Handler, cage: CageInterface) -> None:
    """Raise ValueError unless the agent acts in the action space of the cage's environments."""
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
