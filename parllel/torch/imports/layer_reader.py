"""Parameters that other libraries saved, as the layers of parllel's models."""

from __future__ import annotations

import math
import pickle
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import Tensor, nn

from parllel.agents.agent import Agent
from parllel.torch.agent_for import distribution_for, encoder_for
from parllel.torch.agents.pg_agent import PgAgent
from parllel.torch.agents.q_agent import QAgent
from parllel.torch.models.heads import CategoricalHead, GaussianHead
from parllel.torch.models.mlp_model import Activation
from parllel.torch.models.pg_model import PgModel
from parllel.torch.models.q_model import QModel

Parameters: TypeAlias = dict[str, Tensor]
Layer: TypeAlias = tuple[Tensor, Tensor]  # weight and bias
Layers: TypeAlias = list[Layer]
Trunk: TypeAlias = tuple[int, ...] | nn.Module  # the first argument of parllel's models
_LAYER = re.compile(r"(\d+)\.weight")


def refusal(path: Path, why: str) -> ValueError:
    """Return the error for a file that is not supported."""
    return ValueError(f"{path}: cannot become an agent of parllel: {why}")


def load_parameters(path: Path, file: BinaryIO) -> Any:
    """Return what `torch.save` wrote, on the CPU, without unpickling objects.

    Raises:
        ValueError: if the file needs pickle, or is damaged.
    """
    try:
        return torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise ValueError(
            f"{path}: expected only parameters, as torch.save writes them; anything else needs pickle, which "
            "would execute code of the file"
        ) from error
    except (RuntimeError, EOFError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"{path}: expected parameters that torch.save wrote: {reason}") from error


def flat_trunk(path: Path, space: Space[Any]) -> Trunk:
    """Return the input of networks that are fully connected.

    Raises:
        ValueError: for a space that is not supported.
    """
    if isinstance(space, spaces.Discrete) and space.start == 0:
        return encoder_for(space, generator=torch.Generator())
    if isinstance(space, spaces.Box) and not (space.dtype == np.uint8 and len(space.shape) == 3):
        return space.shape
    raise refusal(
        path,
        f"observations of {space} are not supported: expected a Box, not of images, or a Discrete space that "
        "starts at 0",
    )


def n_features(trunk: Trunk) -> int:
    """Return the number of inputs of a first layer."""
    if isinstance(trunk, nn.Module):
        return int(trunk.n_features)  # type: ignore[arg-type]
    return math.prod(trunk)


class LayerReader:
    """Takes parameters of networks from a file, layer by layer.

    Args:
        path: the file, named in errors.
        parameters: by name.
        activation: of hidden layers; None for the default of each algorithm.
    """

    def __init__(
        self, path: Path, parameters: Parameters, activation: Activation | None = None
    ) -> None:
        self.path, self._left, self._activation = path, dict(parameters), activation

    def refusal(self, why: str) -> ValueError:
        """Return the error for a file that is not supported."""
        return refusal(self.path, why)

    def activation(self, default: Activation) -> Activation:
        """Return the activation of hidden layers."""
        return self._activation or default

    def layers(self, prefix: str, n_inputs: int) -> Layers:
        """Take the layers `prefix.0`, `prefix.2`, ..., as weights and biases."""
        found = {
            int(match[1]): name.removesuffix(".weight")
            for name in self._left
            if name.startswith(f"{prefix}.")
            and (match := _LAYER.fullmatch(name.removeprefix(f"{prefix}.")))
        }
        if not found:
            raise self.refusal(f"it has no layers {prefix}")
        layers = [self.layer(found[i]) for i in sorted(found)]
        given = layers[0][0].shape[1]
        if given != n_inputs:
            raise ValueError(
                f"{self.path}: {prefix}: expected {n_inputs} inputs for the given spaces, got {given}"
            )
        return layers

    def layer(self, name: str, *, convolution: bool = False) -> Layer:
        """Take the weight and bias of one layer, which is fully connected by default."""
        weight, bias = self.take(f"{name}.weight"), self.take(f"{name}.bias")
        if weight.dim() != (4 if convolution else 2):
            kind = "a convolution" if convolution else "fully connected"
            raise self.refusal(f"layer {name} is not {kind}")
        return weight, bias

    def has(self, prefix: str) -> bool:
        """Return whether a parameter that begins with `prefix` is left."""
        return any(name.startswith(prefix) for name in self._left)

    def group(self, prefix: str) -> Parameters:
        """Return the parameters left that begin with `prefix`, by the rest of their names."""
        return {
            name.removeprefix(prefix): x
            for name, x in self._left.items()
            if name.startswith(prefix)
        }

    def take(self, name: str) -> Tensor:
        """Take a parameter."""
        if name not in self._left:
            raise self.refusal(f"it has no parameter {name}")
        return self._left.pop(name)

    def drop(self, prefix: str) -> None:
        """Leave out what an agent has no use for, such as target networks."""
        self._left = {name: x for name, x in self._left.items() if not name.startswith(prefix)}

    def check_all_used(self) -> None:
        """Raise ValueError if parameters are left over."""
        if self._left:
            raise self.refusal(
                f"parameter {min(self._left)} has no place in a network that is supported"
            )

    def fill(self, modules: Iterable[nn.Module], layers: Layers) -> None:
        """Copy layers into the modules of a network."""
        for module, (weight, bias) in zip(modules, layers, strict=True):
            assert isinstance(module, (nn.Linear, nn.Conv2d))
            assert module.bias is not None
            if module.weight.shape != weight.shape:
                raise ValueError(
                    f"{self.path}: expected layers {tuple(module.weight.shape)} for the given spaces, got "
                    f"{tuple(weight.shape)}"
                )
            with torch.no_grad():
                module.weight.copy_(weight)
                module.bias.copy_(bias)


def hidden_sizes(layers: Layers) -> list[int]:
    """Return the sizes of the hidden layers."""
    return [len(bias) for _, bias in layers[:-1]]


def make_pg_agent(
    reader: LayerReader,
    trunk: Trunk,
    policy: Layers,
    critic: Layers,
    log_std: str,
    action_space: Space[Any],
    seed: int,
) -> Agent:
    """Return a PgAgent; log_std: the parameter's name, read for a Box."""
    n_outputs = 0
    if isinstance(action_space, spaces.Discrete):
        n_outputs = int(action_space.n)
    elif isinstance(action_space, spaces.MultiDiscrete):
        n_outputs = int(action_space.nvec.sum())
    elif not isinstance(action_space, spaces.Box):
        raise reader.refusal(f"actions of {action_space} are not supported")
    if np.any(getattr(action_space, "start", 0)):
        raise reader.refusal(f"actions of {action_space} do not start at 0")
    sizes = hidden_sizes(policy)
    if sizes != hidden_sizes(critic):
        raise reader.refusal(
            f"policy and value have hidden layers of different sizes, {sizes} and {hidden_sizes(critic)}"
        )
    head: Any = CategoricalHead(n_outputs)
    if isinstance(action_space, spaces.Box):
        head = GaussianHead(action_space.shape, 0.0)
        with torch.no_grad():
            head.log_std.copy_(reader.take(log_std).reshape(action_space.shape))
    model = PgModel(trunk, head, sizes, seed, activation=reader.activation("tanh"))
    reader.fill(model.policy.layers, policy)
    reader.fill(model.critic.layers, critic)
    return PgAgent(model, distribution_for(action_space), seed=seed)


def make_q_agent(
    reader: LayerReader, trunk: Trunk, layers: Layers, action_space: Space[Any], seed: int
) -> Agent:
    """Return a QAgent."""
    if not isinstance(action_space, spaces.Discrete) or action_space.start != 0:
        raise reader.refusal(f"actions of {action_space}: expected a Discrete space from 0")
    n, sizes = int(action_space.n), hidden_sizes(layers)
    model = QModel(trunk, n, sizes, seed, activation=reader.activation("relu"))
    reader.fill(model.actions.layers, layers)
    return QAgent(model, n, seed=seed)
