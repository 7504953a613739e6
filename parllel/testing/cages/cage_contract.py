"""What every cage has to do: inherit, say how to make one, and pytest finds the tests.

class TestMyCage(CageContract):
    storage = "managed"

    def make(self, env_factories, *, samples=None, **options):
        return MyCage(env_factories, **options)

A cage of one environment that can also be stepped without rows, as `Cage` can:

class TestMyCage(CageContract, PlainFaceContract):
    def make(self, env_factories, *, seeds, samples=None, **options):
        return MyCage(env_factories[0], seed=seeds[0], **options)
"""

from __future__ import annotations

from parllel.testing.cages.cage_row_contract import CageRowContract
from parllel.testing.cages.cage_rules_contract import CageRulesContract


class CageContract(CageRowContract, CageRulesContract):
    """Rows, and the rules around them, of `n` environments."""
