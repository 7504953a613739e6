"""A function with its parameters, as agents hold it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from parllel.jax.compilation import kept, start_jax
from parllel.jax.distributions import Distribution
from parllel.jax.named_arrays import check_names
from parllel.types import Tree


class PgOutput(NamedTuple):
    """`params` of the distribution, and `value` [N]."""

    params: Any
    value: Any


class Model:
    """A function with its parameters: `model(observation)` returns `PgOutput(params, value)`.

    Args:
        apply: function `(parameters, observation) -> PgOutput`, which JAX can trace and which has no side
            effects, such as `apply` of a Flax module. Observations are [N, ...]; those of a Dict or Tuple
            space are a tree whose keys are attributes.
        parameters: arrays of real numbers in dicts, lists and other trees that JAX knows. They are copied.

    Raises:
        TypeError: if `apply` is not a function, or a parameter not an array of real numbers.
        ValueError: if two parameters have the same path.

    Attributes:
        apply: the function.
        parameters: the current parameters. An update replaces the tree, and its old arrays cannot be used
            afterwards.
    """

    def __init__(self, apply: Callable[..., Any], parameters: Tree) -> None:
        name = type(self).__name__
        if not callable(apply):
            raise TypeError(f"{name}: apply: expected a function, got {apply!r}")
        leaves = jax.tree_util.tree_leaves_with_path(parameters)
        for path, leaf in leaves:
            if not hasattr(leaf, "dtype") or not jnp.issubdtype(leaf.dtype, jnp.floating):
                raise TypeError(
                    f"{name}: parameters{jax.tree_util.keystr(path)}: expected an array of real numbers, "
                    f"got {leaf!r}"
                )
        check_names(parameters, f"{name}: parameters")
        self.apply = apply
        start_jax(sum(leaf.size for _, leaf in leaves))
        # Copied, because updates reuse the memory of the parameters.
        self.parameters = jax.tree_util.tree_map(jnp.array, parameters)

    def __call__(self, observation: Tree, **inputs: Tree) -> Any:
        """Return the output for observations [N, ...], as JAX arrays."""
        return _compiled(self.apply)(self.parameters, observation, **inputs)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.n_parameters:,} parameters)"

    @property
    def n_parameters(self) -> int:
        """Number of parameters."""
        return sum(leaf.size for leaf in jax.tree_util.tree_leaves(self.parameters))


def output_of(
    apply: Callable[..., Any],
    distribution: Distribution,
    parameters: Tree,
    observation: Tree,
    inputs: dict[str, Tree],
) -> PgOutput:
    """Return the output of a model's function, after checking its form.

    Raises:
        TypeError: if it is not a pair.
        ValueError: if the values are not [N], or the parameters do not fit the distribution.
    """
    output = apply(parameters, observation, **inputs)
    who = name_of(apply)
    if not isinstance(output, (tuple, list)) or len(output) != 2:
        got = f"a {type(output).__name__}"
        if hasattr(output, "shape"):
            got = f"an array of shape {tuple(output.shape)}"
        raise TypeError(f"{who}: expected PgOutput(params, value), got {got}")
    params, value = output
    n = len(jax.tree_util.tree_leaves(observation)[0])
    # Values [N, 1] would broadcast against returns [N] to [N, N] in the loss.
    if jnp.shape(value) != (n,):
        raise ValueError(
            f"{who}: expected values of shape {(n,)}, got {jnp.shape(value)}; squeeze the last dimension of "
            "the value head"
        )
    try:
        distribution.check_params(params)
    except ValueError as error:
        raise ValueError(f"{who}: {error}") from None
    return PgOutput(params, value)


def name_of(apply: Callable[..., Any]) -> str:
    """Return the name of a model's function, for errors."""
    return getattr(apply, "__qualname__", type(apply).__name__)


@kept
def _compiled(apply: Callable[..., Any]) -> Any:
    return jax.jit(apply)
