from __future__ import annotations

from typing import Any

from parllel.buffers import Samples
from parllel.cages import SynchronizedProcessCage
from parllel.testing.vector_cage_contract import VectorCageContract
from parllel.testing.vector_cage_hooks import EnvFactories, VectorCageHooks
from parllel.testing.vector_row_contract import VectorRowContract
from parllel.testing.vector_rules_contract import VectorRulesContract


class MakesSynchronizedCage(VectorCageHooks):
    settings: dict[str, Any] = {"n_workers": 2}
    start_method = "fork"
    wait: str | None = None

    def make(
        self, env_factories: EnvFactories, *, samples: Samples | None = None, **options: Any
    ) -> SynchronizedProcessCage:
        return SynchronizedProcessCage(
            env_factories,
            start_method=self.start_method,
            timeout_s=20.0,
            buffers=samples if self.storage == "shared" else None,
            wait=self.wait,
            **self.settings,
            **options,
        )


class TestTwoWorkersShared(MakesSynchronizedCage, VectorCageContract):
    storage = "shared"


class TestTakingPartWithTwoGroups(MakesSynchronizedCage, VectorCageContract):
    settings = {"n_workers": 2, "participate": True, "n_groups": 2}
    storage = "managed"


class FewTests:
    """What depends on where environments and buffers are; the two classes above have the rest."""

    test_columns = VectorRowContract.test_columns_are_those_of_plain_loops
    test_neighbours = VectorRowContract.test_neighbouring_columns_are_left_alone
    test_infos = VectorRowContract.test_infos_are_read_only_where_asked_for
    test_groups = VectorRowContract.test_groups_are_stepped_apart
    test_shared_buffer = VectorRowContract.test_two_cages_share_a_buffer
    test_second_buffer = VectorRowContract.test_a_second_buffer_can_be_bound
    test_errors = VectorRulesContract.test_what_an_environment_raises_arrives_as_itself
    _use = VectorRulesContract._use


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


class TestForkserverShared(MakesSynchronizedCage):
    settings = {"n_workers": 1, "participate": True}
    start_method = "forkserver"
    storage = "shared"
    test_columns = VectorRowContract.test_columns_are_those_of_plain_loops


class TestSpawnShared(MakesSynchronizedCage):
    settings = {"n_workers": 2, "participate": True, "n_groups": 2}
    start_method = "spawn"
    storage = "shared"
    wait = "semaphore"
    test_columns = VectorRowContract.test_columns_are_those_of_plain_loops
    test_groups = VectorRowContract.test_groups_are_stepped_apart


class TestSpawn(MakesSynchronizedCage):
    settings = {"n_workers": 1}
    start_method = "spawn"
    test_random_rows = VectorRowContract.test_random_rows_write_their_actions
