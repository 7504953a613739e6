"""Messages of some environments over one broker, step by step, each checked to be the one of its step.

As a program it steps until it is killed, and prints a line for each step:

    python traffic.py ADDRESS RUN [TIMEOUT_S]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from parllel.distributed.messaging import KafkaBroker, TopicManager

ENVIRONMENT, ROOT, LEAVES = "environment", "root", ("left", "right")
# Names that are prefixes of each other, and that a topic's own name could not hold.
MESSAGES = 6  # of an environment's step
ENV_IDS = ("a", "a_", "a__b", "ä/ b\n")


class Traffic:
    """The messages of a root and two leaves in each environment: actions down, information up.

    Args:
        broker: belongs to the caller.
        env_ids: the environments.
        word: is in each payload, so that one of another traffic would be noticed.
        between: called before each hop, with its number.
    """

    def __init__(
        self,
        broker: KafkaBroker,
        env_ids: Sequence[str] = ENV_IDS,
        word: str = "",
        between: Callable[[int], None] = lambda hop: None,
    ) -> None:
        self.broker = broker
        self.env_ids = list(env_ids)
        self.word = word
        self.between = between
        self.steps_done = 0
        self._step = 0
        for env_id in self.env_ids:
            broker.join(env_id)
        self._connect()

    def _connect(self) -> None:
        pairs = [
            (TopicManager.action_topic, [(ENVIRONMENT, ROOT)]),
            (TopicManager.action_topic, [(ROOT, leaf) for leaf in LEAVES]),
            (TopicManager.info_topic, [(leaf, ROOT) for leaf in LEAVES]),
            (TopicManager.info_topic, [(ROOT, ENVIRONMENT)]),
        ]
        self.hops = [
            [
                ((env_id, *pair), self.broker.channel(topic(*pair, env_id), env_id))
                for env_id in self.env_ids
                for pair in of_hop
            ]
            for topic, of_hop in pairs
        ]

    def step(self, timeout_s: float | None = None) -> None:
        """Send and receive the messages of one step.

        Raises:
            AssertionError: if a message is not the one that was sent in this step over its channel.
            MessagingError: as the broker does. Then call `reset`.
        """
        step, self._step = self._step, self._step + 1
        self.broker.begin_step(self.env_ids, [step] * len(self.env_ids))
        for hop, channels in enumerate(self.hops):
            self.between(hop)
            for name, channel in channels:
                channel.put(self._payload(name, hop, step))
            deadline = None if timeout_s is None else time.monotonic() + timeout_s
            self.broker.await_messages([channel for _, channel in channels], deadline)
            for name, channel in channels:
                message = channel.take()
                expected = self._payload(name, hop, step)
                # Not np.testing.assert_equal, which costs ten times what the messages do.
                assert message.payload["numbers"].dtype == np.float32
                assert {**message.payload, "numbers": None} == {**expected, "numbers": None}
                assert message.payload["numbers"].tolist() == expected["numbers"].tolist()
                assert (message.env_id, message.sender_id, message.recipient_id) == name
                assert message.step == step
        self.steps_done += 1

    def send_half(self) -> None:
        """Send the first messages of the next step, which nobody takes; then call `reset` or `rename`."""
        self.broker.begin_step(self.env_ids, [self._step] * len(self.env_ids))
        for name, channel in self.hops[0]:
            channel.put(self._payload(name, -1, self._step))
        self.broker.flush()

    def reset(self) -> None:
        """Begin the next epoch of each environment."""
        self._step = 0
        for env_id in self.env_ids:
            self.broker.clear_environment(env_id)

    def rename(self, index: int, env_id: str) -> None:
        """Let an environment leave, and another take its place. All begin an epoch."""
        self.broker.leave(self.env_ids[index])
        self.broker.join(env_id)
        self.env_ids[index] = env_id
        self._connect()
        self.reset()

    def _payload(self, name: tuple[str, str, str], hop: int, step: int) -> dict[str, Any]:
        numbers = np.array([hop, step, self.steps_done], np.float32)
        return {"from": [self.word, *name], "numbers": numbers, "step": step}


def main(address: str, run: str, timeout_s: str = "10") -> None:
    """Step until killed."""
    with KafkaBroker("kafka", run=run, bootstrap=address, timeout_s=float(timeout_s)) as broker:
        traffic = Traffic(broker, word=run)
        while True:
            traffic.step()
            print(traffic.steps_done, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
