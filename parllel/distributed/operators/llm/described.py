"""Descriptions of observations and spaces as text."""

from __future__ import annotations

import inspect
import re
import sys
import textwrap
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

_LISTED = 64  # elements of a vector that are listed one by one, with their bounds
_MAX_NUMBERS = 1000  # of an array that is shown
_MAX_CHARACTERS = 6000
# Parts that terminals would colour, such as the player's position.
_MARKED = re.compile(r"\x1b\[[0-9;]*m(.*?)\x1b\[0m", re.DOTALL)
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
# The sections of Gymnasium's documentation that a player needs.
_SECTIONS = ("description", "action space", "observation space", "rewards")
_NOT_SHOWN = ("action_mask",)


def described(space: gym.Space[Any] | None, observation: Any) -> str:
    """Describe an observation as text: names, numbers and bounds, as far as its space defines them.

    space: the observation's space. None if unknown; the observation is then written as Python
        prints it.
    """
    return "\n".join(_lines(space, observation, ""))[:_MAX_CHARACTERS]


def shown_text(text: str) -> str:
    """Return the text rendering of an environment, with brackets around parts that terminals would colour."""
    return _ESCAPES.sub("", _MARKED.sub(r"[\1]", text)).strip("\n")[:_MAX_CHARACTERS]


def documentation(env: gym.Env[Any, Any]) -> str:
    """Return the parts of an environment's documentation for players, or "" if it has none."""
    kind = type(env.unwrapped)
    text = textwrap.dedent(inspect.cleandoc(kind.__dict__.get("__doc__") or ""))
    parts = re.split(r"^ *#+ *(.+)$", text, flags=re.MULTILINE)
    sections = dict(zip((name.strip() for name in parts[1::2]), parts[2::2], strict=True))
    known = [
        f"{name}: {section.strip()}"
        for name, section in sections.items()
        if name.lower() in _SECTIONS
    ]
    return ("\n\n".join(known) or text)[:_MAX_CHARACTERS]


def described_actions(space: gym.Space[Any] | None) -> str:
    """Return a sentence that lists the actions and explains how to write one."""
    if isinstance(space, spaces.Discrete):
        first = int(space.start)
        return f"An action is a whole number from {first} to {first + int(space.n) - 1}."
    if isinstance(space, spaces.Box) and space.dtype is not None:
        kind = "whole numbers" if space.dtype.kind in "iu" else "numbers"
        low, high = space.low.tolist(), space.high.tolist()
        if space.low.size and (space.low == space.low.flat[0]).all():
            low = space.low.flat[0].item()
        if space.high.size and (space.high == space.high.flat[0]).all():
            high = space.high.flat[0].item()
        return f"An action is a JSON list of {kind} of shape {list(space.shape)}, from {low} to {high}."
    if isinstance(space, spaces.MultiDiscrete):
        return f"An action is a JSON list of whole numbers from 0, each below that of {space.nvec.tolist()}."
    if isinstance(space, spaces.MultiBinary):
        return f"An action is a JSON list of zeros and ones of shape {list(space.shape)}."
    return f"An action is written in JSON, as a value of {space}."


def _lines(space: gym.Space[Any] | None, value: Any, name: str) -> list[str]:
    parts = _parts(space, value)
    if parts is not None:
        return [
            line
            for key, (part, inner) in parts.items()
            if key not in _NOT_SHOWN
            for line in _lines(part, inner, f"{name}.{key}" if name else str(key))
        ]
    if isinstance(space, spaces.Discrete):
        last = int(space.start) + int(space.n) - 1
        return [f"{name or 'observation'}: {value} (of {int(space.start)} to {last})"]
    if isinstance(value, np.ndarray):
        return _array(space, value, name or "observation")
    return [f"{name}: {value}" if name else str(value)]


def _parts(
    space: gym.Space[Any] | None, value: Any
) -> Mapping[Any, tuple[gym.Space[Any] | None, Any]] | None:
    """Return the parts of a dict or tuple with their spaces, or None for anything else."""
    if isinstance(space, spaces.Dict) and isinstance(value, Mapping):
        return {key: (space.spaces.get(key), inner) for key, inner in value.items()}
    if isinstance(space, spaces.Tuple) and isinstance(value, (tuple, list)):
        return dict(enumerate(zip(space.spaces, value, strict=False)))
    if space is None and isinstance(value, Mapping):
        return {key: (None, inner) for key, inner in value.items()}
    return None


def _array(space: gym.Space[Any] | None, value: np.ndarray[Any, Any], name: str) -> list[str]:
    if value.ndim == 1 and value.size <= _LISTED and isinstance(space, spaces.Box):
        bounds = zip(value.tolist(), space.low.tolist(), space.high.tolist(), strict=True)
        return [
            f"{name}[{i}]: {_number(x)}{_between(*ends)}" for i, (x, *ends) in enumerate(bounds)
        ]
    if value.size > _MAX_NUMBERS:
        return [f"{name}: an array of shape {list(value.shape)}, too large to be shown as text"]
    text = np.array2string(
        value,
        threshold=sys.maxsize,
        separator=", ",
        max_line_width=120,
        formatter={"float_kind": _number},
    )
    return [f"{name}: {text}" if value.ndim <= 1 else f"{name}:\n{text}"]


def _between(low: float, high: float) -> str:
    # Many environments use the largest float for "unbounded".
    known = [abs(end) < 1e30 for end in (low, high)]
    if all(known):
        return f" (from {_number(low)} to {_number(high)})"
    if known[0]:
        return f" (at least {_number(low)})"
    return f" (at most {_number(high)})" if known[1] else ""


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
