"""What the contracts of cages ask of whoever inherits them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from parllel.buffers import Samples
from parllel.cages import CageInterface
from parllel.testing.row_reference import make_samples

COLUMN = 1  # of three, so that both neighbours can be watched


class CageHooks:
    """Hooks, and what the tests share.

    Attributes:
        storage: where the buffers of the tests lie.
    """

    storage: Any = "local"

    def make(
        self,
        env_factory: Callable[[], Any],
        *,
        samples: Samples | None = None,
        **options: Any,
    ) -> Any:
        """Return a cage of the class under test.

        samples: the buffer that it is going to write, for cages whose process inherits it.
        options: `traj_info`, `reset_automatically`, `seed`, `index`, `check`.
        """
        raise NotImplementedError(f"{type(self).__name__} must say how to make a cage")

    def bound(
        self, env_factory: Callable[[], Any], T: int = 5, *, info: bool = True, **options: Any
    ) -> tuple[Any, Samples]:
        """Return a cage and the samples that it writes column `COLUMN` of."""
        samples = make_samples(env_factory(), T, 3, storage=self.storage, info=info)
        cage = self.make(env_factory, samples=samples, **options)
        try:
            cage.set_samples_buffer(samples, slice(COLUMN, COLUMN + 1))
        except BaseException:
            cage.close()
            raise
        return cage, samples


def run(cage: CageInterface, method: str, *args: Any, **options: Any) -> None:
    """Start something and finish it; an error may come from either half."""
    getattr(cage, method)(*args, **options)
    cage.finish_row()


def notes_of(error: BaseException) -> str:
    """Return all that an exception says: its text, its notes, and its cause."""
    said = [str(error), *getattr(error, "__notes__", ())]
    if error.__cause__ is not None:
        said.append(str(error.__cause__))
    return "\n".join(said)


def close_quietly(cage: Any) -> None:
    """Close a cage whose environment fails while it is closed."""
    with suppress(Exception):
        cage.close()
