"""What is wrong with a wish."""

from __future__ import annotations


class UnknownCardError(KeyError):
    """There is no card of this id."""

    def __str__(self) -> str:
        # Without the quotes that a KeyError puts around its text.
        return str(self.args[0])
