"""The weights of a module that was saved by `torch.save`, without executing what else the file may hold."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray


def read_state_dict(path: str | os.PathLike[str]) -> dict[str, NDArray[Any]]:
    """Return the tensors of a state dict by name, as arrays of their own; bfloat16 becomes float32.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it holds anything but a dict of tensors.
    """
    name = os.fspath(path)
    try:
        # Weights only: a pickle from elsewhere could execute anything.
        loaded: Any = torch.load(name, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise FileNotFoundError(f"{name}: there is no such file") from None
    except OSError:
        raise
    # Of any kind: what a file of something else makes its reader do is not foreseen.
    except Exception as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(
            f"{name}: expected weights alone, as torch.save(module.state_dict(), path) writes them: {reason}"
        ) from error
    if not isinstance(loaded, dict):
        raise ValueError(f"{name}: expected a state dict, got a {type(loaded).__name__}")
    others = [key for key, value in loaded.items() if not isinstance(value, torch.Tensor)]
    if others or not all(isinstance(key, str) for key in loaded):
        raise ValueError(f"{name}: expected a state dict of tensors alone, got also {others[:3]}")
    return {key: _array(value) for key, value in loaded.items()}


def _array(tensor: torch.Tensor) -> NDArray[Any]:
    # numpy has no bfloat16.
    plain = tensor.float() if tensor.dtype == torch.bfloat16 else tensor
    return np.array(plain.detach().numpy())
