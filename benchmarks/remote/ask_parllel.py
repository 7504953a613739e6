"""Act by our clients.

python -m benchmarks.remote.ask_parllel URL json|protobuf|batch
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from benchmarks.remote.questions import CONFIGURATION, answer_turns, expected, observation
from parllel.distributed.remote import ProtobufAgent, UrlAgent

BATCH = 64


def asking(url: str, how: str) -> Callable[[int], int]:
    """Return a function that asks once, for one observation or a batch of them."""
    if how == "batch":
        batch = UrlAgent(url, "rps")

        def act_batch(step: int) -> int:
            steps = range(step, step + BATCH)
            actions = batch.act_batch([observation(one) for one in steps], CONFIGURATION)
            assert actions == [expected(one) for one in steps], actions
            return BATCH

        return act_batch
    client = (
        UrlAgent(url, "rps")
        if how == "json"
        else ProtobufAgent({"type": "proto", "url": url}, "rps")
    )

    def act(step: int) -> int:
        action = client(observation(step), CONFIGURATION)
        assert action == expected(step), action
        return 1

    return act


if __name__ == "__main__":
    answer_turns(asking(*sys.argv[1:]))
