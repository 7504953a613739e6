"""Adam over one flat array of parameters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.types import State

BETAS = (0.9, 0.999)  # the defaults of every implementation
# Options of `torch.optim.Adam`, so that it can load a FlatAdam's state.
_OPTIONS: dict[str, Any] = {
    "betas": list(BETAS),
    "weight_decay": 0,
    "amsgrad": False,
    "maximize": False,
    "foreach": None,
    "capturable": False,
    "differentiable": False,
    "fused": True,
    "decoupled_weight_decay": False,
}
# Those that change the result of a step.
_RESULTS = ("betas", "weight_decay", "amsgrad", "maximize", "decoupled_weight_decay")


class FlatAdam:
    """Adam (Kingma and Ba 2015) for parameters that lie one after the other in one float32 array.

    One compiled pass replaces the calls per parameter of an optimiser: for networks of a few thousand
    parameters these take longer than the arithmetic.

    Args:
        shapes: of the parameters, in their order.
        groups: numbers of parameters in each group, for which norms are computed separately. They add up
            to all parameters.
        learning_rate, eps: as in `torch.optim.Adam`.

    Attributes:
        parameters, gradients: float32 [n]. The owner copies both in, and the parameters out.
        parameter_views: a view of `parameters` for each parameter, in its shape.
        learning_rate: of the next step.

    States have the layout of `torch.optim.Adam`'s, so that a checkpoint can be continued with either.
    """

    def __init__(
        self,
        shapes: Sequence[tuple[int, ...]],
        *,
        groups: Sequence[int],
        learning_rate: float,
        eps: float,
    ) -> None:
        # numba takes a third of a second to import, for those who never update.
        from parllel.algos import compiled_updates

        self._compiled: Any = compiled_updates
        self._shapes = [tuple(shape) for shape in shapes]
        sizes = [math.prod(shape) for shape in self._shapes]
        self._ends = np.cumsum([0, *sizes])
        n = int(self._ends[-1])
        self.learning_rate, self._eps = learning_rate, eps
        self.parameters = np.zeros(n, np.float32)
        self.gradients = np.zeros(n, np.float32)
        self._mean, self._square = np.zeros(n, np.float32), np.zeros(n, np.float32)
        self.parameter_views = self.split(self.parameters)
        self._n_steps = 0
        self._group_ends = self._ends[np.cumsum(groups)]
        self._norms = np.zeros(len(groups))
        self._factors = np.ones(len(groups))

    def split(self, flat: NDArray[np.float32]) -> list[NDArray[np.float32]]:
        """Return a view of `flat` [n] for each parameter, in its shape."""
        parts = zip(pairwise(self._ends.tolist()), self._shapes, strict=True)
        return [flat[start:stop].reshape(shape) for (start, stop), shape in parts]

    def norms(self) -> NDArray[np.float64]:
        """Return the norm of the gradients of each group; valid until the next call."""
        self._compiled.gradient_norms(self.gradients, self._group_ends, self._norms)
        return self._norms

    def step(self, max_norm: float) -> None:
        """Update the parameters with gradients that are clipped to `max_norm`. Call `norms` first."""
        # Not by numpy, whose calls take longer than a few divisions.
        for k, norm in enumerate(self._norms.tolist()):
            # The 1e-6 is from `torch.nn.utils.clip_grad_norm_`, for comparable runs.
            self._factors[k] = max_norm / (norm + 1e-6) if norm > max_norm else 1.0
        self._n_steps += 1
        step_size = self.learning_rate / (1 - BETAS[0] ** self._n_steps)
        correction = 1 / math.sqrt(1 - BETAS[1] ** self._n_steps)
        self._compiled.adam_step(
            self.parameters,
            self.gradients,
            self._mean,
            self._square,
            self._group_ends,
            self._factors,
            step_size,
            correction,
            *BETAS,
            self._eps,
        )

    def state(self) -> State:
        """Return moments, step counts and options, as `torch.optim.Adam` has them."""
        entries = {}
        # An optimiser without steps has no moments.
        if self._n_steps:
            moments = zip(self.split(self._mean), self.split(self._square), strict=True)
            for position, (mean, square) in enumerate(moments):
                entries[str(position)] = {
                    "step": np.array(self._n_steps, np.float32),
                    "exp_avg": mean.copy(),
                    "exp_avg_sq": square.copy(),
                }
        group = {"lr": self.learning_rate, "eps": self._eps, **_OPTIONS}
        group["params"] = list(range(len(self._shapes)))
        return {"state": entries, "param_groups": [group]}

    def load_state(self, state: State) -> None:
        """Restore a state returned by `state`, or of a `torch.optim.Adam` with equal options.

        Raises:
            ValueError: if the state does not fit; nothing is changed then.
        """
        why = misfit(state, self._shapes)
        if why is not None:
            raise ValueError(f"FlatAdam: {why}")
        (group,) = state["param_groups"]
        self.learning_rate, self._eps = float(group["lr"]), float(group["eps"])
        entries = state["state"]
        self._n_steps = int(entries["0"]["step"]) if entries else 0
        for name, flat in (("exp_avg", self._mean), ("exp_avg_sq", self._square)):
            for position, part in enumerate(self.split(flat)):
                part[...] = entries[str(position)][name] if entries else 0.0


def misfit(state: State, shapes: Sequence[tuple[int, ...]]) -> str | None:
    """Return why a FlatAdam for parameters of these shapes cannot load a state, or None if it can."""
    groups, entries = state["param_groups"], state["state"]
    n = len(shapes)
    if len(groups) != 1 or len(groups[0]["params"]) != n:
        return f"expected one group of {n} parameters, got {[len(group['params']) for group in groups]}"
    for name, value in groups[0].items():
        got = list(value) if isinstance(value, tuple) else value
        if name in _RESULTS and got != _OPTIONS[name]:
            return f"{name}: expected {_OPTIONS[name]}, got {got}"
    if not entries:
        return None
    # A parameter that got no gradient in some updates has taken fewer steps.
    steps = sorted({int(entry["step"]) for entry in entries.values()})
    if len(entries) != n or len(steps) != 1:
        return f"expected {n} parameters after equally many steps, got {len(entries)} after {steps}"
    for position, shape in enumerate(shapes):
        found = np.shape(entries[str(position)]["exp_avg"])
        if found != tuple(shape):
            return f"parameter {position}: expected moments of shape {tuple(shape)}, got {found}"
    return None
