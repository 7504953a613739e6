"""What every cage of one environment has to do: inherit, say how to make one, and pytest finds the tests.

class TestMyCage(CageContract):
    storage = "managed"

    def make(self, env_factory, *, samples=None, **options):
        return MyCage(env_factory, **options)
"""

from __future__ import annotations

from parllel.testing.plain_face_contract import PlainFaceContract
from parllel.testing.row_face_contract import RowFaceContract


class CageContract(RowFaceContract, PlainFaceContract):
    """Both faces: rows for samplers, single steps for people."""
