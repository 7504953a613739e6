"""A fragment as bytes, which its storage need not open."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field

from parllel.distributed.rollouts.fragments.sample_fragment import FragmentKey, SampleFragment


@dataclass(frozen=True)
class PackedFragment:
    """What a storage judges a fragment by, and the fragment itself.

    The bytes belong to whoever has received them: what Ray hands out otherwise is a view of its object store,
    read-only, and not to be evicted as long as the view lives.
    """

    key: FragmentKey
    oldest_version: int
    incarnation: str
    content: bytes = field(repr=False)

    @classmethod
    def of(cls, fragment: SampleFragment) -> PackedFragment:
        """Pack a fragment."""
        content = pickle.dumps(fragment, protocol=5)
        return cls(fragment.key, fragment.oldest_version, fragment.incarnation, content)

    def unpack(self) -> SampleFragment:
        """Return the fragment; its arrays own their memory."""
        fragment: SampleFragment = pickle.loads(self.content)
        return fragment
