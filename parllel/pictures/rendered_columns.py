"""Pictures of some environments of a sampler."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from parllel.cages.cage_interface import CageInterface
from parllel.cages.vectorized_cage import VectorizedCage
from parllel.errors import ParllelError
from parllel.pictures.rendered_env import (
    Frame,
    RenderingError,
    check_mode,
    check_picture,
    fps_in,
)
from parllel.samplers.cage_columns import CageColumns


class RenderedColumns:
    """Renders the environments of some columns.

    Args:
        cages: cages of a sampler.
        columns: numbers of the environments.

    Attributes:
        columns: these, in order.
        fps: pictures per second at which the first of them looks natural, as it says itself; 30 if it
            does not.

    Raises:
        ValueError: if there are no columns, or one that is not there.
        WrongStateError: if an environment was not made with render_mode="rgb_array".
    """

    def __init__(self, cages: CageColumns, columns: Sequence[int]) -> None:
        B = cages.all_envs.columns.stop
        self.columns = sorted(set(columns))
        if not self.columns or self.columns[0] < 0 or self.columns[-1] >= B:
            raise ValueError(f"columns: expected numbers from 0 to {B - 1}, got {list(columns)}")
        self._draw: list[Callable[[], list[Any]]] = []
        self.fps = 0.0
        for cage, place in zip(cages.cages, cages.columns, strict=True):
            chosen = [b - place.start for b in self.columns if place.start <= b < place.stop]
            if chosen:
                _check_render_mode(cage, chosen, place.start)
                self._draw.append(_drawing(cage, chosen))
                metadata = _by_environment(getattr(cage, "metadata", None))[0]
                self.fps = self.fps or fps_in(metadata)

    def frames(self) -> list[Frame]:
        """Return a picture of each column as it is now, uint8 [H, W, 3]; the environments' own memory.

        Raises:
            RenderingError: if an environment raises, for lack of a graphics library say.
            ValueError: if it returns something else.
        """
        try:
            pictures = [picture for draw in self._draw for picture in draw()]
        except ParllelError:  # of a worker that died
            raise
        except Exception as error:
            raise RenderingError(
                f"environments {self.columns} could not be drawn: {type(error).__name__}: {error}"
            ) from error
        for column, picture in zip(self.columns, pictures, strict=True):
            check_picture(picture, f"environment {column}: render")
        return pictures


def _drawing(cage: CageInterface, chosen: list[int]) -> Callable[[], list[Any]]:
    """Return what draws some environments of a cage."""
    if isinstance(cage, VectorizedCage) and cage.n > 1:
        # cage.render() would draw all of them, which takes longer than to step them.
        lookups = cage.get_wrapper_attr
        methods = [lookups[i]("render") for i in chosen]
        return lambda: [method() for method in methods]

    def draw() -> list[Any]:
        pictures = _by_environment(cage.render())
        return [pictures[i] for i in chosen]

    return draw


def _check_render_mode(cage: CageInterface, chosen: list[int], first: int) -> None:
    modes = _by_environment(getattr(cage, "render_mode", None))
    for i in chosen:
        check_mode(modes[i], f"environment {first + i} ({cage.spaces.name})")


def _by_environment(values: Any) -> list[Any]:
    """Return one value per environment; cages of one environment return it alone."""
    return values if isinstance(values, list) else [values]
