"""Contract of cages: inherit it and define `make`, and pytest collects the tests.

class TestMyCage(CageContract):
    storage = "managed"

    def make(self, env_factories, *, samples=None, **options):
        return MyCage(env_factories, **options)

For a cage of one environment that can also be stepped without rows, like `Cage`:

class TestMyCage(CageContract, PlainFaceContract):
    def make(self, env_factories, *, seeds, samples=None, **options):
        return MyCage(env_factories[0], seed=seeds[0], **options)
"""

from __future__ import annotations

from parllel.testing.cages.cage_row_contract import CageRowContract
from parllel.testing.cages.cage_rules_contract import CageRulesContract


class CageContract(CageRowContract, CageRulesContract):
    """Tests of rows, and of the rules around them, for a cage of `n` environments."""
