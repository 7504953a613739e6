"""What tokens cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Price(NamedTuple):
    """The price of a million tokens of prompts, and of completions, in any currency."""

    prompt: float
    completion: float

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Price | None:
        """Return the price that an operator's settings name; None if they name none."""
        price = settings.get("price")
        return None if price is None else cls(float(price["prompt"]), float(price["completion"]))

    def cost(self, prompt_tokens: int | None, completion_tokens: int | None) -> float | None:
        """Return what tokens cost; None if one of the counts is not known."""
        if prompt_tokens is None or completion_tokens is None:
            return None
        return (self.prompt * prompt_tokens + self.completion * completion_tokens) / 1e6
