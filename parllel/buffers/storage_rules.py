"""Where the memory of each element of a buffer lies: a default, and rules by path."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from fnmatch import fnmatchcase

from parllel.arrays import STORAGES, Storage


class StorageRules:
    """The storage of each path: that of the last rule that fits it, else the default.

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
        self._rules = {} if rules is None or isinstance(rules, str) else dict(rules)
        self._default = rules if isinstance(rules, str) else default
        self._paths: dict[str, None] = {}  # those that were asked for, in their order
        for pattern, storage in {"the default": self._default, **self._rules}.items():
            if storage not in STORAGES:
                raise ValueError(f"storage: {pattern}: expected one of {STORAGES}, got {storage!r}")

    @classmethod
    def of(cls, storage: Storage | Mapping[str, Storage] | StorageRules) -> StorageRules:
        """Return `storage` itself if it is one already."""
        return storage if isinstance(storage, StorageRules) else cls(storage)

    def at(self, path: str) -> Storage:
        """Return the storage of a path, and remember that it exists."""
        self._paths[path] = None
        chosen = self._default
        for pattern, storage in self._rules.items():
            if fnmatchcase(path, pattern):
                chosen = storage
        return chosen

    def check_used(self) -> None:
        """Refuse rules that fit none of the paths asked for: they are misspelled.

        Raises:
            ValueError: names the rule and the path that is nearest to it.
        """
        for pattern in self._rules:
            if any(fnmatchcase(path, pattern) for path in self._paths):
                continue
            near = difflib.get_close_matches(pattern, list(self._paths), 1, 0.0)
            hint = f"the nearest is {near[0]!r}" if near else "there is none"
            raise ValueError(f"storage: the rule {pattern!r} fits no path of the buffer; {hint}")
