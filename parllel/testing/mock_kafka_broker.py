"""librdkafka's mock cluster in a separate process, which tests start, disturb and end."""

from __future__ import annotations

import sys

from parllel.system.processes.program import Program
from parllel.testing import mock_kafka
from parllel.types import Closeable

_START_S = 30.0
_ANSWER_S = 10.0


class MockKafkaBroker(Closeable):
    """A Kafka broker over loopback that starts in a moment and is empty; `mock_kafka` says what it lacks.

    Args:
        advertised: the address that clients are given, as that of a proxy; default its own.

    Raises:
        WorkerDiedError: if it cannot start, as without the `confluent_kafka` package; says why.
        WorkerTimeoutError: if it takes too long.

    It ends with this process, however that ends.
    """

    def __init__(self, advertised: tuple[str, int] | None = None) -> None:
        # By its path: imported as a module of this package, it would import all of that.
        command = [sys.executable, mock_kafka.__file__]
        self.program = Program(command, name="mock Kafka broker")
        try:
            self.address = self.program.read_line(_START_S).decode()
            if advertised is not None:
                self.command(f"advertise {advertised[0]} {advertised[1]}")
        except BaseException:
            self.program.end(0.0)
            raise

    def command(self, line: str) -> None:
        """Send a command of `mock_kafka` and wait for its reply.

        Raises:
            ValueError: if it refuses, with what it says.
            WorkerDiedError, WorkerTimeoutError: if it has ended, or does not answer.
        """
        self.program.write(f"{line}\n".encode(), _ANSWER_S)
        answer = self.program.read_line(_ANSWER_S).decode()
        if answer != "ok":
            raise ValueError(f"mock Kafka broker: {line}: {answer}")

    def close(self) -> None:
        """End the broker. Idempotent."""
        self.program.end(0.0)
