from __future__ import annotations

from functools import partial

import pytest
from sampler_cages import FORKED, SINGLE, PlacedContract, grouped, one_of, several, synchronized
from start_methods import SENT_SPAWN_SOAKS

from parllel.cages import ProcessCage
from parllel.samplers import BasicSampler
from parllel.testing.sampler_setup import make_sampler


class BasicContract(PlacedContract):
    def make_sampler(self, setup):
        return make_sampler(BasicSampler, setup)


class TestBasicSampler(BasicContract):
    # Each of the other placements is in test_every_sampler_on_every_cage.py.
    choose_place = one_of(
        {
            "Cage": {**SINGLE, "storage": "shared"},
            # Local memory moves when the cages are given the buffer, which they are first of all.
            "ProcessCage": FORKED,
            "late groups": several(grouped(3, late=True)),
            "main and workers with groups": several(synchronized(2, 2, participate=True)),
        }
    )


@pytest.mark.parametrize("start_method", SENT_SPAWN_SOAKS)
@pytest.mark.parametrize(
    ("kind", "storage"), [("ProcessCage", "shared"), ("SynchronizedProcessCage", "managed")]
)
def test_other_start_methods(kind, start_method, storage):
    started = BasicContract()
    started.place = {**several(synchronized(2, 1, False, start_method)), "storage": storage}
    if kind == "ProcessCage":
        make_cage = partial(ProcessCage, start_method=start_method)
        started.place = {"make_cage": make_cage, "storage": storage}
    started.test_nested_observations()
