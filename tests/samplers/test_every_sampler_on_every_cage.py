"""Every pair of sampler, kind of cage and storage, once; the contract suites go deeper."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from gymnasium.vector import AutoresetMode
from sampler_cages import CAGES, native, several

from parllel.samplers import AlternatingSampler, BasicSampler, FullEpisodeSampler, RecurrentSampler
from parllel.testing.dummy_envs import CountingEnv
from parllel.testing.sampler_contract import DOUBLED, SCALED, SHIFTED, check_batches
from parllel.testing.sampler_setup import SamplerSetup, make_sampler
from parllel.testing.simulated_batches import simulate
from parllel.testing.simulated_sequences import simulate_sequences

KINDS = {
    **CAGES,
    "NEXT_STEP": several(native(AutoresetMode.NEXT_STEP), (1, 3)),
    "SAME_STEP": several(native(AutoresetMode.SAME_STEP), (2, 2)),
    "DISABLED": several(native(AutoresetMode.DISABLED), (3, 1)),
}
SIMULATED = {
    BasicSampler: simulate,
    AlternatingSampler: simulate,
    RecurrentSampler: simulate_sequences,
    FullEpisodeSampler: simulate_sequences,
}


STORAGES = ["local", "managed, switching", "managed, three batches"]
# Going round the storages, each sampler and each kind of cage meets all of them.
TRIPLES = [
    pytest.param(
        cls, kind, STORAGES[(i + j) % 3], id=f"{cls.__name__}-{kind}-{STORAGES[(i + j) % 3]}"
    )
    for i, cls in enumerate(SIMULATED)
    for j, kind in enumerate(KINDS)
]


@pytest.mark.parametrize(("cls", "kind", "storage"), TRIPLES)
@pytest.mark.few(14)
def test_batches_are_those_of_a_plain_loop(cls, kind, storage):
    setup = SamplerSetup(
        6,
        tuple(
            partial(CountingEnv, lengths=(1, 4, 6), random_lengths=True, end=end, layout="dict")
            for end in ("terminated", "truncated", "alternate", "both")
        ),
        seed=3,
        step_transforms=(DOUBLED, SHIFTED),
        batch_transforms=(SCALED,),
        storage=storage.partition(",")[0],
        switching=storage.endswith("switching"),
        batches=3 if storage.endswith("three batches") else 1,
        recurrent=not cls.resets_automatically,
    )
    setup = replace(setup, **KINDS[kind])
    with make_sampler(cls, setup) as sampler:
        check_batches(sampler, SIMULATED[cls](setup, 4))
