"""Kafka brokers to measure on: those of the tests."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

from parllel.testing import MockKafkaBroker

TESTS = Path(__file__).resolve().parents[2] / "tests" / "messaging"


@contextlib.contextmanager
def brokers() -> Iterator[dict[str, str]]:
    """Start a broker of each kind that is installed; yield their addresses by kind, and end them."""
    sys.path.insert(0, str(TESTS))
    from kafka_brokers import TANSU, TansuBroker  # type: ignore[import-not-found]

    with contextlib.ExitStack() as stack:
        addresses = {"mock": stack.enter_context(MockKafkaBroker()).address}
        if TANSU.exists():
            addresses["tansu"] = stack.enter_context(TansuBroker()).address
        yield addresses
