from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from parllel.buffers import Samples
from parllel.cages import Cage, ProcessCage
from parllel.testing.cage_contract import CageContract


class MakesCage(CageContract):
    def make(
        self, env_factory: Callable[[], Any], *, samples: Samples | None = None, **options: Any
    ) -> Cage:
        return Cage(env_factory, **options)


class MakesProcessCage(CageContract):
    start_method = "fork"

    def make(
        self, env_factory: Callable[[], Any], *, samples: Samples | None = None, **options: Any
    ) -> ProcessCage:
        buffers = samples if self.storage == "shared" else None
        return ProcessCage(
            env_factory, start_method=self.start_method, timeout_s=20, buffers=buffers, **options
        )


class TestCage(MakesCage):
    pass


class TestCageShared(MakesCage):
    storage = "shared"


class TestCageManaged(MakesCage):
    storage = "managed"


class TestProcessCageFork(MakesProcessCage):
    pass


class TestProcessCageForkShared(MakesProcessCage):
    storage = "shared"


class TestProcessCageForkManaged(MakesProcessCage):
    storage = "managed"


class TestProcessCageForkserver(MakesProcessCage):
    start_method = "forkserver"
    storage = {"env.*": "managed"}


class TestProcessCageForkserverShared(MakesProcessCage):
    start_method = "forkserver"
    storage = "shared"


class TestProcessCageSpawn(MakesProcessCage):
    start_method = "spawn"


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
