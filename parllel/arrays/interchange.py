"""Interoperation of Arrays with numpy, torch and Python's operators.

Functions of numpy and torch accept an Array. Operators raise TypeError: `==` of two Arrays compares places,
so `reward == 0` would silently be False, and `reward += 1` would not change the memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

_BINARY = {
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "add": "+",
    "sub": "-",
    "mul": "*",
    "truediv": "/",
    "floordiv": "//",
    "mod": "%",
    "divmod": "divmod()",
    "pow": "**",
    "matmul": "@",
    "and": "&",
    "or": "|",
    "xor": "^",
    "lshift": "<<",
    "rshift": ">>",
}
_UNARY = {"neg": "-", "pos": "+", "invert": "~", "abs": "abs()"}
_COMPARISONS = ("lt", "le", "gt", "ge")


class Interchange:
    """Implements the array protocols of numpy, torch and Python, except `__array__`."""

    __slots__ = ()

    def __dlpack__(self, **options: Any) -> Any:
        """Export the elements by DLPack, without a copy where that is possible."""
        return np.asarray(self).__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return np.asarray(self).__dlpack_device__()

    def __float__(self) -> float:
        return float(np.asarray(self))

    def __int__(self) -> int:
        return int(np.asarray(self))

    if not TYPE_CHECKING:  # type checkers would accept any attribute

        def __getattr__(self, name: str) -> Any:
            hint = f"; np.asarray(array).{name} is numpy's" if hasattr(np.ndarray, name) else ""
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}{hint}")

    # Otherwise Python would use `__len__`, and every array would be true.
    def __bool__(self) -> bool:
        raise TypeError("the truth of an Array is ambiguous; use np.asarray(array).any() or .all()")


def refuse_numbers(other: object, operator: str) -> None:
    """Raise TypeError if `other` is a number or holds numbers, since a computation was probably intended."""
    if isinstance(other, (int, float, complex, np.generic, list, tuple)) or hasattr(
        other, "__array__"
    ):
        raise _refusal(operator)


def refuse_others_than_numbers(value: Any) -> None:
    """Raise TypeError if a list, a tuple or a numpy array holds anything but numbers.

    numpy would convert None to NaN.
    """
    if np.asarray(value).dtype.hasobject:
        raise TypeError(f"Array: expected numbers to write, got {value!r}")


def _refusal(operator: str) -> TypeError:
    return TypeError(
        f"{operator} is not defined for an Array; np.asarray(array) is the numpy array to compute with"
    )


def _refused(operator: str) -> Callable[..., Any]:
    def refuse(self: Any, *others: Any) -> Any:
        raise _refusal(operator)

    return refuse


for _name, _operator in {**_BINARY, **_UNARY}.items():
    setattr(Interchange, f"__{_name}__", _refused(_operator))
    # Comparisons have no reflected methods: Python tries `>` of the other operand for `<`.
    if _name in _BINARY and _name not in _COMPARISONS:
        setattr(Interchange, f"__r{_name}__", _refused(_operator))
