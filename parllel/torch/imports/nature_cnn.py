"""NatureCNN, the convolutional network of Stable-Baselines3's CnnPolicy, as an encoder."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from gymnasium import Space, spaces

from parllel.torch.imports.layer_reader import LayerReader
from parllel.torch.models.cnn_encoder import CONVOLUTIONS_2015, CnnEncoder, has_channels_last


def nature_cnn(
    reader: LayerReader, prefix: str, space: Space[Any], data: Mapping[str, Any]
) -> CnnEncoder:
    """Take the parameters of a NatureCNN, and return an encoder of observations.

    Args:
        reader: the file's parameters.
        prefix: of the parameters' names.
        space: of the environment's observations, with channels first or last.
        data: the file's JSON.

    Raises:
        ValueError: for images of another shape or scale than the file's, or for other convolutions.
    """
    _check_space(reader, space, data)
    layers = [reader.layer(f"{prefix}.cnn.{i}", convolution=True) for i in (0, 2, 4)]
    last = reader.layer(f"{prefix}.linear.0")
    convolutions = dataclasses.replace(CONVOLUTIONS_2015, n_features=len(last[1]))
    assert space.shape is not None
    encoder = CnnEncoder(space.shape, convolutions, generator=torch.Generator())
    reader.fill([*encoder.convolutions, encoder.last], [*layers, last])
    return encoder


def _check_space(reader: LayerReader, space: Space[Any], data: Mapping[str, Any]) -> None:
    """Check that a CnnEncoder treats the images of a space as Stable-Baselines3 does."""
    # Beside the pickle of the space, the file has these as JSON, with the channels moved to the front.
    stored = data.get("observation_space") or {}
    shape, dtype = stored.get("_shape"), stored.get("dtype")
    if shape is None or dtype is None:
        raise reader.refusal("it does not state the shape and dtype of its images")
    # Other sides can leave as many features after the convolutions, so the shapes of layers are not enough.
    if (
        not isinstance(space, spaces.Box)
        or _channels_first(space.shape) != shape
        or str(space.dtype) != dtype
    ):
        raise reader.refusal(
            f"expected images {shape} of {dtype}, or with the channels last where they are fewer than the "
            f"rows, got observations of {space}"
        )
    if space.dtype != np.uint8:
        return  # Neither library scales them.
    settings = data.get("policy_kwargs") or {}
    # SB3 sets this one too if normalize_images is False. By itself it permits bounds other than 0 and 255,
    # with which SB3 does not scale bytes.
    unscaled = "normalized_image" in (settings.get("features_extractor_kwargs") or {})
    # `is`, because a bool of numpy is stored as text.
    if unscaled or settings.get("normalize_images", True) is not True:
        raise reader.refusal(
            "it does not divide images of uint8 by 255 (normalize_images=False), which parllel always does"
        )
    if np.any(space.low != 0) or np.any(space.high != 255):
        raise reader.refusal(f"expected images from 0 to 255, got observations of {space}")


def _channels_first(shape: tuple[int, ...]) -> list[int]:
    """Return the shape of images as a CnnEncoder convolves them."""
    return [shape[2], *shape[:2]] if has_channels_last(shape) else list(shape)
