"""All updates of a batch as one compiled loop.

numpy: fields [N, ...], order of the steps ---> while there is a minibatch, and nothing has ended the batch:
gather its steps, loss and gradients
clip, Adam
numpy: one row of figures for each minibatch <- parameters and moments, in the memory of the old ones
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from parllel.jax.compilation import kept
from parllel.jax.distributions import Distribution
from parllel.jax.model import output_of
from parllel.types import Tree

# Diagnostics of a minibatch. A row of the history is the loss, these, and the norm of the gradients.
TERMS = ("policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction")
# Why a batch ended.
DONE, STOPPED, BAD_LOSS, BAD_GRADIENT = range(4)
# Epsilon 1e-5 instead of 1e-8, as in common implementations of PPO (Huang et al. 2022, detail 3).
ADAM = optax.scale_by_adam(b1=0.9, b2=0.999, eps=1e-5)


class Updated(NamedTuple):
    """What a batch came to.

    Attributes:
        parameters, moments: after the last update.
        history: a row for each minibatch, float32 [n_updates, 2 + len(TERMS)].
        n_seen: number of minibatches whose loss was computed.
        status: DONE, STOPPED, BAD_LOSS or BAD_GRADIENT; but for DONE, the last minibatch led to no update.
    """

    parameters: Tree
    moments: Tree
    history: jax.Array
    n_seen: jax.Array
    status: jax.Array


@kept
def update_of(apply: Callable[..., Any], distribution: Distribution) -> Any:
    """Return the compiled `(parameters, moments, batch, indices, valid, settings) -> Updated`.

    parameters, moments: donated; the caller must not use them again.
    batch: `agent` (the model's inputs by name), `action`, `log_prob`, `value`, `advantage`, `return_` and
        perhaps `weight`, each [N, ...].
    indices: int32 [n_updates, size], the steps of each minibatch.
    valid: bool [n_updates, size], False for the filling of smaller minibatches; None if there is none.
    settings: numbers by the names of PPO's arguments, and the `learning_rate` of this batch. Settings that
        are None or have no effect are left out.
    """

    def update(
        parameters: Tree, moments: Tree, batch: Tree, indices: Any, valid: Any, settings: Any
    ) -> Updated:
        n_updates = len(indices)
        loss_of = jax.value_and_grad(_loss_function(apply, distribution), has_aux=True)

        def is_left(carry: Updated) -> jax.Array:
            return (carry.n_seen < n_updates) & (carry.status == DONE)

        def one(carry: Updated) -> Updated:
            i = carry.n_seen
            steps = jax.tree_util.tree_map(lambda field: field[indices[i]], batch)
            mask = None if valid is None else valid[i]
            (loss, terms), gradients = loss_of(carry.parameters, steps, mask, settings)
            norm = _norm(gradients)
            status = _status(loss, terms, norm, settings)
            parameters, moments = jax.lax.cond(
                status == DONE,
                lambda: _adam_step(carry.parameters, carry.moments, gradients, norm, settings),
                lambda: (carry.parameters, carry.moments),
            )
            row = jnp.stack([loss, *terms, norm])
            return Updated(parameters, moments, carry.history.at[i].set(row), i + 1, status)

        history = jnp.zeros((n_updates, 2 + len(TERMS)), jnp.float32)
        start = Updated(parameters, moments, history, jnp.int32(0), jnp.int32(DONE))
        return jax.lax.while_loop(is_left, one, start)

    return jax.jit(update, donate_argnums=(0, 1))


def _loss_function(apply: Callable[..., Any], distribution: Distribution) -> Callable[..., Any]:
    def loss_of(
        parameters: Tree, steps: dict[str, Any], valid: Any, settings: dict[str, Any]
    ) -> tuple[jax.Array, tuple[jax.Array, ...]]:
        """Return the loss (Schulman et al. 2017, eq. 7) and its TERMS, means over the valid steps."""
        inputs = dict(steps["agent"])
        params, value = output_of(
            apply, distribution, parameters, inputs.pop("observation"), inputs
        )
        log_ratio = distribution.log_prob(params, steps["action"]) - steps["log_prob"]
        # A log ratio above 88 overflows float32. The loss or its gradient is then infinite or NaN, and the
        # update is refused.
        ratio = jnp.exp(log_ratio)
        clip, advantage = settings["ratio_clip"], steps["advantage"]
        # The worse of the two: clipping never makes a change of the policy look better than it is.
        surrogate = jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - clip, 1 + clip) * advantage)
        if "weight" in steps:
            surrogate = surrogate * steps["weight"]
        policy_loss = -_mean(surrogate, valid)
        value_loss = 0.5 * _mean(_squared_error(value, steps, settings), valid)
        entropy = _mean(distribution.entropy(params), valid)
        loss = policy_loss + settings["value_loss_coeff"] * value_loss
        # Left out if it is zero, which saves the backward pass through the entropy.
        if "entropy_loss_coeff" in settings:
            loss = loss - settings["entropy_loss_coeff"] * entropy
        # Schulman 2020, "Approximating KL divergence", estimator k3.
        approx_kl = _mean(ratio - 1 - log_ratio, valid)
        outside = (jnp.abs(ratio - 1) > clip).astype(jnp.float32)
        return loss, (policy_loss, value_loss, entropy, approx_kl, _mean(outside, valid))

    return loss_of


def _squared_error(value: jax.Array, steps: dict[str, Any], settings: dict[str, Any]) -> jax.Array:
    error = jnp.square(value - steps["return_"])
    if "value_clip" not in settings:
        return error
    # As in common implementations. Optional, because Andrychowicz et al. 2021 found that it hurts.
    clip = settings["value_clip"]
    moved = steps["value"] + jnp.clip(value - steps["value"], -clip, clip)
    return jnp.maximum(error, jnp.square(moved - steps["return_"]))


def _mean(x: jax.Array, valid: Any) -> jax.Array:
    if valid is None:
        return jnp.mean(x)
    # Not x * valid, because 0 * NaN is NaN.
    return jnp.sum(jnp.where(valid, x, 0.0)) / jnp.maximum(jnp.sum(valid), 1)


def _norm(gradients: Tree) -> jax.Array:
    leaves = jax.tree_util.tree_leaves(gradients)
    return jnp.sqrt(sum(jnp.sum(jnp.square(leaf)) for leaf in leaves))


def _status(
    loss: jax.Array, terms: tuple[jax.Array, ...], norm: jax.Array, settings: dict[str, Any]
) -> jax.Array:
    status = jnp.where(jnp.isfinite(norm), DONE, BAD_GRADIENT)
    if "kl_limit" in settings:
        status = jnp.where(terms[TERMS.index("approx_kl")] > settings["kl_limit"], STOPPED, status)
    return jnp.where(jnp.isfinite(loss), status, BAD_LOSS).astype(jnp.int32)


def _adam_step(
    parameters: Tree, moments: Tree, gradients: Tree, norm: jax.Array, settings: dict[str, Any]
) -> tuple[Tree, Tree]:
    if "clip_grad_norm" in settings:
        limit = settings["clip_grad_norm"]
        # The 1e-6 is from PyTorch's `clip_grad_norm_`, for comparable runs.
        factor = jnp.where(norm > limit, limit / (norm + 1e-6), 1.0)
        gradients = jax.tree_util.tree_map(lambda gradient: factor * gradient, gradients)
    steps, moments = ADAM.update(gradients, moments)
    rate = settings["learning_rate"]
    return jax.tree_util.tree_map(lambda p, step: p - rate * step, parameters, steps), moments
