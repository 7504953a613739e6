from __future__ import annotations

from dataclasses import replace

import pytest
from sampler_cages import FORKED, grouped, synchronized, vectorized

from parllel.samplers import AlternatingSampler
from parllel.testing.sampler_contract import ENVIRONMENTS, SamplerContract
from parllel.testing.sampler_setup import MakeCages, SamplerSetup, make_sampler


def in_cages_of(most):
    """Return a `make_cages` of VectorizedCages of so many environments, the last of what is left."""

    def make_cages(factories, seeds, **options):
        n = len(factories)
        most_here = min(most, n - 1)  # two cages there have to be
        sizes = [most_here] * (n // most_here)
        sizes += [n % most_here] if n % most_here else []
        return MakeCages(vectorized, tuple(sizes))(factories, seeds, **options)

    return make_cages


class AlternatingContract(SamplerContract):
    fewest = 2

    def make_sampler(self, setup):
        return make_sampler(AlternatingSampler, setup)


# Each of the other placements is in test_every_sampler_on_every_cage.py.
class TestProcessCages(AlternatingContract):
    def adapt(self, setup):
        return replace(setup, storage="shared", **FORKED)


IN_THIS_PROCESS = {
    "uneven": in_cages_of(3),
    "many late groups": MakeCages(grouped(5, late=True)),
}


class TestCagesOfSeveral(AlternatingContract):
    @pytest.fixture(autouse=True, params=IN_THIS_PROCESS.values(), ids=IN_THIS_PROCESS.keys())
    def choose_cages(self, request):
        self.make_cages = request.param

    def adapt(self, setup):
        return replace(setup, make_cages=self.make_cages)


class TestSynchronized(AlternatingContract):
    def adapt(self, setup):
        return replace(setup, make_cages=MakeCages(synchronized(2, 3, participate=True)))


def test_two_units_are_needed():
    for cages in ({}, {"make_cages": MakeCages(vectorized)}):
        setup = SamplerSetup(3, ENVIRONMENTS[: 2 if cages else 1], **cages)
        with pytest.raises(
            ValueError, match=r"got one cage with one group; give several cages, or .*n_groups=2"
        ):
            make_sampler(AlternatingSampler, setup)
