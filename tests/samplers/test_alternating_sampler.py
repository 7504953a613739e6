from __future__ import annotations

import pytest
from sampler_cages import (
    FORKED,
    PlacedContract,
    grouped,
    in_cages_of,
    one_of,
    several,
    synchronized,
    vectorized,
)

from parllel.samplers import AlternatingSampler
from parllel.testing.sampler_contract import ENVIRONMENTS
from parllel.testing.sampler_setup import MakeCages, SamplerSetup, make_sampler


class TestAlternatingSampler(PlacedContract):
    fewest = 2
    # Each of the other placements is in test_every_sampler_on_every_cage.py.
    choose_place = one_of(
        {
            "ProcessCage": {**FORKED, "storage": "shared"},
            "uneven": {"make_cages": in_cages_of(3)},
            "many late groups": several(grouped(5, late=True)),
            "main and workers with groups": several(synchronized(2, 3, participate=True)),
        }
    )

    def make_sampler(self, setup):
        return make_sampler(AlternatingSampler, setup)


def test_two_units_are_needed():
    for cages in ({}, {"make_cages": MakeCages(vectorized)}):
        setup = SamplerSetup(3, ENVIRONMENTS[: 2 if cages else 1], **cages)
        with pytest.raises(
            ValueError, match=r"got one cage with one group; give several cages, or .*n_groups=2"
        ):
            make_sampler(AlternatingSampler, setup)
