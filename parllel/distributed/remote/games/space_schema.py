"""JSON schemas of gymnasium spaces, and default actions."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from gymnasium import spaces

from parllel.distributed.wire.space_json import to_json
from parllel.envs.space_elements import zero_of


def space_schema(space: gym.Space[Any]) -> dict[str, Any]:
    """Return a JSON schema for values of a space, in the form of `to_json`.

    For a Box the schema checks only the shape. Observations exceed the bounds at times, and actions
    are clipped to them.

    Raises:
        ValueError: for a space without a JSON form.
    """
    if isinstance(space, spaces.Discrete):
        first = int(space.start)
        return {"type": "integer", "minimum": first, "maximum": first + int(space.n) - 1}
    if isinstance(space, spaces.Box):
        # Non-finite floats are strings.
        kinds = {"b": "boolean", "f": ["number", "string"]}
        return _nested({"type": kinds.get(space.dtype.kind, "integer")}, space.shape)
    if isinstance(space, (spaces.MultiDiscrete, spaces.MultiBinary)):
        return _nested({"type": "integer"}, space.shape)
    if isinstance(space, spaces.Text):
        return {"type": "string"}
    if isinstance(space, spaces.Dict):
        parts = {str(name): space_schema(part) for name, part in space.spaces.items()}
        return {"type": "object", "properties": parts, "required": list(parts)}
    if isinstance(space, (spaces.Tuple, spaces.OneOf)):
        return {"type": "array"}
    if isinstance(space, spaces.Sequence) and not space.stack:
        return {"type": "array"}
    raise ValueError(f"expected a space whose values have a JSON form, got {space}")


def _nested(schema: dict[str, Any], shape: tuple[int, ...]) -> dict[str, Any]:
    for length in reversed(shape):
        schema = {"type": "array", "items": schema, "minItems": length, "maxItems": length}
    return schema


def action_schema(space: gym.Space[Any]) -> dict[str, Any]:
    """Return the schema of an action space, with zero clipped to the space as the default."""
    try:
        return {**space_schema(space), "default": default_action(space)}
    except TypeError:  # texts and sequences have no zero
        return space_schema(space)


def default_action(space: gym.Space[Any]) -> Any:
    """Return zero, clipped to an action space, as JSON.

    Raises:
        TypeError: for a space whose elements have no fixed size.
    """
    return to_json(space, zero_of(space))


def check_mask(space: gym.Space[Any], mask: list[int] | None, action: Any) -> None:
    """Raise ValueError for an action that the mask forbids."""
    if mask is None or not isinstance(space, spaces.Discrete):
        return
    if not mask[int(action) - int(space.start)]:
        raise ValueError(f"expected an action that action_mask allows, got {action}")
