"""Who works when, for which columns, and what a step costs."""

from __future__ import annotations

import gc
import sys
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sampler_cages import SAMPLERS, GroupedCage, assert_same, vectorized

from parllel.agents import Agent, NumpyHandler
from parllel.buffers import add_fields
from parllel.cages import VectorizedCage
from parllel.samplers import AlternatingSampler, BasicSampler, CageColumns
from parllel.samplers.cage_columns import EnvGroup, EnvGroups
from parllel.testing.dummy_envs import CountingEnv
from parllel.testing.sampler_contract import ENVIRONMENTS
from parllel.testing.sampler_setup import MakeCages, SamplerSetup, make_sampler
from parllel.testing.transform_samples import numbers_of
from parllel.transforms import NormalizeObservations

both = pytest.mark.parametrize("cls", SAMPLERS)


class NullCage(VectorizedCage):
    """Notes what it is told, in `calls`, and steps nothing."""

    def __init__(self, factories, *, name="", calls=None, **options):
        options.pop("buffers", None)
        super().__init__(factories[:1], traj_info=options["traj_info"])
        self._n, self._label, self._calls = len(factories), name, calls

    n = property(lambda self: self._n)

    def set_samples_buffer(self, samples, columns):
        pass

    def start_reset(self, t=0, *, all_envs=True, group=0):
        pass

    def start_row(self, t, group=0):
        if self._calls is not None:
            self._calls.append(f"start {self._label} {t}")

    def finish_row(self, group=0):
        if self._calls is not None:
            self._calls.append(f"finish {self._label}")


def null_cages(sizes, calls=None):
    def make_cages(factories, seeds, **options):
        names = iter("abcdef")
        return [
            NullCage(factories[:size], name=next(names), calls=calls, **options) for size in sizes
        ]

    return make_cages


def events_of(cls, sizes):
    calls = []
    setup = SamplerSetup(2, (CountingEnv,) * sum(sizes), make_cages=null_cages(sizes, calls))
    with make_sampler(cls, setup) as sampler:
        handler = sampler.handler
        step, bootstrap = handler.step, handler.bootstrap_value

        def noted_step(t, columns):
            calls.append(f"act {columns.start}:{columns.stop} {t}")
            step(t, columns)

        def noted_bootstrap(t, columns):
            calls.append(f"value {columns.start}:{columns.stop} {t}")
            bootstrap(t, columns)

        handler.step, handler.bootstrap_value = noted_step, noted_bootstrap
        sampler.collect_batch(0)  # the first begins with a reset
        calls.clear()
        sampler.collect_batch(0)
        return calls


def test_the_basic_sampler_acts_for_all_at_once():
    # Two cages: both are started before the first is waited for.
    assert events_of(BasicSampler, (2, 3)) == [
        *("act 0:5 0", "start a 0", "start b 0", "finish a", "finish b"),
        *("act 0:5 1", "start a 1", "start b 1", "finish a", "finish b"),
        "value 0:5 2",
    ]


def test_the_alternating_sampler_acts_for_one_half_while_the_other_steps():
    assert events_of(AlternatingSampler, (2, 1, 2)) == [
        *("act 0:2 0", "start a 0"),
        *("act 2:5 0", "start b 0", "start c 0"),
        *("finish a", "act 0:2 1", "start a 1"),
        *("finish b", "finish c", "act 2:5 1", "start b 1", "start c 1"),
        *("finish a", "value 0:2 2", "finish b", "finish c", "value 2:5 2"),
    ]


# ---------------------------------------------------------------------- columns and groups


def units_of(sizes):
    ends = np.cumsum([0, *sizes]).tolist()
    cage = VectorizedCage([CountingEnv], seeds=[0])
    return EnvGroups([EnvGroup(cage, i, slice(*pair)) for i, pair in enumerate(pairwise(ends))])


@pytest.mark.parametrize(
    ("sizes", "first"),
    [((1, 1), 1), ((5, 1), 5), ((1, 5), 1), ((3, 1, 4), 4), ((2, 4, 2), 2), ((1, 1, 1), 1)],
)
def test_halves_meet_at_the_boundary_nearest_to_the_middle(sizes, first):
    left, right = units_of(sizes).halves()
    assert left.columns == slice(0, first)
    assert right.columns == slice(first, sum(sizes))


@given(st.lists(st.integers(1, 9), min_size=2, max_size=8))
def test_no_other_boundary_is_nearer(sizes):
    left, right = units_of(sizes).halves()
    assert [one.number for one in [*left.groups, *right.groups]] == list(range(len(sizes)))
    apart = abs(left.columns.stop - (right.columns.stop - left.columns.stop))
    total = sum(sizes)
    assert apart == min(abs(2 * sum(sizes[:i]) - total) for i in range(1, len(sizes)))


def test_groups_have_columns_of_the_batch():
    seeds = list(range(7))
    plain = VectorizedCage([CountingEnv] * 2, seeds=seeds[:2])
    parted = GroupedCage([CountingEnv] * 5, n_groups=2, seeds=seeds[:5])
    columns = CageColumns([plain, parted], 7)
    assert columns.columns == [slice(0, 2), slice(2, 7)]
    assert columns.all_envs.groups == [
        EnvGroup(plain, 0, slice(0, 2)),
        EnvGroup(parted, 0, slice(2, 4)),
        EnvGroup(parted, 1, slice(4, 7)),
    ]
    assert columns.all_envs.columns == slice(0, 7)


@pytest.mark.parametrize(
    "groups", [[], [slice(0, 2)], [slice(1, 3)], [slice(0, 2), slice(1, 3)], [slice(0, 4)]]
)
def test_groups_that_leave_out_or_share_columns_are_refused(groups, monkeypatch):
    cage = GroupedCage([CountingEnv] * 3, n_groups=1, seeds=[0, 1, 2])
    monkeypatch.setattr(GroupedCage, "groups", groups)
    with pytest.raises(
        ValueError, match="CountingEnv: groups: expected adjacent slices from 0 to 3"
    ):
        CageColumns([cage], 3)


# ---------------------------------------------------------------------- transforms, in halves


def test_normalised_observations_are_the_same_in_halves():
    batches = []
    for cls in SAMPLERS:
        setup = SamplerSetup(5, ENVIRONMENTS, make_cages=MakeCages(vectorized, (1, 3)))
        parts = setup.build()
        normalize = NormalizeObservations()
        agent = {k: v for k, v in parts.samples.agent._asdict().items() if k != "observation"}
        samples = parts.samples._replace(agent=parts.samples.agent._make(agent))
        samples = add_fields(samples, normalize.fields(samples), parts.batch_spec)
        with parts.sampler(cls, samples=samples, step_transforms=[normalize]) as sampler:
            for _ in range(4):
                sampler.collect_batch(0)
                batches.append({**numbers_of(samples), **normalize.stats})
    for basic, alternating in zip(batches[:4], batches[4:], strict=True):
        assert_same(alternating, basic)


# ---------------------------------------------------------------------- cost


class ConstantAgent(Agent):
    """Always returns zeros."""

    zeros = np.zeros(400, np.int64)

    def step(self, observation, *, env_indices=None, noise=None):
        return self.zeros[env_indices], None


def calls_of_a_batch(cls, T, sizes):
    """Return how many functions are called, Python's and C's, in a batch without environments."""
    setup = SamplerSetup(T, (CountingEnv,) * sum(sizes), make_cages=null_cages(sizes))
    parts = setup.build()
    samples = parts.samples._replace(agent=parts.samples.agent._replace(agent_info=None))
    count = 0

    def note(frame, event, arg):
        nonlocal count
        count += event in ("call", "c_call")

    handler = NumpyHandler(ConstantAgent())
    with parts.sampler(cls, handler=handler, samples=samples) as sampler:
        sampler.collect_batch(0)
        gc.collect()
        sys.setprofile(note)
        try:
            sampler.collect_batch(0)
        finally:
            sys.setprofile(None)
    return count


@both
def test_a_step_costs_the_same_for_any_number_of_environments(cls):
    few, many = calls_of_a_batch(cls, 9, (4, 4)), calls_of_a_batch(cls, 9, (200, 200))
    assert few == many
    longer = calls_of_a_batch(cls, 19, (4, 4))
    per_step = (longer - few) / 10
    assert per_step <= (14 if cls is BasicSampler else 24)
    four, six = (
        (calls_of_a_batch(cls, 19, (4,) * n) - calls_of_a_batch(cls, 9, (4,) * n)) / 10
        for n in (4, 6)
    )
    assert six - four == 4  # two cages more, started and finished
