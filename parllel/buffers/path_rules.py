"""Rules by path for the elements of a buffer: where their memory lies, and of what type they are."""

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
    """What holds for each path: the last rule that fits it, else the default.

    Args:
        subject: what the rules are about, for messages.
        rules: by pattern, such as `{"env.*": ...}`.
        default: for paths that no rule fits.
    """

    def __init__(self, subject: str, rules: Mapping[str, ValueT], default: ValueT) -> None:
        self._subject = subject
        self._rules = dict(rules)
        self._default = default
        self._paths: dict[str, None] = {}  # those that were asked for, in their order

    def at(self, path: str) -> ValueT:
        """Return what holds for a path, and remember that it exists."""
        self._paths[path] = None
        chosen = self._default
        for pattern, value in self._rules.items():
            # Not `fnmatch`, which ignores case and changes slashes on Windows.
            if fnmatchcase(path, pattern):
                chosen = value
        return chosen

    def check_used(self) -> None:
        """Refuse rules that fit none of the paths asked for: they are misspelled.

        Raises:
            ValueError: names the rule and the path that is nearest to it.
        """
        for pattern in self._rules:
            if any(fnmatchcase(path, pattern) for path in self._paths):
                continue
            # The nearest, however far: a rule may be written for another buffer altogether.
            near = difflib.get_close_matches(pattern, list(self._paths), 1, 0.0)
            hint = f"the nearest is {near[0]!r}" if near else "there is none"
            raise ValueError(
                f"{self._subject}: the rule {pattern!r} matches no path of the buffer; {hint}"
            )


class StorageRules(PathRules[Storage]):
    """The storage of each path: that of the last rule that matches it, else the default.

    Args:
        rules: by pattern, such as `{"env.*": "managed"}`; or one storage for all paths.
        default: for paths that no rule fits.

    Raises:
        ValueError: for an unknown storage; names the rule.

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
        """Return `storage` itself if it is one already."""
        return storage if isinstance(storage, StorageRules) else cls(storage)


class DtypeRules(PathRules["np.dtype[Any] | None"]):
    """The dtype that is asked for at each path, None where the example decides.

    Args:
        rules: by pattern, such as `{"env.observation.position": np.float64}`.

    Raises:
        ValueError: for a type that is not of numbers or booleans; names the rule.

    Example:
        >>> rules = DtypeRules({"env.reward": "float64"})
        >>> rules.at("env.reward"), rules.at("env.done")
        (dtype('float64'), None)
    """

    def __init__(self, rules: Mapping[str, DTypeLike] | None = None) -> None:
        if not isinstance(rules, (Mapping, type(None))):
            raise ValueError(
                f"dtype: expected types by path, as {{'env.reward': np.float64}}, got {rules!r}"
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
        """Return `dtype` itself if it is one already."""
        return dtype if isinstance(dtype, DtypeRules) else cls(dtype)

    def stored(self, path: str, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """Return the type that is asked for at a path, else `dtype`, that of the numbers.

        Raises:
            ValueError: if numbers of `dtype` would lose more than digits in it.
        """
        asked = self.at(path)
        if asked is None:
            return dtype
        # Floats may lose digits, but integers wrap, and fractions are cut.
        if not np.can_cast(dtype, asked, "safe" if asked.kind in "biu" else "same_kind"):
            raise ValueError(f"{path}: dtype: {dtype} numbers do not fit {asked}")
        return asked
