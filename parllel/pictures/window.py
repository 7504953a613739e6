"""A window that shows pictures one after the other."""

from __future__ import annotations

import os
import sys
from typing import Any

from parllel.errors import ParllelError
from parllel.pictures.rendered_env import DEFAULT_FPS, Frame
from parllel.types import Closeable

SMALLEST = 300  # pixels; smaller pictures are enlarged by a whole number


class WindowClosedError(ParllelError):
    """The window was closed by its user."""


class Window(Closeable):
    """Shows pictures at a steady rate in a window, on a system with a display.

    Args:
        title: title of the window.
        fps: maximum number of pictures per second.

    Raises:
        ImportError: if pygame is not installed. The message says what to install.
    """

    def __init__(self, title: str, fps: float = DEFAULT_FPS) -> None:
        # Before the import, which would print a greeting.
        os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
        try:
            import pygame
        except ImportError as error:
            raise ImportError(
                'a window needs pygame: pip install "gymnasium[classic-control]"', name=error.name
            ) from error
        self._pygame: Any = pygame
        self._title = title
        self._fps = fps
        self._clock = pygame.time.Clock()

    def show(self, frame: Frame) -> None:
        """Show a picture, uint8 [H, W, 3], and wait until it is time for the next.

        Raises:
            WindowClosedError: if the window was closed.
            OSError: if none can be opened.
        """
        pygame = self._pygame
        factor = max(1, -(-SMALLEST // min(frame.shape[:2])))
        size = (frame.shape[1] * factor, frame.shape[0] * factor)
        screen = self._screen(size)
        # pygame counts along the width first.
        surface = pygame.surfarray.make_surface(frame.swapaxes(0, 1))
        screen.blit(pygame.transform.scale(surface, size), (0, 0))
        pygame.display.flip()
        if any(event.type == pygame.QUIT for event in pygame.event.get()):
            raise WindowClosedError(f"{self._title}: the window was closed")
        self._clock.tick(self._fps)

    def _screen(self, size: tuple[int, int]) -> Any:
        """Return the window's surface; open the window if it is not there, or of another size."""
        display = self._pygame.display
        screen = display.get_surface() if display.get_init() else None
        if screen is not None and screen.get_size() == size:
            return screen
        why: Exception | None = None
        try:
            display.init()
            driver = display.get_driver()
            # Without a display SDL chooses a driver that shows nothing; only a user may want that.
            if driver not in ("offscreen", "dummy") or "SDL_VIDEODRIVER" in os.environ:
                display.set_caption(self._title)
                return display.set_mode(size)
            display.quit()
        except self._pygame.error as error:
            why = error
        reason = why or f"the display does not answer, SDL would draw {driver}"
        raise OSError(f"no window can be opened ({reason}); write a video file instead") from why

    def close(self) -> None:
        """Close the window. Idempotent."""
        # Not pygame.quit(): environments draw with pygame too.
        self._pygame.display.quit()


def has_display() -> bool:
    """Return whether there is a display that shows windows."""
    if sys.platform in ("win32", "darwin"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
