from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from sampler_cages import FORKED, SINGLE, grouped, synchronized, vectorized

from parllel.cages import ProcessCage
from parllel.samplers import AlternatingSampler
from parllel.testing.sampler_contract import ENVIRONMENTS, SamplerContract
from parllel.testing.sampler_setup import CagesOf, SamplerSetup, make_sampler


def in_cages_of(most):
    """Return a `make_cages` of VectorizedCages of so many environments, the last of what is left."""

    def make_cages(factories, seeds, **options):
        n = len(factories)
        most_here = min(most, n - 1)  # two cages there have to be
        sizes = [most_here] * (n // most_here)
        sizes += [n % most_here] if n % most_here else []
        return CagesOf(vectorized, tuple(sizes))(factories, seeds, **options)

    return make_cages


class AlternatingContract(SamplerContract):
    fewest = 2

    def make_sampler(self, setup):
        return make_sampler(AlternatingSampler, setup)


SINGLES = {"Cage": SINGLE, "ProcessCage": {**FORKED, "storage": "shared"}}


class TestSingleCages(AlternatingContract):
    @pytest.fixture(autouse=True, params=SINGLES.values(), ids=SINGLES.keys())
    def choose_cages(self, request):
        self.cages = request.param

    def adapt(self, setup):
        return replace(setup, **self.cages)


IN_THIS_PROCESS = {
    "uneven": in_cages_of(3),
    "pairs": in_cages_of(2),
    "groups": CagesOf(grouped(2)),
    "late groups": CagesOf(grouped(2, late=True)),
    "many late groups": CagesOf(grouped(5, late=True)),
}


class TestCagesOfSeveral(AlternatingContract):
    @pytest.fixture(autouse=True, params=IN_THIS_PROCESS.values(), ids=IN_THIS_PROCESS.keys())
    def choose_cages(self, request):
        self.make_cages = request.param

    def adapt(self, setup):
        return replace(setup, make_cages=self.make_cages)


SYNCHRONIZED = {
    "workers": synchronized(2, 2),
    "main and workers": synchronized(2, 3, participate=True),
}


class TestSynchronized(AlternatingContract):
    @pytest.fixture(autouse=True, params=SYNCHRONIZED.values(), ids=SYNCHRONIZED.keys())
    def choose_cages(self, request):
        self.make_cages = CagesOf(request.param)

    def adapt(self, setup):
        return replace(setup, make_cages=self.make_cages)


# Every pair of the three; what storages and cages do after each start is in their own tests.
@pytest.mark.parametrize(
    ("kind", "start_method", "storage"),
    [
        ("ProcessCage", "forkserver", "shared"),
        ("ProcessCage", "spawn", "managed"),
        ("SynchronizedProcessCage", "forkserver", "managed"),
        ("SynchronizedProcessCage", "spawn", "shared"),
    ],
)
def test_other_start_methods(kind, start_method, storage):
    cages = {"make_cages": CagesOf(synchronized(1, 2, True, start_method))}
    if kind == "ProcessCage":
        cages = {"make_cage": partial(ProcessCage, start_method=start_method)}

    class Started(AlternatingContract):
        def adapt(self, setup):
            return replace(setup, storage=storage, **cages)

    Started().test_nested_observations()


def test_two_units_are_needed():
    for cages in ({}, {"make_cages": CagesOf(vectorized)}):
        setup = SamplerSetup(3, ENVIRONMENTS[: 2 if cages else 1], **cages)
        with pytest.raises(
            ValueError, match=r"got one cage with one group; give several cages, or .*n_groups=2"
        ):
            make_sampler(AlternatingSampler, setup)
