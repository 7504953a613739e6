"""State dicts saved by `torch.save`, read without executing code that the file may contain."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray


def read_state_dict(path: str | os.PathLike[str]) -> dict[str, NDArray[Any]]:
    """Return the tensors of a state dict as numpy arrays, keyed by name. bfloat16 becomes float32.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is not a dict of tensors.
    """
    name = os.fspath(path)
    try:
        # Weights only: a pickle from elsewhere could execute anything.
        loaded: Any = torch.load(name, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise FileNotFoundError(f"{name}: there is no such file") from None
    except OSError:
        raise
    # Any exception: files in other formats fail inside torch.load in unpredictable ways.
    except Exception as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(
            f"{name}: expected only weights, as written by torch.save(module.state_dict(), path): {reason}"
        ) from error
    if not isinstance(loaded, dict):
        raise ValueError(f"{name}: expected a state dict, got a {type(loaded).__name__}")
    others = [key for key, value in loaded.items() if not isinstance(value, torch.Tensor)]
    if others or not all(isinstance(key, str) for key in loaded):
        raise ValueError(f"{name}: expected a state dict of tensors only, got also {others[:3]}")
    return {key: _array(value) for key, value in loaded.items()}


def _array(tensor: torch.Tensor) -> NDArray[Any]:
    # numpy has no bfloat16.
    plain = tensor.float() if tensor.dtype == torch.bfloat16 else tensor
    return np.array(plain.detach().numpy())
