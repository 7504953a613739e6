"""Conversion of states to JSON values and back.

None, bool, int, float      themselves
str                         "text:" and the string
array                       "array:3", by its number
LargeArray                  {"large:": "array:3"}
list                        a list
tuple                       {"tuple:": [...]}
torch.Tensor                {"tensor:": ["array:3", "text:float32"]}, with its dtype
dict                        a dict; of keys an int is "int:3", and a string that begins like one of these
                            marks has "text:" before it
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from parllel.buffers.large_array import LargeArray

_Array: TypeAlias = np.ndarray[Any, Any]

_ARRAY, _TEXT, _INT, _TUPLE, _TENSOR = "array:", "text:", "int:", "tuple:", "tensor:"
_LARGE = "large:"
# What a key in JSON may begin with that is no plain key.
_KEY_MARKS = (_TEXT, _INT, _TUPLE, _TENSOR, _LARGE)
_EXPECTED = "numbers, strings, None, arrays, tensors, and lists, tuples and dicts of them"


def to_json(value: Any, add: Callable[[_Array | LargeArray, str], int], at: str) -> Any:
    """Convert a value to JSON.

    add: function that stores an array or a LargeArray, given its path, and returns its number.
    at: path of the value, for error messages.

    Raises:
        TypeError: for an unsupported value. The message names its path.
    """
    if isinstance(value, np.ndarray):
        return f"{_ARRAY}{add(value, at)}"
    if isinstance(value, LargeArray):
        return {_LARGE: f"{_ARRAY}{add(value, at)}"}
    # Before strings and floats, which some of numpy's scalars are too.
    if isinstance(value, np.generic):
        return f"{_ARRAY}{add(np.asarray(value), at)}"
    if isinstance(value, str):
        return _TEXT + value
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, dict):
        return {
            _key_to_json(key, at): to_json(part, add, _below(at, key))
            for key, part in value.items()
        }
    if isinstance(value, (list, tuple)):
        parts = [to_json(part, add, f"{at}[{i}]") for i, part in enumerate(value)]
        return parts if isinstance(value, list) else {_TUPLE: parts}
    torch = sys.modules.get("torch")  # without it there are no tensors
    if torch is not None and isinstance(value, torch.Tensor):
        array, dtype = _from_tensor(value, torch, at)
        return {_TENSOR: [f"{_ARRAY}{add(array, at)}", _TEXT + dtype]}
    raise TypeError(f"{at}: expected {_EXPECTED}, got {type(value).__name__}")


def numbers_of_large(value: Any) -> set[int]:
    """Return the numbers of the LargeArrays in a value converted by `to_json`.

    Raises:
        ValueError: for any other value.
    """
    if isinstance(value, list):
        return {number for part in value for number in numbers_of_large(part)}
    if not isinstance(value, dict):
        return set()
    if value.keys() == {_LARGE}:
        number = str(value[_LARGE]).removeprefix(_ARRAY)
        if not number.isdecimal():
            raise ValueError(f"expected the number of an array, got {value[_LARGE]!r:.80}")
        return {int(number)}
    return {number for part in value.values() for number in numbers_of_large(part)}


def from_json(value: Any, arrays: Sequence[_Array | LargeArray]) -> Any:
    """Restore a value converted by `to_json`, with its arrays.

    Raises:
        ValueError: for any other value.
    """
    if isinstance(value, str):
        if value.startswith(_TEXT):
            return value[len(_TEXT) :]
        number = value.removeprefix(_ARRAY)
        if number == value or not number.isdecimal() or int(number) >= len(arrays):
            raise ValueError(f"expected a text or one of {len(arrays)} arrays, got {value!r:.80}")
        return arrays[int(number)]
    if isinstance(value, dict):
        if value.keys() == {_TUPLE}:
            return tuple(from_json(part, arrays) for part in value[_TUPLE])
        if value.keys() == {_LARGE}:
            return from_json(value[_LARGE], arrays)
        if value.keys() == {_TENSOR}:
            return _to_tensor(*(from_json(part, arrays) for part in value[_TENSOR]))
        return {_key_from_json(key): from_json(part, arrays) for key, part in value.items()}
    if isinstance(value, list):
        return [from_json(part, arrays) for part in value]
    return value


def _below(at: str, key: Any) -> str:
    return f"{at}.{key}" if isinstance(key, str) else f"{at}[{key!r}]"


def _key_to_json(key: Any, at: str) -> str:
    if isinstance(key, str):
        return _TEXT + key if key.startswith(_KEY_MARKS) else key
    # bool is a subclass of int, and True would be read back as 1.
    if isinstance(key, int) and not isinstance(key, bool):
        return f"{_INT}{key}"
    raise TypeError(f"{at}: keys must be strings or ints, got {key!r}")


def _key_from_json(key: str) -> str | int:
    if key.startswith(_INT):
        return int(key[len(_INT) :])
    if key.startswith((_TUPLE, _TENSOR, _LARGE)):
        raise ValueError(f"expected the key of a dict, got {key!r:.80}")
    return key.removeprefix(_TEXT)


def _from_tensor(tensor: Any, torch: Any, at: str) -> tuple[_Array, str]:
    """Return the elements of a tensor, and the name of its dtype."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_meta:
        raise TypeError(f"{at}: expected a dense tensor, got {tensor.layout} with dtype {dtype}")
    # On the CPU, so that it can be loaded where there is no such device.
    tensor = tensor.detach().cpu()
    if tensor.dtype.is_floating_point and not hasattr(np, dtype):
        # Numpy has no bfloat16; its bits are those of integers as wide.
        tensor = tensor.contiguous().view(getattr(torch, f"int{8 * tensor.element_size()}"))
    try:
        array: _Array = tensor.resolve_conj().resolve_neg().numpy()
    except (TypeError, RuntimeError) as error:
        raise TypeError(f"{at}: {error}") from error
    return array, dtype


def _to_tensor(array: Any, dtype: Any) -> Any:
    torch = importlib.import_module("torch")  # here alone: only a state that holds tensors needs it
    kind = getattr(torch, str(dtype), None)
    if not isinstance(array, np.ndarray) or not isinstance(kind, torch.dtype):
        raise ValueError(f"expected the elements and dtype of a tensor, got {dtype!r:.80}")
    tensor = torch.from_numpy(array)
    return tensor if tensor.dtype == kind else tensor.view(kind)
