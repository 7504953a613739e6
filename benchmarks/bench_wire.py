"""What is the cost of sending trees as bytes, compared with pickle, plain msgspec, and a memory copy?"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from benchmarks.harness.measure import Comparison, Sides, timed_sides

SMALL: dict[str, Any] = {
    "env": "cartpole-3",
    "step": 12345,
    "reward": 1.0,
    "terminated": False,
    "truncated": False,
    "observation": np.linspace(-1, 1, 8, dtype=np.float32),
}
FLOATS = (1 << 20) // 4


def _large() -> NDArray[np.float32]:
    return np.random.default_rng(0).random(FLOATS, np.float32)


def _sides(
    ours: Callable[[], Any], theirs: Callable[[], Any], observation: NDArray[np.float32]
) -> Sides:
    """Compare two ways to send something, of which the observation comes back."""

    def repeated(send: Callable[[], Any]) -> Callable[[], int]:
        def work() -> int:
            send()
            return 1

        return work

    def check() -> None:
        for send in (ours, theirs):
            np.testing.assert_array_equal(send(), observation, strict=True)

    return Sides(repeated(ours), repeated(theirs), check)


def _pickled(tree: Any) -> Any:
    return pickle.loads(pickle.dumps(tree, pickle.HIGHEST_PROTOCOL))


@contextmanager
def small_against_pickle() -> Iterator[Sides]:
    """Send five values and an observation of 8 floats."""
    from parllel.distributed.wire import decode, encode

    yield _sides(
        lambda: decode(encode(SMALL))["observation"],
        lambda: _pickled(SMALL)["observation"],
        SMALL["observation"],
    )


@contextmanager
def small_against_msgspec() -> Iterator[Sides]:
    """Send the same, with nothing checked and the dtype known to both sides."""
    from msgspec.msgpack import Decoder, Encoder

    from parllel.distributed.wire import decode, encode

    encoder, decoder = Encoder(), Decoder()

    def bare() -> NDArray[np.float32]:
        message = encoder.encode({**SMALL, "observation": SMALL["observation"].tobytes()})
        return np.frombuffer(decoder.decode(message)["observation"], np.float32)

    yield _sides(lambda: decode(encode(SMALL))["observation"], bare, SMALL["observation"])


@contextmanager
def large_against_a_copy() -> Iterator[Sides]:
    """Send 1 MB of float32."""
    from parllel.distributed.wire import decode, encode

    array = _large()
    yield _sides(lambda: decode(encode(array)), array.copy, array)


@contextmanager
def large_against_pickle() -> Iterator[Sides]:
    """Send the same by pickle."""
    from parllel.distributed.wire import decode, encode

    array = _large()
    yield _sides(lambda: decode(encode(array)), lambda: _pickled(array), array)


@contextmanager
def json_against_the_standard_library() -> Iterator[Sides]:
    """Send an observation as JSON by its space, and as lists by `json`, which checks nothing."""
    from parllel.distributed.wire import from_json, json_bytes, parse_json, to_json

    observation = SMALL["observation"]
    space = gym.spaces.Dict({"observation": gym.spaces.Box(-1, 1, (8,), np.float32)})
    value = {"observation": observation}

    def by_space() -> NDArray[np.float32]:
        text = json_bytes(to_json(space, value))
        arrived: NDArray[np.float32] = from_json(space, parse_json(text))["observation"]
        return arrived

    def by_json() -> NDArray[np.float32]:
        text = json.dumps({"observation": observation.tolist()}).encode()
        return np.array(json.loads(text)["observation"], np.float32)

    yield _sides(by_space, by_json, observation)


COMPARISONS = [
    Comparison(
        "wire/small",
        "5 scalars and an observation of 8 floats to bytes and back, against pickle",
        small_against_pickle,
        target=1.0,
        aim=2.0,
        needs=("msgspec",),
    ),
    Comparison(
        "wire/small-msgspec",
        "the same against msgspec alone, which checks nothing and is told the dtype",
        small_against_msgspec,
        reads="slower",
        needs=("msgspec",),
    ),
    Comparison(
        "wire/array",
        "1 MB of float32 to bytes and back, against one copy of it",
        large_against_a_copy,
        reads="slower",
        target=3.0,
        aim=2.0,
        needs=("msgspec",),
    ),
    Comparison(
        "wire/array-pickle", "the same, against pickle", large_against_pickle, needs=("msgspec",)
    ),
    Comparison(
        "wire/json",
        "8 floats to JSON and back by their space, against json with lists, unchecked",
        json_against_the_standard_library,
        reads="slower",
        needs=("msgspec",),
    ),
]

test_wire = timed_sides(COMPARISONS)
