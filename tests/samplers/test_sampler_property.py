from __future__ import annotations

from dataclasses import replace
from functools import partial

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parllel.cages import ProcessCage
from parllel.samplers import BasicSampler
from parllel.testing.dummy_envs import CountingEnv
from parllel.testing.dummy_transforms import RecordingStepTransform
from parllel.testing.sampler_contract import check_samples, check_trajs
from parllel.testing.sampler_setup import SamplerSetup
from parllel.testing.simulated_batches import simulate

DRIFTING = partial(RecordingStepTransform, "drifting", scale=0.5, drift=1.0)


@st.composite
def setups(draw, most_environments):
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
            min_size=1,
            max_size=most_environments,
        )
    )
    return SamplerSetup(
        draw(st.integers(1, 6)),
        tuple(factories),
        seed=draw(st.integers(0, 2**31)),
        step_transforms=draw(st.sampled_from([(), (DRIFTING,)])),
    )


def check(setup, expected, **options):
    parts = setup.build()
    with BasicSampler(
        parts.batch_spec,
        parts.cages,
        parts.handler,
        parts.samples,
        parts.step_transforms,
        **options,
    ) as sampler:
        for batch in expected:
            samples, trajs = sampler.collect_batch(0)
            check_samples(samples, batch)
            check_trajs(trajs, batch)


@settings(max_examples=150, deadline=None)
@given(setup=setups(5), steps=st.integers(0, 5))
def test_cages_sample_what_a_plain_loop_does(setup, steps):
    options = {"decorrelation_steps": steps, "decorrelation_seed": 1}
    check(setup, simulate(setup, 3, **options), **options)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(setup=setups(3), storage=st.sampled_from(["local", "shared", "managed"]))
def test_process_cages_sample_what_cages_do(setup, storage):
    expected = simulate(setup, 3)
    check(setup, expected)
    forked = {"make_cage": ProcessCage, "cage_options": {"start_method": "fork"}}
    check(replace(setup, storage=storage, **forked), expected)
