"""Rows of `env_info`: values of the environments' infos in fields of a batch.

    info of a step       {"speed": 1.5, "episode": {"r": 9.0}}
    rows[field][t][i]    env_info.speed, env_info.episode.r

Every field is written in every step, with a default if the info lacks its key.
"""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from parllel.buffers.paths import Path, dotted, leaf_paths, parts_of
from parllel.types import Tree

# Types written without a check, which would cost time in each step. Values of other types may not be numbers,
# or may be fractions in a field of integers.
_INTEGERS: frozenset[Any] = frozenset(
    [int, bool, np.bool_, *(np.dtype(code).type for code in "bhilqBHILQ")]
)
_NUMBERS = _INTEGERS | {float, np.float16, np.float32, np.float64}
_WHOLE, _FLOATS = "biu", "biuf"  # kinds of dtypes
_ABSENT = object()


class EnvInfoRows:
    """Writes selected keys of the environments' infos to their fields, in some columns of a batch.

    Args:
        leaves: the path of keys and the dtype of each field.
        defaults: values for infos that lack a key, [1, B, ...] for each field. With None, a missing
            key raises KeyError.
        columns: the columns of these environments.
        name: name of the environments for messages.

    Attributes:
        rows: for each field, its rows in the current batch; the owner sets them.
    """

    def __init__(
        self,
        leaves: Sequence[tuple[Path, np.dtype[Any]]],
        defaults: Tree,
        columns: slice,
        name: str,
    ) -> None:
        self._name, self._first = name, columns.start
        self._leaves = [(path[0], path[1:], path, *_taken(dtype)) for path, dtype in leaves]
        self.rows: list[list[Any]] = []
        # Copied once: reading an Array is slower, and some environments lack a key in most steps.
        self._defaults: dict[Path, Any] = {
            path: np.array(leaf[0, columns]) for path, leaf in leaf_paths(defaults)
        }
        # Only for column 0, as equal environments would repeat the warning.
        self._may_warn = columns.start == 0

    def write(self, t: int, i: int, info: dict[str, Any], *, ended: bool) -> None:
        """Write the info of environment i to row `t`.

        ended: whether the step was the last of an episode.

        Raises:
            KeyError: if a key is missing and has no default.
            TypeError: if a value is not a number, or a fraction in a field of integers.
        """
        absent = []
        for (key, deeper, path, types, kinds), rows in zip(self._leaves, self.rows, strict=True):
            # A sentinel, not None: a key may be present with the value None, which is refused below.
            value = info.get(key, _ABSENT)
            if deeper and value is not _ABSENT:
                value = self._below(i, path, value)
            # For the usual number, one look-up of its exact type is the whole check.
            if type(value) not in types:
                if value is _ABSENT:
                    absent.append(path)
                    # Always written, as the row still holds values of an earlier batch.
                    rows[t][i] = self._default(i, path, info)
                    continue
                # Arrays are checked by the kind of their dtype, not by their elements.
                if type(value) is not np.ndarray or value.dtype.kind not in kinds:
                    self._check(i, path, value, kinds)
            rows[t][i] = value
        # Only at the end: many environments have some keys only in the last info of an episode.
        if ended and i == 0 and self._may_warn:
            self._may_warn = False
            if absent:
                self._warn(absent, info)

    def write_stack(self, t: int, infos: dict[str, Any], n: int) -> bool:
        """Write the stacked infos of n environments to row `t`.

        Returns False if a field has neither an array of numbers nor a default; the infos must then be written
        one by one.
        """
        for (_, _, path, _, kinds), rows in zip(self._leaves, self.rows, strict=True):
            value, has = _stack_at(infos, path)
            default = self._defaults.get(path)
            if value is None or (has is not None and not has.all()):
                if default is None:
                    # Fields that were already written do no harm: the caller writes all of
                    # them again, one by one.
                    return False
                rows[t][...] = default
            if value is None:
                continue
            if (
                not isinstance(value, np.ndarray)
                or value.shape[:1] != (n,)
                or value.dtype.kind not in kinds
            ):
                return False
            if has is None or has.all():
                rows[t][...] = value
            else:
                # Elsewhere the stack holds filler, which must not replace the default.
                rows[t][has] = value[has]
        return True

    def _default(self, i: int, path: Path, info: dict[str, Any]) -> Any:
        if path in self._defaults:
            return self._defaults[path][i]
        raise KeyError(
            f"{self._where(i, path)}: missing, and the buffer has no default for it; the info has "
            f"{sorted(map(str, info))}"
        )

    def _below(self, i: int, path: Path, node: Any) -> Any:
        """Return the value at a path, given the value `node` at its first key."""
        for key in path[1:]:
            parts = parts_of(node)
            # A number where the example has a dict is not a missing key but a mismatch.
            if parts is None:
                raise TypeError(
                    f"{self._where(i, path)}: expected a dict on the way to this key, got {node!r}"
                )
            node = parts.get(key, _ABSENT)
            if node is _ABSENT:
                break
        return node

    def _check(self, i: int, path: Path, value: Any, kinds: str) -> None:
        kind = _kind_of(value)
        if kind not in _FLOATS:
            raise TypeError(f"{self._where(i, path)}: expected numbers, got {value!r}")
        # numpy would truncate the fraction silently.
        if kind not in kinds:
            raise TypeError(
                f"{self._where(i, path)}: expected integers, because the example in env_info is an "
                f"integer, got {value!r}; use 0.0 as the example"
            )

    def _where(self, i: int, path: Sequence[str]) -> str:
        keys = "".join(f"[{key!r}]" for key in path)
        return f"column {self._first + i} ({self._name}): info{keys}"

    def _warn(self, absent: Sequence[Path], info: dict[str, Any]) -> None:
        """Warn that an episode ended without these keys, which may be misspelled."""
        keys = [dotted(path) for path in absent]
        near = [close for key in keys for close in difflib.get_close_matches(key, map(str, info))]
        hint = f"; near names: {near}" if near else ""
        warnings.warn(
            f"column 0 ({self._name}): at the end of an episode its info has no {keys}; "
            f"the buffer holds the example given in env_info there{hint}",
            stacklevel=2,
        )


def _stack_at(infos: Any, path: Path) -> tuple[Any, Any]:
    """Return the array at a path or None, and the mask of environments that have it (None for all)."""
    has: Any = None
    for key in path:
        if not isinstance(infos, dict) or key not in infos:
            return None, has
        mask = infos.get(f"_{key}")
        if mask is not None:
            # An environment has a nested value only if it has every dict around it.
            has = mask if has is None else has & mask
        infos = infos[key]
    return infos, has


def _taken(dtype: np.dtype[Any]) -> tuple[frozenset[Any], str]:
    """Return the types that a field accepts without a check, and the dtype kinds that it accepts."""
    return (_INTEGERS, _WHOLE) if dtype.kind in _WHOLE else (_NUMBERS, _FLOATS)


def _kind_of(value: Any) -> str:
    try:
        return np.asarray(value).dtype.kind
    except ValueError:  # lists of different lengths
        return "O"
