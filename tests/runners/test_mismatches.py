"""Parts that do not belong together are refused by name where they are joined; see docs/mismatches.md."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path

import pytest
from mismatched_parts import Parts
from mismatched_replays import ROWS

from parllel.torch import EvaluatePolicy
from parllel.transforms import EstimateVtrace, FinalObservations

PAGE = Path(__file__).parents[2] / "docs" / "mismatches.md"
every_row = pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())


@pytest.fixture
def parts():
    with ExitStack() as stack:
        yield Parts(stack)


@every_row
def test_a_mistake_is_refused_by_name(parts, row):
    if issubclass(row.error, Warning):
        with pytest.warns(row.error, match=row.said):
            row.mistake(parts)
    else:
        with pytest.raises(row.error, match=row.said):
            row.mistake(parts)


@every_row
@pytest.mark.few(25)
def test_its_neighbour_is_not(parts, row):
    row.right(parts)


def test_a_transforming_algorithm_asks_for_what_its_transforms_do_not_write(parts):
    parts.batch_transforms = [FinalObservations()]
    sampler = parts.sampler()
    algorithm = parts.transforming(EvaluatePolicy(parts.agent), EstimateVtrace(0.99))
    reads = algorithm.reads(sampler.samples)
    assert {"env.reward", "agent.final_observation", "agent.agent_info.log_prob"} <= set(reads)
    assert {"agent.advantage", "agent.return_", "agent.learner_value"}.isdisjoint(reads)
    with pytest.raises(ValueError, match=r"EvaluatePolicy: writes agent.learner_.*PPO reads"):
        parts.transforming(EvaluatePolicy(parts.agent)).reads(sampler.samples)
    with pytest.raises(
        ValueError, match=r"TransformingAlgorithm needs the field agent.advantage, which nothing"
    ):
        parts.run(sampler, parts.transforming())


def test_the_page_has_a_line_for_each_row_and_no_other():
    # Those of JAX are tested in tests/jax.
    named = re.findall(r"^\| `(?!jax-)([a-z-]+)` \|", PAGE.read_text(), re.MULTILINE)
    assert sorted(named) == sorted(ROWS)
    assert len(set(named)) == len(named)
