"""All cages under the contract: whole for each kind of cage, what depends on the place for others."""

from __future__ import annotations

from typing import Any

import pytest

from parllel.buffers import Samples
from parllel.cages import VectorizedCage
from parllel.testing.cages.cage_contract import CageContract
from parllel.testing.cages.cage_hooks import CageHooks, EnvFactories
from parllel.testing.cages.cage_kinds import (
    MakesCage,
    MakesProcessCage,
    MakesSynchronizedCage,
    MakesVectorizedCage,
)
from parllel.testing.cages.cage_row_contract import CageRowContract
from parllel.testing.cages.step_methods_contract import StepMethodsContract


class TestVectorizedCage(MakesVectorizedCage, CageContract):
    pass


class TestProcessCageForkManaged(MakesProcessCage, CageContract, StepMethodsContract):
    storage = "managed"


class TestTwoWorkersShared(MakesSynchronizedCage, CageContract):
    storage = "shared"


class TestTakingPartWithTwoGroups(MakesSynchronizedCage, CageContract):
    settings = {"n_workers": 2, "participate": True, "n_groups": 2}
    storage = "managed"


class TestCage(MakesCage, StepMethodsContract):
    test_columns = CageContract.test_columns_are_those_of_plain_loops
    test_attributes = CageContract.test_attributes_and_methods_are_reached_through_wrappers
    test_order = CageContract.test_calls_in_a_wrong_order_change_nothing
    calls_at_rest = CageContract.calls_at_rest


class FewTests:
    """What depends on where environments and buffers are; the classes above have the rest."""

    test_columns = CageContract.test_columns_are_those_of_plain_loops
    test_neighbours = CageContract.test_neighbouring_columns_are_left_alone
    test_groups = CageContract.test_groups_are_stepped_apart
    test_second_buffer = CageContract.test_a_second_buffer_can_be_bound
    test_errors = CageContract.test_what_an_environment_raises_arrives_as_itself
    fail_in_phase = CageContract.fail_in_phase


class FewColumns(CageHooks):
    """Each layout and each way to reset once: interpreters take long to start."""

    @pytest.mark.parametrize(("layout", "automatic"), [("box", True), ("dict", False)])
    def test_columns(self, layout: str, automatic: bool) -> None:
        CageRowContract.test_columns_are_those_of_plain_loops(self, layout, automatic)


class FewPlainTests(FewTests):
    test_results = StepMethodsContract.test_results_are_those_of_a_plain_loop
    test_outs = StepMethodsContract.test_all_parts_can_go_out
    with_outs = StepMethodsContract.with_outs


class TestCageShared(FewPlainTests, MakesCage):
    storage = "shared"


class TestVectorizedCageManaged(FewTests, MakesVectorizedCage):
    storage = "managed"


class TestProcessCageFork(FewPlainTests, MakesProcessCage):
    pass


class TestProcessCageForkShared(FewPlainTests, MakesProcessCage):
    storage = "shared"


class TestProcessCageForkserver(FewPlainTests, MakesProcessCage):
    start_method = "forkserver"
    storage = {"env.*": "managed"}


class TestProcessCageForkserverShared(FewColumns, MakesProcessCage):
    start_method = "forkserver"
    storage = "shared"


class TestProcessCageSpawn(FewColumns, MakesProcessCage):
    start_method = "spawn"
    test_lambdas = CageContract.test_factories_may_be_lambdas


class TestOneWorker(FewTests, MakesSynchronizedCage):
    settings = {"n_workers": 1}
    wait = "semaphore"


class TestThreeWorkersTwoGroups(FewTests, MakesSynchronizedCage):
    settings = {"n_workers": 3, "n_groups": 2}
    storage = "managed"


class TestTakingALittlePart(FewTests, MakesSynchronizedCage):
    settings = {"n_workers": 1, "participate": True, "n_main": 1, "n_groups": 3}
    storage = "shared"
    wait = "semaphore"


class TestTakingPart(FewTests, MakesSynchronizedCage):
    settings = {"n_workers": 1, "participate": True}
    storage = {"env.*": "managed"}


class TestForkserver(FewTests, MakesSynchronizedCage):
    settings = {"n_workers": 2, "n_groups": 2, "spin_us": 100.0}
    start_method = "forkserver"


class TestForkserverShared(FewColumns, MakesSynchronizedCage):
    settings = {"n_workers": 1, "participate": True}
    start_method = "forkserver"
    storage = "shared"


class TestSpawnShared(FewColumns, MakesSynchronizedCage):
    settings = {"n_workers": 2, "participate": True, "n_groups": 2}
    start_method = "spawn"
    storage = "shared"
    wait = "semaphore"
    test_groups = CageContract.test_groups_are_stepped_apart
    test_random_rows = CageContract.test_random_rows_write_their_actions


def test_contract_says_which_hook_is_missing() -> None:
    class Forgetful(CageContract):
        pass

    with pytest.raises(
        NotImplementedError, match=r"Forgetful must define make\(\) to create a cage"
    ):
        Forgetful().made([lambda: None])


def test_contract_finds_a_wrong_cage() -> None:
    class ForgetsAColumn(VectorizedCage):
        def set_samples_buffer(self, samples: Samples, columns: slice) -> None:
            super().set_samples_buffer(samples, columns)
            self._rewards = samples.env.reward[2, columns.stop - 1]

        def finish_row(self, group: int = 0) -> None:
            super().finish_row(group)
            self._rewards[...] = 0.5

    class Wrong(CageContract):
        def make(
            self, env_factories: EnvFactories, *, samples: Samples | None = None, **options: Any
        ) -> VectorizedCage:
            return ForgetsAColumn(env_factories, **options)

    with pytest.raises(AssertionError, match="rewards"):
        Wrong().test_columns_are_those_of_plain_loops("box", True)
