from __future__ import annotations

from dataclasses import replace

import pytest

from parllel.cages import Cage, ProcessCage
from parllel.samplers import BasicSampler
from parllel.testing.sampler_contract import SamplerContract


class BasicContract(SamplerContract):
    def make_sampler(self, setup):
        parts = setup.build()
        return BasicSampler(
            parts.batch_spec,
            parts.cages,
            parts.handler,
            parts.samples,
            parts.step_transforms,
            parts.batch_transforms,
        )


@pytest.fixture(params=["local", "shared", "managed"])
def storage(request):
    return request.param


class TestInThisProcess(BasicContract):
    @pytest.fixture(autouse=True)
    def choose_storage(self, storage):
        self.storage = storage

    def adapt(self, setup):
        return replace(setup, storage=self.storage, make_cage=Cage)


class TestInProcessesOfTheirOwn(BasicContract):
    @pytest.fixture(autouse=True)
    def choose_storage(self, storage):
        self.storage = storage

    def adapt(self, setup):
        # Local memory moves when the cages are given the buffer, which they are first of all.
        return replace(
            setup,
            storage=self.storage,
            make_cage=ProcessCage,
            cage_options={"start_method": "fork"},
        )


@pytest.mark.parametrize("start_method", ["forkserver", "spawn"])
@pytest.mark.parametrize("storage", ["shared", "managed"])
def test_other_start_methods(start_method, storage):
    class Started(BasicContract):
        def adapt(self, setup):
            options = {"start_method": start_method}
            return replace(setup, storage=storage, make_cage=ProcessCage, cage_options=options)

    Started().test_nested_observations()
