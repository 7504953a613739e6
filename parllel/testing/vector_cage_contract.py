"""What every cage of several environments has to do: inherit, say how to make one; pytest finds the tests.

class TestMyCage(VectorCageContract):
    storage = "managed"

    def make(self, env_factories, *, samples=None, **options):
        return MyCage(env_factories, **options)
"""

from __future__ import annotations

from parllel.testing.vector_row_contract import VectorRowContract
from parllel.testing.vector_rules_contract import VectorRulesContract


class VectorCageContract(VectorRowContract, VectorRulesContract):
    """Rows, and the rules around them."""
