"""The choice between PPO's ways to compute updates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from parllel.torch.algos.adam import Adam
from parllel.torch.algos.flat_update import FlatUpdate
from parllel.torch.algos.ppo_inputs import PpoInputs
from parllel.torch.algos.ppo_loss import compiled_loss, known_loss, loss_of_outputs
from parllel.torch.known_models import (
    KnownGroup,
    activations_of,
    known_distribution,
    known_groups,
)

# Methods that a flat update replaces.
REPLACED = ("loss", "update", "apply_gradients", "minibatches", "construct_agent_inputs")
_INSTEAD = "give update='auto'"
# A loss, and the sums of its terms, [K, N_SUMS].
Sums: TypeAlias = tuple[Tensor, NDArray[np.float64]]


class UpdateMethod:
    """Decides how an algorithm updates its agent, for each batch anew: hooks may have been added to a model.

    Args:
        algorithm: a PPO; its agent is read at each batch.
        known_class: the class of this library whose methods a flat update replaces.
        names: of several agents, in the order of the columns of a batch; empty for one.
        option: see PPO's argument `update`.

    Raises:
        TypeError, ValueError: by `use`, if the option requires flat updates, and they are not possible.

    Attributes:
        method: of the last batch: "flat", "flat parameters" or "autograd".
    """

    def __init__(
        self,
        algorithm: Any,
        known_class: type[Any],
        names: Sequence[str],
        option: Literal["auto", "autograd", "flat"],
    ) -> None:
        self.method = "autograd"
        self._algorithm, self._known_class = algorithm, known_class
        self._names, self._option = names, option
        self._who = f"{type(algorithm).__name__}: update='flat'"
        self._flat: FlatUpdate | None = None
        self._made_of: list[Any] = []
        # The same during a batch whose losses it can compute.
        self._known: FlatUpdate | None = None

    def use(self, adam: Adam) -> None:
        """Set the optimiser."""
        self._adam = adam
        if self._option == "flat":
            self._check_overrides()
            self._known_groups()

    def start_batch(self, inputs: PpoInputs, alive: Tensor | None) -> FlatUpdate | None:
        """Choose the method for a batch. Returns what learns, or None for the algorithm's methods.

        alive: bool [N, K], which of several agents took part in each step; None if all did.
        """
        adam = self._adam.prepare()
        self.method = "autograd" if adam is None else "flat parameters"
        try:
            groups = self._known_groups()
            assert adam is not None
            made_of = [adam, *((group, activations_of(group.model)) for group in groups)]
            # Activations and distributions may be replaced, too.
            if self._flat is None or made_of != self._made_of:
                self._flat, self._made_of = FlatUpdate(groups, self._names, adam), made_of
            self._known = self._flat
            self._check_overrides()
            self._flat.check(inputs)
        except (TypeError, ValueError) as error:
            if self._option == "flat":
                raise TypeError(str(error)) from None
            return None
        self.method = "flat"
        self._flat.load(inputs, alive)
        self._adam.gather()
        return self._flat

    def finish_batch(self) -> None:
        """Copy the parameters to the model, if they were learned elsewhere."""
        self._known = None
        if self.method == "flat":
            self._adam.scatter()

    def compiled_loss(
        self, inputs: PpoInputs, coefficients: NDArray[np.float64]
    ) -> tuple[Sums | None, Any]:
        """Return the loss of a single agent with the sums of its terms; or None, and what `evaluate` returns.

        coefficients: see `parllel.torch.algos.ppo_loss.compiled_loss`.
        """
        found = self.known_loss(inputs, inputs.valid, coefficients)
        if found is not None:
            return found, None
        agent, is_flat = self._algorithm.agent, self._adam.is_flat
        distribution = known_distribution(agent) if is_flat else None
        if distribution is None:
            outputs = agent.evaluate(action=inputs.action, **inputs.agent)
        else:
            params, value = agent.outputs(**inputs.agent)
            found = loss_of_outputs(params, value, distribution, inputs, coefficients=coefficients)
            if found is not None:
                return found, None
            outputs = agent.evaluate_outputs(params, value, inputs.action)
        if is_flat:
            found = compiled_loss(
                outputs, inputs, inputs.valid, coefficients=coefficients, groups=[[0]]
            )
        return found, outputs

    def known_loss(
        self, inputs: PpoInputs, mask: Tensor | None, coefficients: NDArray[np.float64]
    ) -> Sums | None:
        """Return the loss with gradients that are written out, for subclasses; None if that is impossible."""
        if self._known is None or not self._known.fits(inputs):
            return None
        # Each time, because a subclass may change parameters.
        self._adam.gather()
        return known_loss(self._known, inputs, mask, self._adam.parameters, coefficients)

    def overrides(self, name: str) -> bool:
        """Return whether the algorithm has a method of its own in place of this library's."""
        # Also `algorithm.loss = ...`, which replaces the method of this object only.
        kind = type(self._algorithm)
        return name in vars(self._algorithm) or getattr(kind, name) is not getattr(
            self._known_class, name
        )

    def _check_overrides(self) -> None:
        """Raise TypeError if the class or this object overrides what a flat update replaces."""
        for name in REPLACED:
            if self.overrides(name):
                raise TypeError(
                    f"{self._who}: {name} is overridden, but would not be called; {_INSTEAD}"
                )

    def _known_groups(self) -> list[KnownGroup]:
        """Return the models, after checking that their gradients can be written out.

        Raises:
            TypeError, ValueError: if not.
        """
        groups = known_groups(self._algorithm.agent, self._who, _INSTEAD)
        found = [id(p) for group in groups for p in group.model.parameters()]
        if found != [id(p) for p in self._adam.parameters]:
            raise ValueError(f"{self._who}: the agent's model has been replaced; {_INSTEAD}")
        # `prepare` has just checked a FlatAdam.
        why = None if self._adam.is_flat else self._adam.why_not_flat()
        if why is not None:
            raise TypeError(f"{self._who}: {why}; {_INSTEAD}")
        return groups
