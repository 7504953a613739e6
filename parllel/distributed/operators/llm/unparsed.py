"""Substitute actions for answers of a language model that name none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from parllel.distributed.operators.llm.llm_error import LlmError
from parllel.envs.space_elements import draw_actions, zero_of


def unparsed_action(
    rule: str,
    space: gym.Space[Any] | None,
    legal: Sequence[Any] | None,
    generator: np.random.Generator,
    text: str = "",
) -> Any:
    """Return the action that a rule chooses.

    Args:
        rule: "random", "first", "noop" or "error". "noop" is the action nearest to zero, or the
            first action if that is illegal.
        space: the action space. None if unknown.
        legal: the legal actions. None or empty for the whole space.
        generator: random generator for the rule "random".
        text: the answer, quoted in the error.

    Raises:
        LlmError: for the rule "error", and if there is no action to choose from.
    """
    if rule == "error":
        raise LlmError(f"the answer names no action: {text[:200]!r}")
    if legal and rule == "random":
        return legal[int(generator.integers(len(legal)))]
    if legal and (rule == "first" or space is None or zero_of(space) not in legal):
        return legal[0]
    if space is None:
        raise LlmError(
            "the answer names no action, and no action can be chosen without an action space"
        )
    return draw_actions(space, generator, ()) if rule == "random" else zero_of(space)
