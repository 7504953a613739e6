"""Resets by mask, infos and calls by list, in every cage and placement."""

from __future__ import annotations

from parllel.testing.cages.cage_kinds import (
    MakesCage,
    MakesProcessCage,
    MakesSynchronizedCage,
    MakesSyncVectorCage,
    MakesVectorizedCage,
)
from parllel.testing.cages.cage_vector_contract import CageVectorContract


class TestCage(MakesCage, CageVectorContract):
    pass


class TestVectorizedCage(MakesVectorizedCage, CageVectorContract):
    pass


class TestProcessCage(MakesProcessCage, CageVectorContract):
    pass


class TestTwoWorkers(MakesSynchronizedCage, CageVectorContract):
    storage = "managed"


class TestParticipating(MakesSynchronizedCage, CageVectorContract):
    settings = {"n_workers": 1, "participate": True}
    storage = "shared"


class TestTwoGroups(MakesSynchronizedCage, CageVectorContract):
    settings = {"n_workers": 3, "n_groups": 2, "participate": True, "n_main": 1}
    storage = "managed"
    wait = "semaphore"


class TestSyncVectorEnvNextStep(MakesSyncVectorCage, CageVectorContract):
    exact_infos = False


class TestSyncVectorEnvSameStep(TestSyncVectorEnvNextStep):
    mode = "SameStep"
    resets_early = True


class TestSyncVectorEnvDisabled(TestSyncVectorEnvNextStep):
    mode = "Disabled"
