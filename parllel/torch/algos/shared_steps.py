"""Gradient steps of several learners, each of which draws an equal share of every batch from its own replay.

every learner   its share of the batch -> gradients and diagnostics, means over the share
all learners    mean over the learners: one exchange for each optimiser, and one for the diagnostics
every learner   step of Adam
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from parllel.algos.learner_group import LearnerGroup


class SharedSteps:
    """Means over learners, so that each takes the steps that one learner with the whole batch would take.

    Args:
        learners: all of them make this object.
    """

    def __init__(self, learners: LearnerGroup) -> None:
        self._learners = learners

    def average(self, array: NDArray[Any]) -> None:
        """Replace a contiguous array of floats, in place, by the mean over all learners."""
        self._learners.add(array)
        array /= self._learners.n

    def gradients(
        self, parameters: Sequence[nn.Parameter], own: Sequence[Tensor | None]
    ) -> list[Tensor]:
        """Return the means of gradients. Parameters that take no part have a gradient of zero.

        own: gradients of this learner, in the order of the parameters.
        """
        # Those of one learner are zero only if those of all are, as all compute the same graph.
        parts = [
            torch.zeros_like(p) if gradient is None else gradient
            for p, gradient in zip(parameters, own, strict=True)
        ]
        flat = torch.cat([part.reshape(-1) for part in parts])
        self.average(flat.numpy())
        means = torch.split(flat, [part.numel() for part in parts])
        return [mean.view_as(part).to(part.dtype) for mean, part in zip(means, parts, strict=True)]

    def diagnostics(self, own: Mapping[str, Any]) -> dict[str, float]:
        """Return the means of diagnostics, which are numbers."""
        values = np.array([float(value) for value in own.values()])
        self.average(values)
        return dict(zip(own, values.tolist(), strict=True))

    def noise(self, n: int, size: int, generator: torch.Generator) -> Tensor:
        """Draw the noise [n, size] of this learner's share of a batch.

        generator: in the same state in all learners, and afterwards, too.
        """
        # That of the whole batch, whose shares are in the order of the learners.
        whole = torch.empty((n * self._learners.n, size)).normal_(generator=generator)
        return whole[n * self._learners.rank : n * (self._learners.rank + 1)]


def check_trained(module: nn.Module, who: str) -> None:
    """Raise TypeError if several learners cannot train a model together.

    who: the algorithm, for the message.
    """
    for name, part in module.named_modules():
        # Its outputs depend on the whole minibatch, and its statistics are not gradients.
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            raise TypeError(
                f"{who}: several learners cannot train a {type(part).__name__} ({name}), whose statistics "
                "would differ between them; use LayerNorm or GroupNorm"
            )
    for parameter in module.parameters():
        if parameter.device.type != "cpu" or parameter.dtype not in (torch.float32, torch.float64):
            raise TypeError(
                f"{who}: several learners train float32 or float64 parameters on the CPU, and the model has "
                f"{parameter.dtype} on {parameter.device}"
            )
