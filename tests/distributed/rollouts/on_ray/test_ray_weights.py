"""Weights on their way from the trainer to workers on Ray."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import ray
from ray_setup import build_ready, publish, rollouts, wait_until

from parllel.distributed.rollouts.on_ray.publication import Publication, fingerprint_of

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("ray_here")]
LAST = 20


def build_late(place, flag):
    """Put worker 1 together only once a file is there."""
    while place.name == "worker 1" and not Path(flag).exists():
        time.sleep(0.02)
    return build_ready(place)


def fragments_until(buffer, workers, condition):
    """Fetch fragments until they fulfil a condition."""
    found = []

    def enough():
        workers.check()
        found.extend(buffer.fetch(1, 1.0))
        return condition(found)

    wait_until(enough, "fragments")
    return found


def test_publications_come_in_order(tmp_path):
    flag = tmp_path / "flag"
    with rollouts(partial(build_late, flag=str(flag)), 2) as (buffer, statistics, workers):
        assert publish(workers, 1)
        found = fragments_until(buffer, workers, lambda found: len(found) >= 2)
        assert {fragment.producer for fragment in found} == {"worker 0"}
        # Faster than a worker asks for them.
        assert all(publish(workers, version) for version in range(2, LAST + 1))
        assert not publish(workers, 5)
        with pytest.raises(ValueError, match=r"expected the weights of the worker's agent, .* got"):
            workers.load_weights({"model": {"weight": np.zeros(3)}}, LAST + 1)

        flag.touch()
        found += fragments_until(
            buffer,
            workers,
            lambda found: (
                {f.producer for f in found if f.oldest_version == LAST} == {"worker 0", "worker 1"}
            ),
        )
        # One that joins late begins with what is current, and is not sent what went before.
        assert {f.oldest_version for f in found if f.producer == "worker 1"} == {LAST}
        for fragment in found:
            assert fragment.agent.agent_info.weight.tolist() == fragment.env.version.tolist()
        for environment in range(2):
            own = [f for f in found if (f.producer, f.environment) == ("worker 0", environment)]
            versions = np.concatenate([fragment.env.version for fragment in own])
            assert np.all(np.diff(versions) >= 0)
            assert versions[0] == 1
        assert {status.version for status in workers.ask_statuses()} <= {1, LAST}
        wait_until(statistics.drain, "episodes")
        workers.close()
        workers.close()


def test_weights_that_are_not_those_of_the_version_are_refused():
    weights = {"model": {"weight": np.arange(6, dtype=np.float32).reshape(2, 3)}}
    published = Publication.of(weights, 1, fingerprint_of(weights))
    np.testing.assert_array_equal(published.fetch()["model"]["weight"], weights["model"]["weight"])
    almost = weights["model"]["weight"].copy()
    almost[1, 2] = np.nextafter(almost[1, 2], np.float32(9))
    for other in (
        {"model": {"weight": almost}},
        {"model": {"weight": weights["model"]["weight"].reshape(3, 2)}},
        {"model": {"weight": weights["model"]["weight"].view(np.int32)}},
        {"model": {"bias": weights["model"]["weight"]}},
    ):
        wrong = replace(published, reference=(ray.put(other),))
        with pytest.raises(
            ValueError, match=r"weights of version 1: expected the fingerprint \w{8}"
        ):
            wrong.fetch()
