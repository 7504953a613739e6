"""The loss of PPO as one operation, with its gradients from the same compiled pass."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from parllel.torch.algos.flat_update import FlatUpdate
from parllel.torch.algos.ppo_inputs import PpoInputs
from parllel.torch.distributions.distribution import Distribution
from parllel.torch.known_models import choices_of

# Diagnostics in the order of the sums of a compiled loss.
TERMS = ("policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction")


def compiled_loss(
    outputs: tuple[Tensor, Tensor, Tensor],
    inputs: PpoInputs,
    mask: Tensor | None,
    *,
    coefficients: NDArray[np.float64],
    groups: list[list[int]],
) -> tuple[Tensor, NDArray[np.float64]] | None:
    """Return the loss and the sums of its terms by agent, [K, N_SUMS]; None unless all is float32 on the CPU.

    The loss is the sum over groups of agents of the mean over their valid entries. It can be differentiated
    once.

    Args:
        outputs: log probability, entropy and value, each [..., K], or [...] for K = 1.
        inputs: of the same shape.
        mask: bool, valid entries, or None if all are.
        coefficients: ratio_clip, value_clip (inf for none), value_loss_coeff, entropy_loss_coeff.
        groups: places of the agents of each group; K in total.
    """
    fields = (inputs.log_prob, inputs.value, inputs.advantage, inputs.return_)
    weight = torch.empty(0) if inputs.weight is None else inputs.weight
    if not all(_is_plain(tensor) for tensor in (*outputs, *fields, weight)):
        return None
    K = sum(map(len, groups))
    arrays = [tensor.reshape(-1, K).numpy() for tensor in (*fields, weight)]
    valid = np.empty((0, K), np.bool_) if mask is None else mask.reshape(-1, K).numpy()
    N = len(arrays[0])
    scale = np.empty(K)
    for group in groups:
        count = N * len(group) if mask is None else int(valid[:, group].sum())
        # The mean of a minibatch without valid entries is 0 instead of 0 / 0.
        scale[group] = 1 / max(count, 1)
    sums = np.zeros((K, 6))  # compiled_updates.N_SUMS, which would import numba
    loss: Tensor = _PpoLoss.apply(  # type: ignore[no-untyped-call]
        *outputs, arrays, valid, coefficients, scale, sums
    )
    return loss, sums


def means_of(sums: NDArray[np.float64]) -> dict[str, float]:
    """Return diagnostics from the sums of a compiled loss, [N_SUMS]."""
    surrogate, *others, n = sums.tolist()
    # The mean of no steps is 0 instead of 0 / 0.
    return {name: x / max(n, 1) for name, x in zip(TERMS, (-surrogate, *others), strict=True)}


def known_loss(
    flat: FlatUpdate,
    inputs: PpoInputs,
    mask: Tensor | None,
    parameters: Sequence[nn.Parameter],
    coefficients: NDArray[np.float64],
) -> tuple[Tensor, NDArray[np.float64]]:
    """As `compiled_loss`, of networks whose gradients are written out; computed together with its gradients.

    Args:
        flat: holds the parameters' values; its gradients are overwritten.
        inputs: a minibatch.
        parameters: those of the networks, in their order.
    """
    flat.load(inputs, mask)
    value, sums = flat.loss_of_batch(coefficients)
    flat.backward()
    # A copy, because another loss may be computed before this one is differentiated.
    gradients = list(map(torch.from_numpy, flat.adam.split(flat.adam.gradients.copy())))
    loss: Tensor = _KnownLoss.apply(value, gradients, *parameters)  # type: ignore[no-untyped-call]
    return loss, sums


def loss_of_outputs(
    params: Any,
    value: Any,
    distribution: Distribution,
    inputs: PpoInputs,
    *,
    coefficients: NDArray[np.float64],
) -> tuple[Tensor, NDArray[np.float64]] | None:
    """As `compiled_loss` of a single agent, from the outputs of its model; None if they are unusual.

    Autograd then begins at these outputs, without the dozen operations of log probabilities and entropies.

    Raises:
        ValueError: for an action that is not one of the distribution's.
    """
    # numba takes a third of a second to import.
    from parllel.algos import compiled_updates

    compiled: Any = compiled_updates
    choices = choices_of(distribution)
    log_std: Any
    outputs, log_std = (params, None) if choices is not None else params
    fields = (inputs.log_prob, inputs.value, inputs.advantage, inputs.return_)
    weight = torch.empty(0) if inputs.weight is None else inputs.weight
    # [N] steps, or [T, N] for sequences.
    steps = inputs.return_.shape
    space: Any = distribution.action_space
    shape = space.shape if choices is None else (sum(choices[0]),)
    expected = [(field, steps) for field in (value, *fields)] + [(outputs, (*steps, *shape))]
    if log_std is not None:
        # Of each step, or of all.
        expected.append((log_std, outputs.shape if log_std.shape == outputs.shape else shape))
    if not all(_is_plain(tensor) and tensor.shape == like for tensor, like in expected):
        return None
    N = steps.numel()

    def rows(tensor: Tensor, n: int = N) -> Any:
        return np.ascontiguousarray(tensor.detach().reshape(n, -1).numpy())

    mask = inputs.valid
    valid = np.empty(0, np.bool_) if mask is None else mask.numpy().reshape(-1)
    scale = 1 / max(N if mask is None else int(valid.sum()), 1)
    sums = np.zeros((1, compiled.N_SUMS))
    taken = [np.ascontiguousarray(field.numpy()).reshape(-1) for field in (*fields, weight)]
    settings = (*taken, valid, coefficients, scale)
    flat = rows(outputs)
    grad_outputs, grad_value = np.empty_like(flat), np.empty(N, np.float32)
    values = rows(value).reshape(-1)
    gradients = [(outputs, grad_outputs), (value, grad_value)]
    if choices is None:
        spread = rows(log_std, N if log_std.shape == outputs.shape else 1)
        grad_log_std = np.empty_like(spread)
        compiled.ppo_gaussian(
            *(flat, spread, values, rows(inputs.action.float()), *settings, grad_outputs),
            *(grad_log_std, grad_value, sums, np.empty(flat.shape[1])),
        )
        gradients.append((log_std, grad_log_std))
    else:
        allowed, action = np.empty((0, 0), np.bool_), rows(inputs.action.long())
        bad = compiled.ppo_categorical(
            *(flat, allowed, values, np.array(choices), action, *settings, grad_outputs),
            *(grad_value, sums, np.empty((2, flat.shape[1]))),
        )
        if bad >= 0:
            raise ValueError(
                f"PPO: agent.action: expected an action of {space}, got {action[bad].tolist()}"
            )
    policy, of_value, entropy, *_ = sums[0].tolist()
    total = scale * (-policy + coefficients[2] * of_value - coefficients[3] * entropy)
    loss: Tensor = _KnownLoss.apply(  # type: ignore[no-untyped-call]
        total,
        [torch.from_numpy(gradient).reshape(tensor.shape) for tensor, gradient in gradients],
        *(tensor for tensor, _ in gradients),
    )
    return loss, sums


class _KnownLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: float, gradients: list[Tensor], *tensors: Tensor) -> Tensor:
        # Of the loss with respect to each of the tensors.
        ctx.gradients = gradients
        return tensors[0].new_tensor(value)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *slope: Any) -> Any:
        gradients = ctx.gradients
        if slope[0].item() != 1:
            gradients = [slope[0] * part for part in gradients]
        return None, None, *gradients


def _is_plain(tensor: Any) -> bool:
    return (
        isinstance(tensor, Tensor) and tensor.dtype == torch.float32 and tensor.device.type == "cpu"
    )


class _PpoLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        log_prob: Tensor,
        entropy: Tensor,
        value: Tensor,
        arrays: list[Any],
        valid: NDArray[np.bool_],
        coefficients: NDArray[np.float64],
        scale: NDArray[np.float64],
        sums: NDArray[np.float64],
    ) -> Tensor:
        # numba takes a third of a second to import.
        from parllel.algos import compiled_updates

        compiled: Any = compiled_updates
        K = len(scale)
        # Here and not before, where autograd would record each change of a shape.
        own = [tensor.reshape(-1, K).numpy() for tensor in (log_prob, entropy, value)]
        gradients = np.empty((2, *own[0].shape), np.float32)
        compiled.ppo_loss(*own, *arrays, valid, coefficients, scale, *gradients, sums)
        of_log_prob, of_value = torch.from_numpy(gradients).reshape(2, *log_prob.shape)
        of_entropy = None
        if coefficients[3]:
            slopes = np.broadcast_to((-coefficients[3] * scale).astype(np.float32), own[0].shape)
            slopes = slopes * valid if valid.size else np.array(slopes)
            of_entropy = torch.from_numpy(slopes).reshape(entropy.shape)
        ctx.gradients = (of_log_prob, of_entropy, of_value)
        terms = (-sums[:, 0] + coefficients[2] * sums[:, 1] - coefficients[3] * sums[:, 2]) * scale
        return log_prob.new_tensor(math.fsum(terms))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *slope: Any) -> Any:
        by_loss = ctx.gradients
        # Nearly always: the loss is what is differentiated.
        if slope[0].item() != 1:
            by_loss = [None if part is None else slope[0] * part for part in by_loss]
        return (*by_loss, None, None, None, None, None)
