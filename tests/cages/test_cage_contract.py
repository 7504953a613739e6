from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from parllel.buffers import Samples
from parllel.cages import Cage, ProcessCage
from parllel.testing.cage_contract import CageContract
from parllel.testing.cage_hooks import CageHooks


class MakesCage(CageHooks):
    def make(
        self, env_factory: Callable[[], Any], *, samples: Samples | None = None, **options: Any
    ) -> Cage:
        return Cage(env_factory, **options)


class MakesProcessCage(CageHooks):
    start_method = "fork"

    def make(
        self, env_factory: Callable[[], Any], *, samples: Samples | None = None, **options: Any
    ) -> ProcessCage:
        buffers = samples if self.storage == "shared" else None
        return ProcessCage(
            env_factory, start_method=self.start_method, timeout_s=20, buffers=buffers, **options
        )


class TestCage(MakesCage, CageContract):
    pass


class TestProcessCageForkManaged(MakesProcessCage, CageContract):
    storage = "managed"


class FewTests:
    """What depends on where an environment and its buffer are; the two classes above have the rest."""

    test_rows = CageContract.test_rows_are_those_of_a_plain_loop
    test_neighbours = CageContract.test_neighbouring_columns_are_left_alone
    test_infos = CageContract.test_infos_are_read_only_where_asked_for
    test_trajectories = CageContract.test_trajectories_span_batches_and_take_a_subclass
    test_second_buffer = CageContract.test_a_second_buffer_can_be_bound
    test_results = CageContract.test_results_are_those_of_a_plain_loop
    with_outs = CageContract.with_outs
    test_outs = CageContract.test_all_parts_can_go_out
    test_errors = CageContract.test_what_an_environment_raises_arrives_as_itself
    test_lambdas = CageContract.test_the_factory_may_be_a_lambda
    test_closing = CageContract.test_closing_while_something_is_under_way


class TestCageShared(FewTests, MakesCage):
    storage = "shared"


class TestCageManaged(FewTests, MakesCage):
    storage = "managed"


class TestProcessCageFork(FewTests, MakesProcessCage):
    pass


class TestProcessCageForkShared(FewTests, MakesProcessCage):
    storage = "shared"


class TestProcessCageForkserver(FewTests, MakesProcessCage):
    start_method = "forkserver"
    storage = {"env.*": "managed"}


class TestProcessCageForkserverShared(FewTests, MakesProcessCage):
    start_method = "forkserver"
    storage = "shared"


class TestProcessCageSpawn(MakesProcessCage):
    start_method = "spawn"
    test_rows = CageContract.test_rows_are_those_of_a_plain_loop
    test_errors = CageContract.test_what_an_environment_raises_arrives_as_itself
    test_lambdas = CageContract.test_the_factory_may_be_a_lambda


def test_contract_says_which_hook_is_missing() -> None:
    class Forgetful(CageContract):
        pass

    with pytest.raises(NotImplementedError, match="Forgetful must say how to make a cage"):
        Forgetful().make(lambda: None)


def test_contract_finds_a_wrong_cage() -> None:
    class ForgetsTheFlags(Cage):
        def finish_row(self, group: int = 0) -> None:
            super().finish_row(group)
            self._envs._rows.results[2][3][:] = False

    class Wrong(CageContract):
        def make(
            self, env_factory: Callable[[], Any], *, samples: Samples | None = None, **options: Any
        ) -> Cage:
            return ForgetsTheFlags(env_factory, **options)

    with pytest.raises(AssertionError, match="done"):
        Wrong().test_rows_are_those_of_a_plain_loop("box", True)
