"""Rules that choose storage and dtype of buffer fields by path."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import DTypeLike

from parllel.arrays.arena import STORAGES, Storage

ValueT = TypeVar("ValueT")


class PathRules(Generic[ValueT]):
    """Looks up values by path. The last rule whose pattern matches applies, else the default.

    Args:
        subject: what the rules are about, for error messages.
        rules: values keyed by pattern, such as `{"env.*": ...}`.
        default: value for paths that no pattern matches.
    """

    def __init__(self, subject: str, rules: Mapping[str, ValueT], default: ValueT) -> None:
        self._subject = subject
        self._rules = dict(rules)
        self._default = default
        self._paths: dict[str, None] = {}  # all looked up, in order

    def at(self, path: str) -> ValueT:
        """Return the value for a path, and record that the path exists."""
        self._paths[path] = None
        chosen = self._default
        for pattern, value in self._rules.items():
            # Not `fnmatch`, which ignores case and changes slashes on Windows.
            if fnmatchcase(path, pattern):
                chosen = value
        return chosen

    def check_used(self) -> None:
        """Check that each rule has matched at least one path, since a rule without a match is misspelled.

        Raises:
            ValueError: if a rule has not matched. The message names the rule and the closest path.
        """
        for pattern in self._rules:
            if any(fnmatchcase(path, pattern) for path in self._paths):
                continue
            # Without a cutoff: a rule may have been written for a different buffer.
            near = difflib.get_close_matches(pattern, list(self._paths), 1, 0.0)
            hint = f"the closest path is {near[0]!r}" if near else "the buffer has no paths"
            raise ValueError(
                f"{self._subject}: the rule {pattern!r} matches no path in the buffer; {hint}"
            )


class StorageRules(PathRules[Storage]):
    """Looks up storages by path. The last rule whose pattern matches applies, else the default.

    Args:
        rules: storages keyed by pattern, such as `{"env.*": "managed"}`, or one storage for all
            paths.
        default: storage of the paths that no pattern matches.

    Raises:
        ValueError: for an unknown storage. The message names the rule.

    Example:
        >>> rules = StorageRules({"env.*": "managed"})
        >>> rules.at("env.reward"), rules.at("agent.action")
        ('managed', 'local')
    """

    def __init__(
        self, rules: Storage | Mapping[str, Storage] | None = None, default: Storage = "local"
    ) -> None:
        by_path = {} if rules is None or isinstance(rules, str) else dict(rules)
        default = rules if isinstance(rules, str) else default
        for pattern, storage in {"the default": default, **by_path}.items():
            if storage not in STORAGES:
                raise ValueError(f"storage: {pattern}: expected one of {STORAGES}, got {storage!r}")
        super().__init__("storage", by_path, default)

    @classmethod
    def of(cls, storage: Storage | Mapping[str, Storage] | StorageRules) -> StorageRules:
        """Convert to StorageRules; an instance is returned as it is."""
        return storage if isinstance(storage, StorageRules) else cls(storage)


class DtypeRules(PathRules["np.dtype[Any] | None"]):
    """Looks up requested dtypes by path. None means that the example decides.

    Args:
        rules: dtypes keyed by pattern, such as `{"env.observation.position": np.float64}`.

    Raises:
        ValueError: for a dtype other than numbers or booleans. The message names the rule.

    Example:
        >>> rules = DtypeRules({"env.reward": "float64"})
        >>> rules.at("env.reward"), rules.at("env.done")
        (dtype('float64'), None)
    """

    def __init__(self, rules: Mapping[str, DTypeLike] | None = None) -> None:
        if not isinstance(rules, (Mapping, type(None))):
            raise ValueError(
                "dtype: expected a dict of dtypes keyed by path, such as {'env.reward': "
                f"np.float64}}, got {rules!r}"
            )
        by_path: dict[str, np.dtype[Any] | None] = {}
        for pattern, asked in (rules or {}).items():
            try:
                dtype = np.dtype(asked)
            except TypeError as error:
                raise ValueError(f"dtype: {pattern}: {error}") from None
            if dtype.kind not in "biufc":
                raise ValueError(f"dtype: {pattern}: expected numbers or booleans, got {dtype}")
            by_path[pattern] = dtype
        super().__init__("dtype", by_path, None)

    @classmethod
    def of(cls, dtype: Mapping[str, DTypeLike] | DtypeRules | None) -> DtypeRules:
        """Convert to DtypeRules; an instance is returned as it is."""
        return dtype if isinstance(dtype, DtypeRules) else cls(dtype)

    def stored(self, path: str, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """Return the dtype requested for a path, or `dtype` (the dtype of the values) if none was requested.

        Raises:
            ValueError: if a cast from `dtype` would lose more than precision.
        """
        asked = self.at(path)
        if asked is None:
            return dtype
        # Floats may lose precision, but integers would wrap, and fractions be truncated.
        if not np.can_cast(dtype, asked, "safe" if asked.kind in "biu" else "same_kind"):
            raise ValueError(
                f"{path}: dtype: {dtype} values cannot be stored as {asked} without loss"
            )
        return asked
