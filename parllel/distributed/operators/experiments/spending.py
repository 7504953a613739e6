"""Spending of an experiment's language models, and its budget.

threads of operators    add: after each decision;  check: before each step
the main thread         as_json, reason, at the end
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from parllel.distributed.operators.experiments.episode_gate import EpisodeGate, StoppedError
from parllel.distributed.operators.experiments.results import Price
from parllel.distributed.operators.protocol.multi_agent_config import AnyConfig, operators_of

LIMITS = ("tokens", "calls", "cost")


def checked_budget(budget: Any, operators: Sequence[AnyConfig]) -> dict[str, float] | None:
    """Return the validated budget of an experiment with these operators.

    Raises:
        TypeError, ValueError: if the budget does not map names in LIMITS to numbers, or a price is
            missing.
    """
    if budget is None:
        return None
    expected = f"budget: expected limits for some of {', '.join(LIMITS)}"
    if not isinstance(budget, Mapping):
        raise TypeError(f"{expected}, got {budget!r}")
    if not budget or not set(budget) <= set(LIMITS):
        raise ValueError(f"{expected}, got {dict(budget)!r}")
    for name, limit in budget.items():
        is_number = isinstance(limit, int if name != "cost" else (int, float))
        if isinstance(limit, bool) or not is_number or not 0 < limit < math.inf:
            kind = "a number" if name == "cost" else "a whole number"
            raise ValueError(f"budget: {name}: expected {kind} above 0, got {limit!r}")
    for config in operators_of(operators):
        if "cost" in budget and config.operator_type == "llm" and Price.of(config.settings) is None:
            raise ValueError(
                f"budget: cost: expected a price in the settings of {config.operator_id!r}, got none"
            )
    return dict(budget)


class Spending:
    """Adds up the spending of all operators, and stops them when the budget is used up.

    Args:
        budget: limits on the spending, see `checked_budget`.
        operators: the operators, whose settings contain the prices.
    """

    def __init__(self, budget: Mapping[str, float], operators: Sequence[AnyConfig]) -> None:
        self._budget = budget
        self._prices = {c.operator_id: Price.of(c.settings) for c in operators_of(operators)}
        self._lock = threading.Lock()
        self._spent: dict[str, float] = dict.fromkeys(LIMITS, 0)
        self._uncounted: str | None = None
        self._has_stopped = False

    def add(self, record: Mapping[str, Any]) -> None:
        """Add the costs in the record of a step, an episode or an unplayed decision."""
        tokens, calls = record.get("tokens"), record.get("calls")
        if tokens is None and calls is None:
            return  # not a language model
        operator = str(record["operator_id"])
        cost = None
        price = self._prices.get(operator)
        if price is not None:
            cost = price.cost(record.get("prompt_tokens"), record.get("completion_tokens"))
        with self._lock:
            for name, value in (("tokens", tokens), ("calls", calls), ("cost", cost)):
                if value is not None:
                    self._spent[name] += value
                elif name in self._budget and self._uncounted is None:
                    self._uncounted = f"{operator}: its worker or server does not count {name}"

    def check(self, gate: EpisodeGate) -> None:
        """Raise StoppedError if no further decision may be made, and stop all others at the gate."""
        # Decisions that other operators are just making cannot be taken back: a budget may be exceeded by one
        # decision per operator.
        if self._why() is not None:
            self._has_stopped = True
            gate.stop()
            raise StoppedError

    @property
    def reason(self) -> str | None:
        """Why the budget stopped the experiment, in one sentence; None if it did not."""
        return f"budget: {self._why()}" if self._has_stopped else None

    def as_json(self) -> dict[str, float]:
        """Return the totals so far: tokens, calls, cost."""
        with self._lock:
            return dict(self._spent)

    def _why(self) -> str | None:
        with self._lock:
            if self._uncounted is not None:
                return f"{self._uncounted}, which it limits"
            for name, limit in self._budget.items():
                if self._spent[name] >= limit:
                    used = f"{self._spent[name]:,.10g} of {limit:,.10g}"
                    return (
                        f"a cost of {used} is used up"
                        if name == "cost"
                        else f"{used} {name} are used"
                    )
        return None
