from __future__ import annotations

from dataclasses import replace
from functools import partial

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sampler_cages import FORKED, grouped, synchronized, vectorized

from parllel.samplers import AlternatingSampler, BasicSampler
from parllel.testing.dummy_envs import CountingEnv
from parllel.testing.dummy_transforms import RecordingBatchTransform, RecordingStepTransform
from parllel.testing.sampler_contract import check_batches
from parllel.testing.sampler_setup import MakeCages, SamplerSetup, make_sampler
from parllel.testing.simulated_batches import simulate

DRIFTING = partial(RecordingStepTransform, "drifting", scale=0.5, drift=1.0)
DOUBLED = partial(RecordingStepTransform, "doubled", target="agent.doubled", scale=2.0)
SHIFTED = partial(RecordingStepTransform, "shifted", source="agent.doubled", shift=0.5, drift=3.0)
SCALED = partial(RecordingBatchTransform, "scaled", scale=-2.0)


@st.composite
def setups(draw, most_environments, fewest=1):
    layout = draw(st.sampled_from(["box", "float64", "scalar", "image", "discrete", "dict"]))
    factories = draw(
        st.lists(
            st.builds(
                partial,
                st.just(CountingEnv),
                lengths=st.lists(st.integers(1, 7), min_size=1, max_size=3).map(tuple),
                random_lengths=st.booleans(),
                end=st.sampled_from(["terminated", "truncated", "both", "alternate"]),
                layout=st.just(layout),
                reuse=st.booleans(),
            ),
            min_size=fewest,
            max_size=most_environments,
        )
    )
    return SamplerSetup(
        draw(st.integers(1, 6)),
        tuple(factories),
        seed=draw(st.integers(0, 2**31)),
        step_transforms=draw(st.sampled_from([(), (DRIFTING,), (DOUBLED, SHIFTED)])),
        batch_transforms=draw(st.sampled_from([(), (SCALED,)])),
    )


@st.composite
def in_this_process(draw, setup):
    """Spread the environments over cages of any sizes, some of them in groups; at least two units."""
    n = len(setup.factories)
    ends = sorted(draw(st.sets(st.integers(1, n - 1), max_size=n - 1)) | {n})
    sizes = tuple(end - begin for begin, end in zip([0, *ends], ends, strict=False))
    kinds = [vectorized, grouped(2), grouped(2, late=True), grouped(4, late=True)]
    chosen = draw(st.lists(st.sampled_from(kinds), min_size=len(sizes), max_size=len(sizes)))
    if len(sizes) == 1 and chosen == [vectorized]:
        chosen = [grouped(2)]

    def make_cages(factories, seeds, **options):
        cages, first = [], 0
        for size, kind in zip(sizes, chosen, strict=True):
            part = slice(first, first + size)
            cages.append(kind(factories[part], seeds=seeds[part], index=first, **options))
            first += size
        return cages

    return replace(setup, make_cages=make_cages)


def check(cls, setup, expected, **options):
    with make_sampler(cls, setup, **options) as sampler:
        check_batches(sampler, expected)


@settings(max_examples=50)
@given(setup=setups(5), steps=st.integers(0, 5))
def test_cages_sample_what_a_plain_loop_does(setup, steps):
    options = {"decorrelation_steps": steps, "decorrelation_seed": 1}
    check(BasicSampler, setup, simulate(setup, 3, **options), **options)


@settings(max_examples=40)
@given(data=st.data(), setup=setups(7, fewest=2), steps=st.integers(0, 5))
def test_both_samplers_do_wherever_environments_are(data, setup, steps):
    options = {"decorrelation_steps": steps, "decorrelation_seed": 1}
    expected = simulate(setup, 3, **options)
    placed = data.draw(in_this_process(setup))
    check(BasicSampler, placed, expected, **options)
    check(AlternatingSampler, placed, expected, **options)


@settings(max_examples=8, suppress_health_check=[HealthCheck.too_slow])
@given(setup=setups(3, fewest=2), storage=st.sampled_from(["local", "shared", "managed"]))
def test_process_cages_sample_what_cages_do(setup, storage):
    expected = simulate(setup, 3)
    placed = replace(setup, storage=storage, **FORKED)
    check(BasicSampler, placed, expected)
    check(AlternatingSampler, placed, expected)


@settings(max_examples=6, suppress_health_check=[HealthCheck.too_slow])
@given(
    setup=setups(6, fewest=2),
    workers=st.integers(1, 3),
    groups=st.integers(2, 3),
    participate=st.booleans(),
    storage=st.sampled_from(["local", "shared", "managed"]),
    steps=st.integers(0, 5),
)
def test_synchronized_cages_do_too(setup, workers, groups, participate, storage, steps):
    options = {"decorrelation_steps": steps, "decorrelation_seed": 1}
    expected = simulate(setup, 3, **options)
    for cls, n_groups in ((BasicSampler, 1), (AlternatingSampler, groups)):
        make = synchronized(workers, n_groups, participate)
        placed = replace(setup, storage=storage, make_cages=MakeCages(make))
        check(cls, placed, expected, **options)
