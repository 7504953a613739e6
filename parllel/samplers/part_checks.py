"""Checks of the parts that a sampler is given."""

from __future__ import annotations

from typing import Any

from parllel.agents import Agent, Handler, check_action_space
from parllel.cages import CageInterface
from parllel.transforms import BatchTransform, StepTransform


def check_handler(handler: Any) -> None:
    """Raise TypeError unless `handler` is one."""
    if not isinstance(handler, Handler):
        hint = "; give TorchHandler(agent) or NumpyHandler(agent)"
        raise TypeError(
            f"handler: expected a Handler, got {handler!r}{hint if isinstance(handler, Agent) else ''}"
        )


def check_actions(handler: Handler, cage: CageInterface) -> None:
    """Raise ValueError unless the agent's actions are those of the environments of a cage."""
    check_action_space(handler.agent, cage.spaces.action, cage.spaces.name)


def check_transforms(step_transforms: Any, batch_transforms: Any = ()) -> None:
    """Raise TypeError unless each transform is of the kind of its list."""
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
