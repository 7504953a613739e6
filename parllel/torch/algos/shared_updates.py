"""Updates of PPO with several learners, each of which holds some columns of the batch.

every learner   permutation of the steps of all learners, from equal generators
                its own steps of a minibatch -> gradients, loss and diagnostics, times its share of the steps
all learners    sum, in one exchange
every learner   clip, step of Adam
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from parllel.algos.learner_group import LearnerGroup
from parllel.torch.algos.flat_update import FlatUpdate
from parllel.torch.algos.ppo_inputs import PpoInputs
from parllel.torch.algos.ppo_loss import TERMS, means_of
from parllel.torch.algos.shared_steps import check_trained
from parllel.transforms.running_statistics import RunningMeanStd


class SharedUpdates:
    """Computes the updates that one learner with the whole batch would make.

    Args:
        ppo: the PPO of this learner.
        learners: all of them make this object.
        B: number of columns of this learner.

    Raises:
        TypeError: if several learners cannot train the model together.
    """

    def __init__(self, ppo: Any, learners: LearnerGroup, B: int) -> None:
        self._ppo, self._learners, self._B = ppo, learners, B
        self._parameters: list[nn.Parameter] = ppo.trained_parameters
        check_trained(ppo.agent.model, type(ppo).__name__)
        # Gradients, the loss and its terms, so that there is one exchange for each minibatch.
        size = sum(p.numel() for p in self._parameters)
        double = any(p.dtype == torch.float64 for p in self._parameters)
        self._sums = np.zeros(size + 1 + len(TERMS), np.float64 if double else np.float32)
        self._gradients, self._terms = self._sums[:size], self._sums[size:]
        self._steps = np.empty(0, np.int64)

    def start_batch(self, inputs: PpoInputs) -> int:
        """Return the number of valid steps of all learners.

        inputs: the steps of this learner, [T * B].
        """
        if inputs.valid is None:
            self._steps = np.arange(len(inputs.return_) * self._learners.n)
        else:
            own = inputs.valid.numpy().astype(np.uint8).reshape(-1, self._B)
            self._steps = np.flatnonzero(np.concatenate(self._learners.gather(own), axis=1))
        return len(self._steps)

    def losses(
        self,
        inputs: PpoInputs,
        flat: FlatUpdate | None,
        generator: np.random.Generator,
        coefficients: NDArray[np.float64],
    ) -> Iterator[tuple[float, dict[str, float]]]:
        """Yield the loss and the diagnostics of each minibatch of an epoch, with its gradients in place.

        flat: what computes the gradients, and receives them; None for the parameters themselves.
        coefficients: see `FlatUpdate.loss`.
        """
        minibatches = self._minibatches(generator)
        ends = list(accumulate(len(own) for own, _ in minibatches))
        if flat is not None:
            flat.shuffle(torch.cat([own for own, _ in minibatches]), ends)
        for (own, n), bounds in zip(minibatches, pairwise((0, *ends)), strict=True):
            self._sums[:] = 0.0
            if len(own):
                if flat is None:
                    loss, diagnostics = self._autograd_gradients(inputs.select(own))
                else:
                    loss, diagnostics = self._flat_gradients(flat, *bounds, coefficients)
                self._terms[:] = loss, *(diagnostics[name] for name in TERMS)
                # Those of each learner are means over its own steps.
                self._sums *= len(own) / n
            self._learners.add(self._sums)
            self._put_in_place(flat)
            loss, *terms = self._terms.tolist()
            yield loss, dict(zip(TERMS, terms, strict=True))

    def explained_variance(self, inputs: PpoInputs) -> float:
        """Return 1 - var(return - value) / var(return) over the valid steps of all learners."""
        pairs = torch.stack([inputs.return_.double(), (inputs.return_ - inputs.value).double()])
        if inputs.valid is not None:
            pairs = pairs[:, inputs.valid]
        merged = RunningMeanStd((2,))
        merged.gather = self._learners.gather
        merged.update(pairs.t().numpy())
        return_, residual = merged.var.tolist()
        return 1 - residual / return_ if return_ > 0 else math.nan

    def _minibatches(self, generator: np.random.Generator) -> list[tuple[Tensor, int]]:
        """Return this learner's steps of each minibatch, int64 [n], and the number of all learners' steps."""
        # The permutation of one learner with the whole batch, of which each learner takes its columns.
        order = generator.permutation(self._steps)
        return [
            (self._own(steps), len(steps))
            for steps in np.array_split(order, self._ppo.n_minibatches)
        ]

    def _own(self, steps: NDArray[np.int64]) -> Tensor:
        row, column = np.divmod(steps, self._B * self._learners.n)
        column -= self._learners.rank * self._B
        own = (column >= 0) & (column < self._B)
        return torch.from_numpy(row[own] * self._B + column[own])

    def _autograd_gradients(self, minibatch: PpoInputs) -> tuple[float, dict[str, float]]:
        # Invalid steps have been dropped.
        loss, diagnostics = self._ppo.loss(replace(minibatch, valid=None))
        for parameter in self._parameters:
            parameter.grad = None
        loss.backward()
        for parameter, sums in zip(self._parameters, self._parts(), strict=True):
            if parameter.grad is not None:
                sums.copy_(parameter.grad)
        return loss.item(), {name: float(value) for name, value in diagnostics.items()}

    def _flat_gradients(
        self, flat: FlatUpdate, start: int, stop: int, coefficients: NDArray[np.float64]
    ) -> tuple[float, dict[str, float]]:
        loss, sums = flat.loss(start, stop, coefficients)
        flat.backward()
        self._gradients[:] = flat.adam.gradients
        return loss, means_of(sums[0])

    def _put_in_place(self, flat: FlatUpdate | None) -> None:
        if flat is not None:
            flat.adam.gradients[:] = self._gradients
            return
        for parameter, sums in zip(self._parameters, self._parts(), strict=True):
            parameter.grad = sums.to(parameter.dtype)

    def _parts(self) -> list[Tensor]:
        """Return views of the gradients, in the shapes of the parameters."""
        sizes = [p.numel() for p in self._parameters]
        parts = torch.split(torch.from_numpy(self._gradients), sizes)
        return [part.view_as(p) for part, p in zip(parts, self._parameters, strict=True)]
