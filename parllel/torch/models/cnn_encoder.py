"""Convolutional encoder of images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from parllel.torch.models.initial_weights import orthogonal_layer
from parllel.torch.models.mlp_model import HIDDEN_GAIN


@dataclass(frozen=True)
class Convolutions:
    """Shape of a convolutional network: one entry per convolution, then a layer of `n_features`."""

    channels: tuple[int, ...]
    kernel_sizes: tuple[int, ...]
    strides: tuple[int, ...]
    n_features: int


# For Atari games, from Mnih et al. 2013 and 2015; the smaller one takes half the time per image.
CONVOLUTIONS_2013 = Convolutions((16, 32), (8, 4), (4, 2), 256)
CONVOLUTIONS_2015 = Convolutions((32, 64, 64), (8, 4, 3), (4, 2, 1), 512)
# For images of a few pixels, such as the views of grid worlds.
CONVOLUTIONS_SMALL = Convolutions((16, 32), (2, 2), (1, 1), 128)


def has_channels_last(image: Sequence[int]) -> bool:
    """Return whether a `CnnEncoder` takes images of this shape as [H, W, C]."""
    return len(image) == 3 and image[2] < image[0]


class CnnEncoder(nn.Module):
    """Map images [N, ...] to features [N, n_features]: convolutions, then one layer, all with ReLU.

    Byte images are scaled to [0, 1] here, so they are stored and moved as bytes. Weights are orthogonal
    (Saxe et al. 2014) with gain sqrt(2), biases zero.

    Args:
        image_shape: shape of one observation: [H, W]; [C, H, W] or [H, W, C], where the shorter of
            the outer dimensions is taken as the channels; or a stack of k such images, [k, ...],
            including [k, H, W].
        convolutions: see `Convolutions`.
        compute_dtype: dtype of the arithmetic; defaults to the dtype of the weights, which the
            features always have. `torch.bfloat16` halves the time on GPUs and on processors with
            instructions for it (AVX512-BF16, AMX), and is slower on others.
        generator: generator that draws the weights; torch's global generator is not used.

    Attributes:
        n_features: size of the output.

    Raises:
        ValueError: if the images are smaller than the kernels, or the lists differ in length.
    """

    def __init__(
        self,
        image_shape: Sequence[int],
        convolutions: Convolutions,
        *,
        compute_dtype: torch.dtype | None = None,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        # Tracks the sides through the convolutions, to size the last layer and to name a convolution that
        # does not fit. torch would report that only at the first image.
        n_channels, *sides = self._layout(tuple(image_shape))
        self.n_features, self.compute_dtype = convolutions.n_features, compute_dtype
        self.convolutions = nn.ModuleList()
        each = (convolutions.channels, convolutions.kernel_sizes, convolutions.strides)
        for n_outputs, size, stride in zip(*each, strict=True):
            if min(sides) < size:
                raise ValueError(
                    f"CnnEncoder: expected images of at least {size} pixels at convolution "
                    f"{len(self.convolutions)}, got {sides} from images {tuple(image_shape)}; "
                    "use fewer or smaller kernels"
                )
            self.convolutions.append(
                orthogonal_layer(
                    nn.Conv2d,
                    n_channels,
                    n_outputs,
                    size,
                    stride,
                    gain=HIDDEN_GAIN,
                    generator=generator,
                )
            )
            n_channels, sides = n_outputs, [(side - size) // stride + 1 for side in sides]
        n_inputs = n_channels * sides[0] * sides[1]
        self.last = orthogonal_layer(
            nn.Linear, n_inputs, self.n_features, gain=HIDDEN_GAIN, generator=generator
        )

    def _layout(self, shape: tuple[int, ...]) -> tuple[int, int, int]:
        """Find the channel dimension, and return channels, height and width."""
        if len(shape) not in (2, 3, 4):
            raise ValueError(f"CnnEncoder: expected images of 2 to 4 dimensions, got {shape}")
        image = shape[1:] if len(shape) == 4 else shape
        self._n_dims, self._channels_last = len(shape), has_channels_last(image)
        if self._channels_last:
            image = (image[2], *image[:2])
        n_channels, height, width = (1,) * (3 - len(image)) + image
        return n_channels * (shape[0] if len(shape) == 4 else 1), height, width

    def forward(self, observation: Tensor) -> Tensor:
        """Return features [N, n_features]."""
        weight: Any = self.last.weight
        lower = self.compute_dtype not in (None, weight.dtype)
        # Weights keep their dtype: bfloat16 has 8 bits of precision and would lose small updates.
        with torch.autocast(weight.device.type, self.compute_dtype, enabled=lower):
            x = self._images(observation)
            for layer in cast(list[nn.Conv2d], list(self.convolutions)):
                # In place, because the gradient of relu needs only its output.
                x = functional.relu(layer(x), inplace=True)
            x = functional.relu(self.last(x.flatten(1)), inplace=True)
        # Heads compute in full precision: PPO compares log probabilities that differ by less than 8 bits.
        features: Tensor = x.to(weight.dtype)
        return features

    def _images(self, x: Tensor) -> Tensor:
        """Return [N, C, H, W] in the compute dtype."""
        # First, so that the frame and channel dimensions are adjacent when they are merged.
        if self._channels_last:
            x = x.movedim(-1, -3)
        if self._n_dims == 2:
            x = x.unsqueeze(1)
        elif self._n_dims == 4:
            x = x.flatten(1, 2)
        is_bytes = x.dtype == torch.uint8
        weight: Any = self.last.weight
        x = x.to(self.compute_dtype or weight.dtype)
        # In place only for bytes, which the cast has copied. Floats may be the batch's own memory.
        return x.mul_(1 / 255) if is_bytes else x
