"""What is played when no answer of a language model names an action."""

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
        rule: "random"; "first"; "noop", zero or what is nearest to it, and the first where that is not legal;
            "error".
        space: of the actions; None if it is not known.
        legal: those that may be chosen; None or empty for all of the space.
        generator: draws for "random".
        text: the answer, for the error.

    Raises:
        LlmError: for "error", and if there is nothing to choose from.
    """
    if rule == "error":
        raise LlmError(f"the answer names no action: {text[:200]!r}")
    if legal and rule == "random":
        return legal[int(generator.integers(len(legal)))]
    if legal and (rule == "first" or space is None or zero_of(space) not in legal):
        return legal[0]
    if space is None:
        raise LlmError("the answer names no action, and there is no action space to choose from")
    return draw_actions(space, generator, ()) if rule == "random" else zero_of(space)
