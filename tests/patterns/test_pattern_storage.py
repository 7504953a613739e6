"""Where `allocate_samples` puts things: a default by the cages, and rules over it."""

from __future__ import annotations

import pytest

from parllel.agents import NumpyHandler
from parllel.buffers import buffer_leaves
from parllel.samplers import Plan
from parllel.seeding import Seeds
from parllel.testing.dummy_agents import CountingAgent
from parllel.testing.dummy_envs import CountingEnv
from parllel.transforms import EstimateAdvantage
from parllel.types import BatchSpec
from parllel_patterns import allocate_samples, build_cages

SPEC = BatchSpec(4, 2)


@pytest.fixture
def storages():
    """Return a function that allocates for cages here or in processes, and says what went where."""
    kept = []

    def allocated(parallel=False, **options):
        plan = Plan(1) if parallel else False
        cages = build_cages(CountingEnv, SPEC.B, seeds=Seeds(0), parallel=plan, start_method="fork")
        kept.extend(cages)
        handler = NumpyHandler(CountingAgent(4))
        samples = allocate_samples(cages, SPEC, handler, [EstimateAdvantage(0.9, 0.9)], **options)
        return {path: leaf.storage for path, leaf in buffer_leaves(samples)}

    yield allocated
    while kept:
        kept.pop().close()


def test_rules_stand_over_the_default_of_the_cages(storages):
    found = storages(parallel=True, storage={"agent.advantage": "local"})
    assert found.pop("agent.advantage") == "local"
    assert set(found.values()) == {"managed"}
    found = storages(storage={"env.*": "managed", "env.reward": "local"})
    assert found["env.reward"] == "local"
    assert found["env.terminated"] == "managed"
    assert found["agent.advantage"] == "local"


def test_switching_arrays_are_managed_by_default(storages):
    assert set(storages(switching=True).values()) == {"managed"}
    found = storages(switching=True, storage={"agent.advantage": "local"})
    assert found.pop("agent.advantage") == "local"
    assert set(found.values()) == {"managed"}


def test_a_misspelled_rule_is_refused_with_the_nearest_path(storages):
    message = (
        r"'agent\.advantages' matches no path in the buffer; the closest path is 'agent\.advantage'"
    )
    with pytest.raises(ValueError, match=message):
        storages(storage={"agent.advantages": "local"})
    # What the agent sees is the environments' own array, which has one place.
    with pytest.raises(ValueError, match=r"closest path is 'env\.observation'"):
        storages(storage={"agent.observation": "local"})
