"""Ways for an agent to direct the agents below it, ready to use.

    broadcast      all get the same action
    set_points     each gets its own entry of the action
    split          each gets a share of a total
    a price        each answers a price with a quantity, and the price moves until the quantities add up

The first three are functions for the argument `protocol` of `Agent`. `PriceCoordinator` is an agent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from parllel.distributed.messaging.agent import Agent
from parllel.types import State


def broadcast(action: Any, subordinates: Sequence[str]) -> dict[str, Any]:
    """Return the action itself for each subordinate, by id."""
    return dict.fromkeys(subordinates, action)


def set_points(action: Any, subordinates: Sequence[str]) -> dict[str, Any]:
    """Return one entry of the action for each subordinate, by id.

    action: a sequence or array [n, ...] with an entry for each of the n subordinates, in their order.

    Raises:
        ValueError: if it has another length, or none.
    """
    try:
        n = len(action)
    except TypeError:
        n = None
    if n != len(subordinates):
        got = "no sequence" if n is None else f"{n}"
        raise ValueError(
            f"set_points: expected an entry for each of the {len(subordinates)} agents {list(subordinates)}, "
            f"got {got}: {action!r:.200}"
        )
    return dict(zip(subordinates, action, strict=True))


def split(
    action: Any, subordinates: Sequence[str], weights: Mapping[str, float] | None = None
) -> dict[str, Any]:
    """Return a share of the action for each subordinate, by id. The shares add up to the action.

    action: a number, or an array each of whose entries is split.
    weights: proportions by id, as in `functools.partial(split, weights={...})`; equal by default.

    Raises:
        ValueError: if the weights are not those of the subordinates, are negative or not finite, or
            are all 0.
        TypeError: if the action is not a number or array.
    """
    try:
        equal = action / len(subordinates)
    except TypeError:
        raise TypeError(
            f"split: expected a number or an array to divide among {list(subordinates)}, got {action!r:.200}"
        ) from None
    if weights is None:
        return dict.fromkeys(subordinates, equal)
    total = math.fsum(weights.values())
    if weights.keys() != set(subordinates) or min(weights.values()) < 0 or not 0 < total < math.inf:
        raise ValueError(
            f"split: weights: expected a number of at least 0 for each of {list(subordinates)}, not all "
            f"0, got {dict(weights)}"
        )
    return {name: action * (weights[name] / total) for name in subordinates}


class PriceCoordinator(Agent):
    """Moves a price until the quantities that its subordinates choose add up to a target.

    All subordinates receive the price as their action, and report the "quantity" that they chose. Before
    its next decision, `price += rate * (target - quantity)`, which is dual ascent and in economics
    tâtonnement (Boyd et al. 2011, Distributed Optimization and Statistical Learning via the Alternating
    Direction Method of Multipliers, section 2.1). Its own info has the sums of "quantity" and "reward", and
    the price of this step, so that price coordinators can be below one another. There, the price that a
    coordinator receives is its target.

    Args:
        agent_id: as for Agent.
        price: the first price of an episode.
        rate: change of the price for each unit that is missing. If the quantities become larger as the
            price falls, as those of buyers do, the rate is negative. A rate that is too large makes the
            price oscillate: for quantities that change by s per unit of price altogether, it must be
            between 0 and 2 / s.
        target: the sum of the quantities to reach if nobody sends one: the action of the parent or policy
            comes first. At 0, what buyers and sellers choose is balanced.
        low, high: limits of the price.
        settings: further arguments for Agent, among them `subordinates`.

    Raises:
        ValueError: if `price` is not between `low` and `high`, if a number is not finite or the rate is 0,
            or without subordinates.
        TypeError: if `price`, `rate`, `target` or a limit is not a number.
    """

    def __init__(
        self,
        agent_id: str,
        *,
        price: float,
        rate: float,
        target: float = 0.0,
        low: float = -math.inf,
        high: float = math.inf,
        **settings: Any,
    ) -> None:
        super().__init__(agent_id, **settings)
        if not self.subordinates:
            raise ValueError(f"agent {agent_id!r}: subordinates: expected at least one, got none")
        numbers = {"price": price, "rate": rate, "target": target, "low": low, "high": high}
        for name, value in numbers.items():
            if isinstance(value, bool) or not isinstance(value, (int, float, np.number)):
                raise TypeError(f"agent {agent_id!r}: {name}: expected a number, got {value!r}")
        if not low <= price <= high or not math.isfinite(price):
            raise ValueError(
                f"agent {agent_id!r}: price: expected a number from {low} to {high}, got {price!r}"
            )
        if not math.isfinite(rate) or rate == 0.0:
            raise ValueError(
                f"agent {agent_id!r}: rate: expected a number other than 0, got {rate!r}"
            )
        if not math.isfinite(target):
            raise ValueError(f"agent {agent_id!r}: target: expected a number, got {target!r}")
        self.first_price = self.price = float(price)
        self.rate, self.first_target = float(rate), float(target)
        self.target = self.first_target
        self.low, self.high = low, high

    def reset(self) -> None:
        """Begin with the first price."""
        self.price, self.target = self.first_price, self.first_target

    def observe(self, global_state: Any) -> None:
        """Observe nothing: what it needs is reported to it."""

    def decide(self, observation: None, action: Any) -> dict[str, float]:
        """Return the price for each subordinate.

        action: the target from now on, a number or an array of one entry; None keeps the last one.

        Raises:
            ValueError: if it is not a finite number.
        """
        if action is not None:
            target = np.asarray(action)
            if target.size != 1 or target.dtype.kind not in "fiu" or not np.isfinite(target).all():
                raise ValueError(
                    f"agent {self.agent_id!r}: action: expected a finite number, the target, got "
                    f"{action!r:.200}"
                )
            self.target = float(target.item())
        return dict.fromkeys(self.subordinates, self.price)

    def compile_info(self, infos: dict[str, dict[str, Any]]) -> dict[str, Any]:
        """Report quantity, price and reward, and move the price if the next step sends one.

        Raises:
            ValueError: if a subordinate reports no quantity, or one that is not finite.
        """
        for name, info in infos.items():
            if not math.isfinite(info.get("quantity", math.nan)):
                raise ValueError(
                    f'agent {self.agent_id!r}: expected the number "quantity" in the info of {name!r}, '
                    f"got {info!r:.200}"
                )
        quantity = float(sum(info["quantity"] for info in infos.values()))
        report = {**super().compile_info(infos), "quantity": quantity, "price": self.price}
        # Between two decisions, quantities do not answer a new price yet.
        if (int(self._timestep) + 1) % self.decide_every == 0:
            moved = self.price + self.rate * (self.target - quantity)
            self.price = min(max(moved, self.low), self.high)
        return report

    def state(self) -> State:
        """Return price and target."""
        return {"price": self.price, "target": self.target}

    def load_state(self, state: State) -> None:
        """Restore a state returned by `state`."""
        self.price, self.target = float(state["price"]), float(state["target"])
