from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from starting import METHODS, Start

from parllel.processes import Child


@pytest.fixture(params=METHODS)
def start(request: pytest.FixtureRequest) -> Iterator[Start]:
    """A function that starts a child under each start method; ends them all."""
    yield from starter(request.param)


@pytest.fixture
def start_fork() -> Iterator[Start]:
    """The same under the cheapest one, where the method cannot matter."""
    yield from starter("fork")


def starter(method: str) -> Iterator[Start]:
    started: list[Child] = []

    def start(target: Callable[..., None], *args: Any, **kwargs: Any) -> Child:
        child = Child(target, args, name="cage 3", start_method=method, **kwargs)
        started.append(child)
        return child

    yield start
    for child in started:
        child.kill()
