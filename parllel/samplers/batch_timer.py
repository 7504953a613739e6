"""Where the time of one batch goes."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

from parllel.samplers.batch_sampler import BatchSampler

_INFERENCE = ("act", "bootstrap")


class BatchTimer:
    """A context in which the batches of a sampler are timed, at the cost of reading the clock twice per row.

    Attributes:
        seconds: `inference`, the agent and the step transforms; `transforms`, what is done to a finished
            batch; `waiting`, the rest: for the environments, or stepping them where this process does.
    """

    def __init__(self, sampler: BatchSampler) -> None:
        self.seconds = {"inference": 0.0, "waiting": 0.0, "transforms": 0.0}
        self._sampler = sampler

    def __enter__(self) -> BatchTimer:
        for name in _INFERENCE:
            self._shadow(name, "inference")
        self._shadow("finish", "transforms")
        self._begin = time.perf_counter()
        return self

    def _shadow(self, name: str, part: str) -> None:
        """Put a method that measures in front of the sampler's own."""
        method: Callable[..., Any] = getattr(self._sampler, name)
        seconds = self.seconds

        def measured(*arguments: Any, **named_arguments: Any) -> Any:
            begin = time.perf_counter()
            result = method(*arguments, **named_arguments)
            seconds[part] += time.perf_counter() - begin
            return result

        self._sampler.__dict__[name] = measured

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        total = time.perf_counter() - self._begin
        for name in (*_INFERENCE, "finish"):
            del self._sampler.__dict__[name]
        self.seconds["waiting"] = max(total - sum(self.seconds.values()), 0.0)
