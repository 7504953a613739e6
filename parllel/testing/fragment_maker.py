"""An actor that offers fragments to a buffer, as the actor of a worker does."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from parllel.distributed.rollouts.on_ray.large_fragments import FragmentContent


class FragmentMaker:
    """Makes fragments in its own process. At least two of the actor's threads are needed.

    The buffer's actor imports this class as well, so it is not in a folder of tests.

    Args:
        buffer: a RayReplayBuffer.
        make: function of the number of a fragment that returns it.
        dies: whether the process ends when it is asked for contents.
    """

    def __init__(self, buffer: Any, make: Callable[[int], Any], dies: bool = False) -> None:
        self._buffer, self._make, self._dies = buffer, make, dies
        buffer.offer_from_here()

    def pid(self) -> int:
        """Return the number of its process."""
        return os.getpid()

    def add(self, numbers: Sequence[int], timeout_s: float = 30.0) -> int:
        """Add the fragments of these numbers, and return how many were handled."""
        made = [self._make(number) for number in numbers]
        done = 0
        while done < len(made) and (now := self._buffer.add(made[done:], timeout_s)):
            done += now
        return done

    def contents(self, keys: Any) -> list[FragmentContent]:
        """Return the contents of offered fragments, as `RayReplayBuffer.offer_from_here` says."""
        if self._dies:
            os._exit(1)
        found: list[FragmentContent] = self._buffer.contents(keys)
        return found
