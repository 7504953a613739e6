from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from kafka_brokers import GIVEN, KINDS, OWN_KINDS, START, DisturbedBroker

from parllel.testing import Service


@pytest.fixture(scope="session")
def broker_address() -> Iterator[Callable[[str], str]]:
    """A function from a kind of broker to the address of one that lives as long as the session.

    Tests share it: each takes a run of its own. It skips the test if there is no such broker here.
    """
    started: dict[str, str] = {}
    with ExitStack() as stack:

        def address_of(kind: str) -> str:
            if kind == "given":
                assert GIVEN is not None
                return GIVEN
            if kind not in started:
                service = stack.enter_context(Service(f"{kind} broker"))
                broker = stack.enter_context(START[kind]())
                service.adopt_new()
                started[kind] = broker.address
            return started[kind]

        yield address_of


@pytest.fixture(params=KINDS)
def kafka_address(request: pytest.FixtureRequest, broker_address: Callable[[str], str]) -> str:
    """The address of each broker there is: one test for each."""
    return broker_address(request.param)


@pytest.fixture(params=OWN_KINDS)
def disturbed(request: pytest.FixtureRequest) -> Iterator[DisturbedBroker]:
    """A broker of the test's own, of each kind, with a proxy before it, to kill, pause, delay and cut."""
    with DisturbedBroker(request.param) as broker:
        yield broker
