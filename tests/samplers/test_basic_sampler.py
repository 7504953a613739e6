from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from sampler_cages import FORKED, SINGLE, grouped, synchronized
from start_methods import SENT_SPAWN_SOAKS

from parllel.cages import ProcessCage
from parllel.samplers import BasicSampler
from parllel.testing.sampler_contract import SamplerContract
from parllel.testing.sampler_setup import MakeCages, make_sampler


class BasicContract(SamplerContract):
    def make_sampler(self, setup):
        return make_sampler(BasicSampler, setup)


class TestSingleCages(BasicContract):
    # Local memory moves when the cages are given the buffer, which they are first of all.
    @pytest.fixture(
        autouse=True, params=[(SINGLE, "shared"), (FORKED, "local")], ids=["Cage", "ProcessCage"]
    )
    def choose_cages(self, request):
        self.cages, self.storage = request.param

    def adapt(self, setup):
        return replace(setup, storage=self.storage, **self.cages)


# Each of the other placements is in test_every_sampler_on_every_cage.py.
CAGES_OF_SEVERAL = {
    "late groups": grouped(3, late=True),
    "main and workers with groups": synchronized(2, 2, participate=True),
}


class TestCagesOfSeveral(BasicContract):
    @pytest.fixture(autouse=True, params=CAGES_OF_SEVERAL.values(), ids=CAGES_OF_SEVERAL.keys())
    def choose_cages(self, request):
        self.make_cages = MakeCages(request.param)

    def adapt(self, setup):
        return replace(setup, make_cages=self.make_cages)


@pytest.mark.parametrize("start_method", SENT_SPAWN_SOAKS)
@pytest.mark.parametrize(
    ("kind", "storage"), [("ProcessCage", "shared"), ("SynchronizedProcessCage", "managed")]
)
def test_other_start_methods(kind, start_method, storage):
    cages = {"make_cages": MakeCages(synchronized(2, 1, False, start_method))}
    if kind == "ProcessCage":
        cages = {"make_cage": partial(ProcessCage, start_method=start_method)}

    class Started(BasicContract):
        def adapt(self, setup):
            return replace(setup, storage=storage, **cages)

    Started().test_nested_observations()
