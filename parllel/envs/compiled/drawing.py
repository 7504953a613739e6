"""Pictures of compiled environments, drawn by numpy alone."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Point = tuple[float, float]
Color = tuple[int, int, int]


class Drawing:
    """A white picture, uint8 [height, width, 3], with coordinates that point right and up.

    Args:
        height, width: size in pixels.
        x_range: coordinates of the left and the right edge. The unit is as long upwards.
        floor: coordinate of the lower edge.
    """

    def __init__(self, height: int, width: int, x_range: Point, *, floor: float) -> None:
        self.picture: NDArray[np.uint8] = np.full((height, width, 3), 255, np.uint8)
        unit = (x_range[1] - x_range[0]) / width
        self._x = (x_range[0] + unit * (np.arange(width) + 0.5))[None]
        self._y = (floor + unit * (height - 0.5 - np.arange(height)))[:, None]

    def line(self, start: Point, end: Point, radius: float, color: Color) -> None:
        """Draw a line with round ends; a disc if it starts where it ends."""
        (x, y), (dx, dy) = start, (end[0] - start[0], end[1] - start[1])
        length = dx * dx + dy * dy
        along = ((self._x - x) * dx + (self._y - y) * dy) / (length or 1.0)
        along = np.clip(along, 0.0, 1.0)
        distance = np.hypot(self._x - x - along * dx, self._y - y - along * dy)
        self.picture[distance <= radius] = color
